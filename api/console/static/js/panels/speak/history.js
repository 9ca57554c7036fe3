// The speech that was made, kept in this browser.
import { newId } from "../../api.js";
import { day, clock, t, usd } from "../../i18n.js";
import { isOwner } from "../../session.js";
import { clear, history, put, remove } from "../../store.js";
import { aside, button, confirmed, download, fileName, h, iconButton } from "../../ui.js";
import { plain } from "./markup.js";

export function speechHistory({ onplay }) {
  const list = h("ul.history");
  const wipe = button(t("history.clear"), async () => {
    if (!(await confirmed(t("history.title"), t("history.clear_ask"), t("action.delete")))) return;
    await clear("speech");
    await made.draw();
  }, { icon: "trash", kind: "small of-content" });
  const made = aside(t("history.title"), h("p.hint", t("history.about")), h("p.hint.none", t("history.none")), list, wipe);
  const row = (item) => {
    const whole = plain(item.text).trim();
    const text = whole.length > 60 ? `${[...whole].slice(0, 60).join("")}…` : whole;
    const facts = [item.voice, clock(item.seconds), item.format.toUpperCase(), ...(isOwner() ? [] : [usd(item.cost)]), day(item.at)].join(" · ");
    return h("li.history-row",
      iconButton("play", t("history.play", { text }), () => onplay(item)),
      h("div.history-text", h("p", text), h("p.hint", facts)),
      iconButton("download", t("history.download", { text }), () => download(item.blob, nameOf(item))),
      iconButton("trash", t("history.delete", { text }), async () => {
        await remove("speech", item.id);
        await made.draw();
        made.querySelector("button")?.focus();
      }));
  };
  made.draw = async () => list.replaceChildren(...(await history()).map(row));
  made.add = async (item) => {
    await put("speech", { id: newId(), at: Date.now(), ...item });
    await made.draw();
  };
  made.draw();
  return made;
}

export const nameOf = ({ text, voice, format }) => fileName(`${voice} ${[...plain(text)].slice(0, 36).join("")}`, format);
