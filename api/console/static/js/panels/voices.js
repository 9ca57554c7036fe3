// Voices: the workspace's own, and the creation of new ones.
import { ask, call, formOf, upload } from "../api.js";
import { player } from "../audio/player.js";
import { codeButton } from "../code.js";
import { number, t, usd } from "../i18n.js";
import { previewButton } from "../previews.js";
import { go } from "../router.js";
import { about, price } from "../session.js";
import { setting } from "../store.js";
import { act, button, card, chosenIn, drawRows, explained, field, form, formDialog, h, panelHead, removed, select, status, statusBadge, submitButton } from "../ui.js";
import { changed, fillVoiceLanguages, refreshCredit, told, watch } from "../work.js";
import { voicePicker } from "./speak/voices.js";
import { recordings } from "./voices/recordings.js";
import { showReport } from "./voices/report.js";

const LOOK_MS = 5000;
const LATE_MS = 60_000; // a voice that is later than expected by this much is waiting for the machine

export default function makeVoices() {
  const place = status();
  const making = status();
  const list = h("div.stack", { id: "own-voices" });
  const name = h("input", { name: "name", maxLength: 200, required: true, autocomplete: "off" });
  const description = h("input", { name: "description", maxLength: 1000, autocomplete: "off" });
  const language = select([["", t("own.language_auto")]], { name: "language" });
  const gender = select([["neutral", t("voices.neutral")], ["female", t("voices.female")], ["male", t("voices.male")]], { name: "gender" });
  const consent = h("textarea", { name: "consent", rows: 2, maxLength: 2000, required: about.consent !== "off" });
  const takes = recordings();
  const known = new Map(); // status by id
  const isSpoken = about.consent === "spoken";
  let sentence = null;

  const fields = () => ({ name: "Ann", ...chosenIn(name, description, language, gender, consent), ...(sentence && { consent_token: sentence.consent_token }) });

  const read = h("div.stack", { hidden: true });
  const withoutSentence = button(t("own.sentence_none"), () => {
    dropSentence();
    getSentence.focus();
  }, { kind: "small" });
  const dropSentence = () => {
    sentence = null;
    read.hidden = true;
  };
  const getSentence = button(t("own.sentence_get"), act(making, async () => {
    sentence = await ask("/consent-sentences", { method: "POST", json: language.value ? { language: language.value } : {} });
    read.hidden = false;
    read.replaceChildren(h("p.read-aloud", sentence.sentence), h("p.hint", t("own.sentence_about")), ...(isSpoken ? [] : [h("div.actions", withoutSentence)]));
  }), { kind: "small" });

  const fitLanguage = () => {
    const { value, selectedOptions: [{ text }] } = language;
    takes.read(/^(en.*)?$/.test(value) ? "" : text);
    if (!sentence) return;
    dropSentence(); // the sentence is in another language
    getSentence.click();
  };
  language.addEventListener("change", fitLanguage);

  const make = form(making, async () => {
    if (consent.required && !consent.value.trim()) throw explained(t("own.consent_needed"));
    const files = takes.files();
    const sent = new Map([name, description, language, gender, consent].map((one) => [one, one.value]));
    const used = sentence;
    if (isSpoken && !sentence) throw explained(t("own.sentence_needed"));
    making.say(t("own.checking"));
    const voice = await upload("/voices", formOf(fields(), ...files.map((file) => ["files", file])), told(making, t("own.checking")));
    making.say(t("own.begun", { name: voice.name }));
    // What has changed meanwhile is for the next voice.
    for (const [one, value] of sent) if (one.value === value) one.value = one === gender ? "neutral" : "";
    takes.clear(files);
    if (sentence === used) {
      dropSentence();
      fitLanguage();
    }
    refreshCredit();
    await watched.look();
    list.querySelector(`[data-id="${voice.id}"]`)?.scrollIntoView({ block: "center" });
  },
  h("div.fields", field(t("word.name"), name), field(t("own.about"), description), field(t("word.language"), language), field(t("word.gender"), gender)),
  field(t(consent.required ? "own.consent" : "own.consent_optional"), consent, { hint: t("own.consent_hint") }),
  h("div.stack", h("div.row.start", h("h3", t(isSpoken ? "own.sentence" : "own.sentence_optional")), getSentence), read),
  h("h3", t("own.recordings")), takes,
  h("p.hint", t("own.price", { price: usd(price("custom_voice", 1)) })),
  submitButton(t("own.go", { price: usd(price("custom_voice", 1)) }), { id: "make-voice" }), making);

  const ends = setting("voice_ends") || {}; // earliest estimates by id: the time left never rises, even after a reload
  const remaining = ({ id, progress, estimated_completion }) => {
    const percent = Math.round(progress * 100);
    const end = Math.max(new Date(estimated_completion), Date.now());
    if (!ends[id] && end <= Date.now()) return t("own.left_unknown", { percent });
    ends[id] = Math.min(end, ends[id] || end);
    setting("voice_ends", ends);
    if (end > ends[id] + LATE_MS) return t("own.left_busy", { percent });
    const n = Math.ceil((ends[id] - Date.now()) / 60000);
    return n > 0 ? t("own.left", { percent, n }) : t("own.left_late", { percent });
  };
  const row = (voice) => {
    const isMade = voice.status === "processing";
    const head = h("div.row",
      h("h3", voice.name, statusBadge(voice.status, t(`own.status.${voice.status}`)),
        voice.status === "ready" && voice.similarity !== null && h("span.hint", t("own.likeness", { value: number(voice.similarity, 2) }))),
      h("div.actions",
        voice.status === "ready" && previewButton(() => ({ ...voice, voice_id: voice.id, labels: voice }), place),
        voice.status === "ready" && button(t("own.try"), () => go(`speak/${voice.id}`), { icon: "speak", kind: "small" }),
        !voice.owner && button(t("own.rename"), () => rename(voice), { kind: "small", label: t("own.rename_of", { name: voice.name }) }),
        !isMade && !voice.owner && button(t("own.report"), act(place, () => showReport(voice)), { kind: "small", label: t("own.report_of", { name: voice.name }) }),
        !voice.owner && button(t("action.delete"), act(place, () => remove(voice)), { icon: "trash", kind: "small", label: t("action.delete_of", { name: voice.name }) })));
    const made = h("article.voice-own", { data: { id: voice.id } }, head, h("p.hint", [voice.owner && t("own.shared", { name: voice.owner }), voice.language, t(`voices.${voice.gender}`), voice.description].filter(Boolean).join(" · ")));
    if (isMade) {
      const bar = h("progress", { max: 1, "aria-label": t("own.progress", { name: voice.name }) });
      const left = h("p.hint");
      const sound = player({ label: t("own.preview_of", { name: voice.name }) });
      const hear = button(t("own.preview"), act(place, async () => {
        sound.load(await (await call(`/voices/${voice.id}/preview`)).blob());
        sound.play();
      }), { icon: "play", kind: "small" });
      made.append(bar, left, hear, sound);
      made.update = (now) => {
        bar.value = now.progress;
        hear.hidden = !now.preview_at;
        left.textContent = [remaining(now), now.waiting].filter(Boolean).join(" · ");
      };
    }
    if (voice.status === "failed") made.append(h("p.failed", voice.reason || ""));
    return made;
  };
  const rename = (voice) => {
    const input = h("input", { value: voice.name, maxLength: 200, required: true, autocomplete: "off" });
    formDialog(t("own.rename_of", { name: voice.name }), async (close) => {
      await ask(`/voices/${voice.id}`, { method: "PATCH", json: { name: input.value.trim() } });
      await watched.look();
      close();
      await changed("voices");
    }, [field(t("word.name"), input)], t("own.rename"), { kind: "narrow" });
    input.focus();
  };
  const remove = async (voice) => {
    const key = voice.status === "processing" ? "own.delete_ask_unfinished" : "own.delete_ask";
    if (!(await removed(`/voices/${voice.id}`, t("action.delete_of", voice), t(key, voice)))) return;
    await watched.look();
    list.querySelector("button")?.focus();
    if (voice.status === "ready") await changed("voices");
    refreshCredit();
  };

  const watched = watch("voices", place, () => ask("/voices?limit=100"), ({ data: voices }) => {
    drawRows(list, voices, row, (one) => `${one.id} ${one.status} ${one.name}`);
    for (const voice of voices) {
      if (known.get(voice.id) === "processing" && voice.status === "ready") {
        place.say(t("own.ready", { name: voice.name }));
        changed("voices");
        refreshCredit();
      }
      known.set(voice.id, voice.status);
    }
    // Continues while another panel is open, so that Speak has a voice as soon as it is ready.
    if (voices.every((one) => one.status !== "processing")) return 0;
    return watched.isShown ? LOOK_MS : 3 * LOOK_MS;
  });
  fillVoiceLanguages(language, { code: "en-GB", name: t("own.british") });

  const hearing = status();
  const choose = button(t("own.try"), () => go(`speak/${library.voice.voice_id}`), { icon: "speak", hidden: true });
  const library = voicePicker({ place: hearing, isLibrary: true, onchange: (voice) => { choose.hidden = !voice; } });

  const requests = () => [{ title: t("own.make"), path: "/voices", form: fields(), files: takes.names().map((one) => ["files", one]) }];
  const element = h("div.panel.voices",
    panelHead(t("nav.voices"), t("own.lead"), codeButton(requests)),
    card(t("own.list"), place, h("p.empty.none", t("own.none")), list),
    card(t("own.make"), make),
    card(t("own.all"), library, hearing, choose));
  return { element, show: watched.show };
}
