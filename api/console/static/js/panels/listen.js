// Listen: files and the microphone, as text.
import { codeButton } from "../code.js";
import { t, usd } from "../i18n.js";
import { limits, on, price } from "../session.js";
import { check, field, folded, h, panelHead, tabs } from "../ui.js";
import { liveListening, startMessage } from "./listen/live.js";
import { transcriptOptions } from "./listen/options.js";
import { dropZone, fileQueue } from "./listen/queue.js";
import { transcriptCard } from "./listen/transcript.js";

export default function makeListen() {
  const written = transcriptOptions();
  const { language, speakers, channels, style } = written;
  const translate = check(t("listen.translate"), { name: "translate" });
  const transcript = transcriptCard();
  let lastFile = "recording.mp3";
  let shown = null;

  const options = () => {
    if (translate.box.checked) return { response_format: "verbose_json" };
    return { timestamps: true, ...written.chosen() };
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
  const about = t("listen.drop_about", { mb: limits.recording_mb, minutes: limits.recording_minutes, price: usd(price("stt_second", 60)) });
  const drop = dropZone(t("listen.drop"), about, (files) => {
    lastFile = files.at(-1).name;
    queue.add(files);
  });
  const live = liveListening({ language: () => language.value, style });
  const ofFiles = h("div.checks", speakers, channels, translate);
  // A translation has no other options; with channels, speakers are already known.
  const fit = () => {
    const [isEnglish, isMicrophone] = [translate.box.checked, modes.chosen === "microphone"];
    ofFiles.hidden = isMicrophone;
    for (const one of written.controls) one.disabled = isEnglish && !isMicrophone;
    speakers.box.disabled ||= channels.box.checked;
    channels.box.disabled ||= speakers.box.checked;
    translated.hidden = !isEnglish || isMicrophone;
  };
  const translated = h("p.hint", { role: "status", hidden: true }, t("listen.translate_about"));
  const settings = folded(t("word.options"),
    h("div.fields", field(t("word.language"), language), written.fields), written.checks, ofFiles, translated);
  // Files and microphone share the options, but each has a text of its own.
  const sources = { files: [h("section.card", { "aria-label": t("listen.files") }, drop, queue), transcript], microphone: [live, live.transcript] };
  const pages = Object.entries(sources).map(([name, [source, text]]) => [name, t(`listen.${name}`), h("div.columns", h("div.column", source), text)]);
  const modes = tabs(t("listen.modes"), pages, (name) => {
    sources[name][0].after(settings);
    fit();
  }, "listen");
  for (const { box } of [speakers, channels, translate]) box.addEventListener("change", fit);

  const requests = () => {
    const { keyterms } = style();
    const added = keyterms && !translate.box.checked ? [`    extra_body={"keyterms": ${JSON.stringify(keyterms)}},`] : [];
    const work = translate.box.checked ? "translations" : "transcriptions";
    const openai = [`answer = client.audio.${work}.create(`, `    model="whisper-1", file=open(${JSON.stringify(lastFile)}, "rb"),`, ...added, ")", "print(answer.text)"].join("\n");
    return [
      { title: t("listen.files"), path: path(), form: options(), files: [[translate.box.checked ? "file" : "audio", lastFile]], openai },
      { title: t("listen.microphone"), socket: "/ws/stt", messages: [startMessage(language.value, style()), { type: "audio", audio: "<base64>", encoding: "linear", sample_rate: 24000 }, { type: "stop" }] },
    ];
  };
  const element = h("div.panel.listen",
    panelHead(t("nav.listen"), t("listen.lead"), codeButton(requests)), modes);
  on("leave", transcript.clear);
  return { element, show: modes.show };
}
