// Voices as cards, with search, filters, favourites and previews.
import { t, usd } from "../../i18n.js";
import { icon } from "../../icons.js";
import { byLanguage, gradeOf, isOwn, letters, previewButton } from "../../previews.js";
import { price } from "../../session.js";
import { setting } from "../../store.js";
import { button, check, field, h, iconButton, newId, select } from "../../ui.js";
import { follow, voiceLanguages } from "../../work.js";

const FAVOURITES = "favourites";
// A picture without a file: a letter and a colour from the voice's name.
function portrait(voice) {
  const sum = [...voice.name].reduce((all, one) => (all * 31 + one.codePointAt(0)) % 997, 7);
  const made = h("span.portrait", { "aria-hidden": "true" }, [...voice.name][0].toUpperCase());
  made.style.setProperty("--hue", String(sum % 360));
  return made;
}

// As a library, it stores no choice, and does not offer "automatic".
export function voicePicker({ place, onchange = () => {}, isLibrary = false }) {
  const name = newId("voice");
  const favourites = new Set(setting(FAVOURITES) || []);
  const search = h("input", { type: "search", placeholder: t("voices.search_hint"), autocomplete: "off" });
  const language = select([["", t("word.all")]]);
  const gender = select([["", t("word.all")], ["female", t("voices.female")], ["male", t("voices.male")]]);
  const model = select([["", t("word.all")]]);
  const favourite = check(t("voices.favourites"));
  const own = check(t("voices.own"));
  const count = h("p.hint", { role: "status" });
  const cards = h("div.voice-groups");
  const clear = button(t("voices.clear"), () => reset(), { kind: "small" });
  let all = [];
  let chosen = (!isLibrary && setting("voice")) || "";

  const made = h("div.voice-picker",
    h("div.voice-filters",
      field(t("voices.search"), search, { kind: "grow" }),
      field(t("word.language"), language), field(t("word.gender"), gender), field(t("word.model"), model),
      h("div.checks", favourite, own)),
    h("div.row", count, clear),
    h("fieldset.voice-list", h("legend.offscreen", t("voices.title")), cards),
    h("p.hint", t("voices.preview_price", { n: letters("en"), price: usd(price("tts_character", letters("en"))) })));

  const reset = () => {
    search.value = language.value = gender.value = model.value = "";
    favourite.box.checked = own.box.checked = false;
    draw();
    search.focus();
  };
  const fits = (voice) => {
    const { labels } = voice;
    const words = [voice.name, voice.description, labels.language_name, labels.accent, labels.gender, voice.model, ...voice.categories].join(" ").toLowerCase();
    return (!language.value || labels.language === language.value)
      && (!gender.value || labels.gender === gender.value)
      && (!model.value || voice.model === model.value)
      && (!favourite.box.checked || favourites.has(voice.voice_id))
      && (!own.box.checked || isOwn(voice))
      && search.value.trim().toLowerCase().split(/\s+/).every((word) => words.includes(word));
  };
  const choose = (id) => {
    chosen = id;
    if (!isLibrary) setting("voice", id);
    onchange(made.voice);
  };
  const radio = (id) => h("input", { type: "radio", name, value: id, id: newId("voice"), checked: id === chosen, onchange: () => choose(id) });

  const autoCard = () => {
    const input = radio("");
    return h("li.voice-card.auto", input, h("label", { htmlFor: input.id }, h("span.portrait", { "aria-hidden": "true" }, icon("speak")),
      h("span.voice-text", h("strong", t("voices.auto")), h("span.voice-about", t("voices.auto_about")))));
  };
  const cardOf = (voice) => {
    const input = radio(voice.voice_id);
    const { labels } = voice;
    const facts = [isOwn(voice) && labels.language_name, t(`voices.${labels.gender}`), labels.accent !== "Neutral" && labels.accent, !isOwn(voice) && gradeOf(voice)].filter(Boolean).join(" · ");
    const tier = voice.model.split(" ").at(-1);
    const isKept = () => favourites.has(voice.voice_id);
    const star = iconButton("star", t("voices.favourite", { name: voice.name }), () => {
      if (isKept()) favourites.delete(voice.voice_id);
      else favourites.add(voice.voice_id);
      setting(FAVOURITES, [...favourites]);
      star.setAttribute("aria-pressed", String(isKept()));
    }, { "aria-pressed": String(isKept()) });
    return h("li.voice-card", input,
      h("label", { htmlFor: input.id }, portrait(voice),
        h("span.voice-text",
          h("strong", voice.name, " ", isOwn(voice) ? h("span.badge.own", t("voices.own")) : !voice.name.endsWith(tier) && h("span.badge", tier)),
          h("span.voice-facts", facts),
          voice.description && h("span.voice-about", voice.description))),
      h("div.voice-actions", previewButton(() => voice, place), star));
  };
  const draw = () => {
    const found = all.filter(fits);
    const isAll = found.length === all.length;
    count.textContent = all.length ? t(found.length ? "voices.found" : "voices.none", { n: found.length }) : t("voices.none_at_all");
    clear.hidden = isAll;
    cards.replaceChildren(...(isAll && !isLibrary ? [h("ul.voice-cards", autoCard())] : []), ...byLanguage(found).flatMap(([title, voices]) =>
      [h("h3", title), h("ul.voice-cards", { "aria-label": title }, voices.map(cardOf))]));
  };
  const fill = (list) => {
    all = list;
    const refill = (box, pairs) => {
      const before = box.value;
      box.replaceChildren(new Option(t("word.all"), ""), ...pairs.map(([value, text]) => new Option(text, value)));
      if (pairs.some(([value]) => value === before)) box.value = before;
    };
    refill(language, voiceLanguages(all));
    refill(model, [...new Set(all.map((voice) => voice.model))].map((one) => [one, one]));
    own.hidden = !all.some(isOwn);
    if (chosen && !all.some((voice) => voice.voice_id === chosen)) chosen = "";
    draw();
    onchange(made.voice);
  };

  search.addEventListener("input", draw);
  for (const box of [language, gender, model, favourite.box, own.box]) box.addEventListener("change", draw);
  Object.defineProperty(made, "voice", { get: () => all.find((voice) => voice.voice_id === chosen) || null });
  // Takes a voice chosen elsewhere, such as under Voices.
  made.take = (id) => {
    choose(id);
    draw();
    cards.querySelector("input:checked")?.scrollIntoView({ block: "nearest" });
  };
  made.focus = () => {
    search.focus({ preventScroll: true });
    made.closest("section").scrollIntoView({ block: "nearest" });
  };
  made.ready = follow("voices", fill, place);
  return made;
}
