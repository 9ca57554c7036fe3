// Voices as cards, with search, filters, favourites and previews.
import { ask } from "../../api.js";
import { playShort, stopShort } from "../../audio/player.js";
import { fromBase64 } from "../../audio/pcm.js";
import { t, usd } from "../../i18n.js";
import { icon } from "../../icons.js";
import { on, price } from "../../session.js";
import { get, put, setting } from "../../store.js";
import { busy, button, check, field, h, iconButton, newId, select, setButton } from "../../ui.js";
import { refreshCredit, voiceLanguages, voices as allVoices } from "../../work.js";

const SENTENCES = {
  en: "Hello! This is how I sound when I read to you.",
  de: "Hallo! So klinge ich, wenn ich dir etwas vorlese.",
  fr: "Bonjour ! Voici ma voix quand je vous lis un texte.",
  es: "¡Hola! Así sueno cuando te leo un texto.",
  it: "Ciao! Ecco come suono quando ti leggo un testo.",
  pt: "Olá! É assim que eu soo quando leio um texto.",
  nl: "Hallo! Zo klink ik als ik je iets voorlees.",
  pl: "Cześć! Tak brzmię, kiedy czytam ci tekst.",
  hi: "नमस्ते! जब मैं पढ़ती हूँ तो मेरी आवाज़ ऐसी लगती है।",
  ar: "مرحبا! هكذا يبدو صوتي عندما أقرأ لك.",
  ja: "こんにちは。私の声はこのように聞こえます。",
  zh: "你好！我朗读的时候，声音是这样的。",
  bn: "নমস্কার! আমার কণ্ঠ এমন শোনায়।",
  gu: "નમસ્તે! મારો અવાજ આવો છે.",
  kn: "ನಮಸ್ಕಾರ! ನನ್ನ ಧ್ವನಿ ಹೀಗಿದೆ.",
  ml: "നമസ്കാരം! എന്റെ ശബ്ദം ഇങ്ങനെയാണ്.",
  mr: "नमस्कार! माझा आवाज असा आहे.",
  pa: "ਸਤ ਸ੍ਰੀ ਅਕਾਲ! ਮੇਰੀ ਆਵਾਜ਼ ਇਸ ਤਰ੍ਹਾਂ ਹੈ।",
  ta: "வணக்கம்! என் குரல் இப்படி இருக்கும்.",
  te: "నమస్కారం! నా గొంతు ఇలా ఉంటుంది.",
};
const FAVOURITES = "favourites";
const cache = new Map(); // blobs of previews by voice

const letters = (language) => [...(SENTENCES[language] || SENTENCES.en)].length;

async function previewOf(voice) {
  const kept = cache.get(voice.voice_id) || (await get("previews", voice.voice_id))?.blob;
  if (kept) return cache.set(voice.voice_id, kept).get(voice.voice_id);
  const text = SENTENCES[voice.labels.language] || SENTENCES.en;
  const spoken = await ask("/tts-synthesize", { method: "POST", json: { text, voice_id: voice.voice_id } });
  const blob = new Blob([fromBase64(spoken.audio_base64)], { type: "audio/mpeg" });
  cache.set(voice.voice_id, blob);
  put("previews", { id: voice.voice_id, blob });
  refreshCredit();
  return blob;
}

// A picture without a file: a shape and colours by the voice's name.
function portrait(voice) {
  const sum = [...voice.name].reduce((all, one) => (all * 31 + one.codePointAt(0)) % 997, 7);
  const made = h("span.portrait", { "aria-hidden": "true" }, [...voice.name][0].toUpperCase());
  made.style.setProperty("--hue", String(sum % 360));
  return made;
}

