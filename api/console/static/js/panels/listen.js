// Listen: files and the microphone, as text.
import { codeButton } from "../code.js";
import { t, usd } from "../i18n.js";
import { RECORDING_MB, RECORDING_MINUTES } from "../limits.js";
import { price } from "../session.js";
import { setting } from "../store.js";
import { check, chosenIn, field, folded, h, panelHead, select, tabs } from "../ui.js";
import { fillLanguages } from "../work.js";
import { liveListening, startMessage } from "./listen/live.js";
import { dropZone, fileQueue } from "./listen/queue.js";
import { transcriptCard } from "./listen/transcript.js";

const PROFILES = ["general", "phone_call", "meeting", "medical"];

export default function makeListen() {
  const language = select([["", t("listen.detect")]], { name: "language" });
  const profile = select(PROFILES.map((one) => [one, t(`listen.model.${one}`)]), { name: "model" });
  const speakers = check(t("listen.speakers"), { name: "speaker_labels" });
  const channels = check(t("listen.channels"), { name: "multichannel" });
  const translate = check(t("listen.translate"), { name: "translate" });
  const numerals = check(t("listen.numerals"), { name: "numerals" });
  const masked = check(t("listen.profanity"), { name: "profanity_filter" });
  const punctuate = check(t("listen.punctuate"), { name: "punctuate", checked: true });
  const terms = h("textarea", { name: "keyterms", rows: 2, value: setting("keyterms") || "", spellcheck: false });
  terms.addEventListener("input", () => setting("keyterms", terms.value));
  const transcript = transcriptCard();
  let lastFile = "recording.mp3";
  let shown = null;

  // How a transcript is written; what is as usual is left out.
  const style = () => {
    const keyterms = terms.value.split(/[,\n]/).map((one) => one.trim()).filter(Boolean);
    return { ...(keyterms.length && { keyterms }), ...chosenIn(numerals.box, masked.box), ...(!punctuate.box.checked && { punctuate: false }) };
  };
  const options = () => {
    if (translate.box.checked) return { response_format: "verbose_json" };
    return { timestamps: true, ...chosenIn(profile, language, speakers.box, channels.box), ...style() };
  };
  const path = () => (translate.box.checked ? "/openai/v1/audio/translations" : "/stt");
  const queue = fileQueue({
    options,
    path,
    onshow: (item) => {
      shown = item;
      queue.mark(item);
      transcript.show({ name: item.file.name, result: item.result, blob: item.file });
    },
    onremove: (item) => item === shown && transcript.clear(),
  });
  const about = t("listen.drop_about", { mb: RECORDING_MB, minutes: RECORDING_MINUTES, price: usd(price("stt_second", 60)) });
  const drop = dropZone(t("listen.drop"), about, (files) => {
    lastFile = files.at(-1).name;
    queue.add(files);
  });
  const live = liveListening({ language: () => language.value, style });
  const ofFiles = h("div.checks", speakers, channels, translate);
  // A translation has no other options; channels are speakers already.
  const fit = () => {
    const [isEnglish, isMicrophone] = [translate.box.checked, modes.chosen === "microphone"];
    ofFiles.hidden = isMicrophone;
    for (const one of [language, profile, terms, numerals.box, masked.box, punctuate.box, speakers.box, channels.box]) one.disabled = isEnglish && !isMicrophone;
    speakers.box.disabled ||= channels.box.checked;
    channels.box.disabled ||= speakers.box.checked;
    translated.hidden = !isEnglish || isMicrophone;
  };
  const translated = h("p.hint", { role: "status", hidden: true }, t("listen.translate_about"));
  const settings = folded(t("word.options"),
    h("div.fields", field(t("word.language"), language), field(t("listen.model"), profile),
      field(t("listen.terms"), terms, { hint: t("listen.terms_hint") })),
    h("div.checks", numerals, masked, punctuate), ofFiles, translated);
  // Both ways share the options, and each has its text beside them.
  const sources = { files: [h("section.card", { "aria-label": t("listen.files") }, drop, queue), transcript], microphone: [live, live.transcript] };
  const pages = Object.entries(sources).map(([name, [source, text]]) => [name, t(`listen.${name}`), h("div.columns", h("div.column", source), text)]);
  const modes = tabs(t("listen.modes"), pages, (name) => {
    sources[name][0].after(settings);
    fit();
  });
  modes.choose("files");
  for (const { box } of [speakers, channels, translate]) box.addEventListener("change", fit);
  fillLanguages(language);

  const requests = () => {
    const { keyterms } = style();
    const added = keyterms && !translate.box.checked ? [`    extra_body={"keyterms": ${JSON.stringify(keyterms)}},`] : [];
    const work = translate.box.checked ? "translations" : "transcriptions";
    const openai = [`answer = client.audio.${work}.create(`, `    model="whisper-1", file=open(${JSON.stringify(lastFile)}, "rb"),`, ...added, ")", "print(answer.text)"].join("\n");
    return [
      { title: t("listen.files"), path: path(), form: options(), files: [[translate.box.checked ? "file" : "audio", lastFile]], openai },
      { title: t("mic.device"), socket: "/ws/stt", messages: [startMessage(language.value, style()), { type: "audio", audio: "<base64>", encoding: "linear", sample_rate: 24000 }, { type: "stop" }] },
    ];
  };
  const element = h("div.panel.listen",
    panelHead(t("nav.listen"), t("listen.lead"), codeButton(requests)), modes);
  return {
    element,
    show: ([mode] = []) => mode && modes.choose(mode),
    leave: () => {
      queue.stop();
      live.leave();
      transcript.clear();
    },
  };
}
