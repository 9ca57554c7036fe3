// Lists of voices by language with previews, for Speak, Talk and Voices.
import { ask } from "./api.js";
import { playShort, stopShort } from "./audio/player.js";
import { fromBase64 } from "./audio/pcm.js";
import { t } from "./i18n.js";
import { about, on } from "./session.js";
import { get, put } from "./store.js";
import { busy, h, iconButton, select, setButton } from "./ui.js";
import { follow, refreshCredit } from "./work.js";

const sentences = about.previews || {};
const cache = new Map(); // blobs of previews by voice
on("leave", () => cache.clear(), true);
let sounding = null; // the button whose preview is played

export const letters = (language) => [...(sentences[language] || sentences.en)].length;
export const isOwn = (voice) => voice.voice_type === "cloned";
export const gradeOf = (voice) => (voice.grade ? t("voices.grade", { grade: t(`language.${voice.grade}`) }) : t("voices.ungraded"));

// [name, voices] of each language: the workspace's own voices, then the browser's languages, then the others by
// name. The clearest voices of a language come first.
export function byLanguage(all) {
  const mine = navigator.languages.map((tag) => tag.split("-")[0]);
  const groups = new Map();
  const clearness = (voice) => ["good", "fair", "weak", null].indexOf(voice.grade);
  for (const voice of [...all].sort((one, other) => clearness(one) - clearness(other))) {
    const { language, language_name } = voice.labels;
    const at = mine.indexOf(language);
    const [key, rank, name] = isOwn(voice) ? ["", -1, t("voices.own")] : [language, at < 0 ? mine.length : at, language_name];
    if (!groups.has(key)) groups.set(key, { rank, name, voices: [] });
    groups.get(key).voices.push(voice);
  }
  return [...groups.values()].sort((one, other) => one.rank - other.rank || one.name.localeCompare(other.name)).map(({ name, voices }) => [name, voices]);
}

async function previewOf(voice) {
  const kept = cache.get(voice.voice_id) || (await get("previews", voice.voice_id))?.blob;
  if (kept) return cache.set(voice.voice_id, kept).get(voice.voice_id);
  const text = sentences[voice.labels.language] || sentences.en;
  const spoken = await ask("/tts-synthesize", { method: "POST", json: { text, voice_id: voice.voice_id } });
  const blob = new Blob([fromBase64(spoken.audio_base64)], { type: "audio/mpeg" });
  cache.set(voice.voice_id, blob);
  put("previews", { id: voice.voice_id, blob });
  refreshCredit();
  return blob;
}

// A button that plays the preview of `current()`, and stops it.
export function previewButton(current, place) {
  const made = iconButton("play", t("voices.preview", { name: current()?.name || "" }), () => busy(made, async () => {
    const wasMine = sounding === made;
    const voice = current();
    stopShort();
    if (wasMine || !voice) return;
    place.clear();
    try {
      const blob = await previewOf(voice);
      sounding = made;
      setButton(made, "stop", "", t("voices.preview_stop", { name: voice.name }));
      await playShort(blob, () => {
        setButton(made, "play", "", t("voices.preview", { name: voice.name }));
        if (sounding === made) sounding = null;
      });
    } catch (error) {
      place.fail(error, () => made.click());
    }
  }));
  return made;
}

// A `select` of voices, whose first choice lets the service decide, and its `preview` button.
export function voiceSelect([first, text], place, properties = {}) {
  const box = select([[first, text]], properties);
  let all = [];
  const chosen = () => all.find((voice) => voice.voice_id === box.value);
  const fit = () => {
    box.preview.hidden = !chosen();
    setButton(box.preview, "play", "", t("voices.preview", { name: chosen()?.name || "" }));
  };
  const option = (voice) => new Option(voice.grade ? `${voice.name} (${t(`language.${voice.grade}`)})` : voice.name, voice.voice_id);
  box.preview = previewButton(chosen, place);
  const fill = (found) => {
    const before = box.value;
    all = found;
    const groups = byLanguage(all).map(([label, voices]) => h("optgroup", { label }, voices.map(option)));
    box.replaceChildren(new Option(text, first), ...groups);
    box.value = [...box.options].some((one) => one.value === before) ? before : first;
    fit();
  };
  box.addEventListener("change", () => { stopShort(); fit(); });
  fit();
  follow("voices", fill);
  return box;
}
