// How the service would read a text aloud.
import { ask } from "../../api.js";
import { number, t, usd } from "../../i18n.js";
import { button, card, h } from "../../ui.js";
import { isOwner } from "../../session.js";
import { sharedList } from "../../work.js";

export function explanationCard() {
  const facts = h("p.hint");
  const list = h("ol.explained");
  const made = card(t("explain.title"), facts, list, h("div.actions", button(t("action.close"), () => made.clear(), { kind: "small" })));
  made.hidden = true;
  made.clear = () => { made.hidden = true; };
  made.ask = async (json) => {
    const found = await ask("/tts/explain", { method: "POST", json });
    const all = await sharedList("voices");
    const name = (id) => all.find((one) => one.voice_id === id)?.name || id;
    facts.textContent = [
      name(found.voice_id), t("explain.characters", { n: found.characters }), ...(isOwner() ? [] : [usd(found.price)]),
      t("unit.about_seconds", { n: number(found.estimated_seconds, 1) }),
      ...(found.unread.length ? [t("speak.unread", { parts: found.unread.join(", ") })] : []),
    ].join(" · ");
    const isOther = (one) => one.voice_id !== found.voice_id || one.language !== found.language;
    list.replaceChildren(...found.sentences.map((one) => h("li",
      isOther(one) && h("span.badge", `${name(one.voice_id)} · ${one.language}`),
      h("p", { lang: one.language }, one.text),
      one.phonemes && h("p.phonemes", one.phonemes))));
    made.hidden = false;
    made.scrollIntoView({ block: "nearest" });
  };
  return made;
}