export function voicePicker({ place, onchange = () => {} }) {
  const name = newId("voice");
  const favourites = new Set(setting(FAVOURITES) || []);
  const filters = { text: "", language: "", gender: "", model: "", favourite: false, own: false };
  const search = h("input", { type: "search", placeholder: t("voices.search_hint"), autocomplete: "off" });
  const language = select([["", t("word.all")]]);
  const gender = select([["", t("word.all")], ["female", t("voices.female")], ["male", t("voices.male")]]);
  const model = select([["", t("word.all")]]);
  const favourite = check(t("voices.favourites"));
  const own = check(t("voices.own"));
  const count = h("p.hint", { role: "status" });
  const cards = h("ul.voice-cards");
  const clear = button(t("voices.clear"), () => reset(), { kind: "small" });
  let all = [];
  let chosen = setting("voice") || "";
  let sounding = null;

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
    apply();
    search.focus();
  };
  const apply = () => {
    Object.assign(filters, {
      text: search.value.trim().toLowerCase(), language: language.value, gender: gender.value,
      model: model.value, favourite: favourite.box.checked, own: own.box.checked,
    });
    draw();
  };
  const fits = (voice) => {
    const { labels } = voice;
    const words = [voice.name, voice.description, labels.language_name, labels.accent, labels.gender, voice.model, ...voice.categories].join(" ").toLowerCase();
    return (!filters.language || labels.language === filters.language)
      && (!filters.gender || labels.gender === filters.gender)
      && (!filters.model || voice.model === filters.model)
      && (!filters.favourite || favourites.has(voice.voice_id))
      && (!filters.own || !voice.is_native)
      && filters.text.split(/\s+/).every((word) => words.includes(word));
  };
  const choose = (id) => {
    chosen = id;
    setting("voice", id);
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
    const facts = [labels.language_name, t(`voices.${labels.gender}`), labels.accent !== "Neutral" && labels.accent].filter(Boolean).join(" · ");
    const listen = iconButton("play", t("voices.preview", { name: voice.name }), () => preview(voice, listen));
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
          h("strong", voice.name, " ", h("span.badge", { class: voice.is_native ? "" : "own" }, voice.is_native ? voice.model.split(" ").at(-1) : t("voices.own"))),
          h("span.voice-facts", facts),
          voice.description && h("span.voice-about", voice.description))),
      h("div.voice-actions", listen, star));
  };
  const preview = (voice, listen) => busy(listen, async () => {
    const wasMine = sounding === listen;
    stopShort();
    if (wasMine) return;
    place.clear();
    try {
      const blob = await previewOf(voice);
      sounding = listen;
      setButton(listen, "stop", "", t("voices.preview_stop", { name: voice.name }));
      await playShort(blob, () => {
        setButton(listen, "play", "", t("voices.preview", { name: voice.name }));
        if (sounding === listen) sounding = null;
      });
    } catch (error) {
      place.fail(error, () => preview(voice, listen));
    }
  });

  const draw = () => {
    const found = all.filter(fits);
    const isAll = found.length === all.length;
    count.textContent = all.length ? t(found.length ? "voices.found" : "voices.none", { n: found.length }) : t("voices.none_at_all");
    clear.hidden = isAll;
    cards.replaceChildren(...(isAll ? [autoCard()] : []), ...found.map(cardOf));
  };
  const fill = (list) => {
    const mine = navigator.language.split("-")[0];
    const rank = (voice) => (voice.is_native ? 1 : 0) + (voice.labels.language === mine ? 0 : 0.5);
    all = [...list].sort((one, other) => rank(one) - rank(other)); // yours, then those of the browser's language
    const refill = (box, pairs) => {
      const before = box.value;
      box.replaceChildren(new Option(t("word.all"), ""), ...pairs.map(([value, text]) => new Option(text, value)));
      if (pairs.some(([value]) => value === before)) box.value = before;
    };
    refill(language, voiceLanguages(all));
    refill(model, [...new Set(all.map((voice) => voice.model))].map((one) => [one, one]));
    own.hidden = all.every((voice) => voice.is_native);
    if (chosen && !all.some((voice) => voice.voice_id === chosen)) chosen = "";
    apply();
    onchange(made.voice);
  };

  search.addEventListener("input", apply);
  for (const box of [language, gender, model, favourite.box, own.box]) box.addEventListener("change", apply);
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
  const stopListening = on("voices", fill);
  made.leave = () => {
    stopListening();
    cache.clear();
    stopShort();
  };
  made.ready = allVoices().then(fill, (error) => place.fail(error));
  return made;
}
