// Listen: files and the microphone, as text.
import { codeButton } from "../code.js";
import { t, usd } from "../i18n.js";
import { price } from "../session.js";
import { card, check, field, h, panelHead, select, tabs } from "../ui.js";
import { languages } from "../work.js";
import { liveListening, startMessage } from "./listen/live.js";
import { MOST_MB, MOST_MINUTES, dropZone, fileQueue } from "./listen/queue.js";
import { transcriptCard } from "./listen/transcript.js";

const PROFILES = ["general", "phone_call", "meeting", "medical"];

export default function makeListen() {
  const language = select([["", t("listen.detect")]], { name: "language" });
  const profile = select(PROFILES.map((one) => [one, t(`listen.model.${one}`)]), { name: "model" });
  const speakers = check(t("listen.speakers"), { name: "speaker_labels" });
  const transcript = transcriptCard();
  let lastFile = "recording.mp3";
  let shown = null;

  const options = () => {
    const chosen = { model: profile.value, timestamps: true, speaker_labels: speakers.box.checked };
    if (language.value) chosen.language = language.value;
    return chosen;
  };
  const queue = fileQueue({
    options,
    onshow: (item) => {
      shown = item;
      queue.mark(item);
      transcript.show({ name: item.file.name, result: item.result, blob: item.file });
    },
    onremove: (item) => item === shown && transcript.clear(),
  });
  const about = t("listen.drop_about", { mb: MOST_MB, minutes: MOST_MINUTES, price: usd(price("stt_second", 60)) });
  const drop = dropZone(t("listen.drop"), about, (files) => {
    if (files.length) lastFile = files.at(-1).name;
    queue.add(files);
  });
  const live = liveListening({ language: () => language.value });
  const settings = h("div.fields", field(t("listen.language"), language), field(t("listen.model"), profile), speakers);
  const files = h("div.columns", card(t("listen.files"), drop, queue), transcript);
  const modes = tabs(t("listen.modes"), [["files", t("listen.files"), files], ["microphone", t("listen.microphone"), live]]);
  modes.choose("files");
  languages().then((all) => language.append(...all.map((one) => new Option(one.name, one.code))), () => {});

  const requests = () => {
    const openai = ["answer = client.audio.transcriptions.create(", `    model="whisper-1", file=open(${JSON.stringify(lastFile)}, "rb")`, ")", "print(answer.text)"].join("\n");
    return [
      { title: t("listen.files"), path: "/stt", form: options(), files: [["audio", lastFile]], openai },
      { title: t("listen.microphone"), socket: "/ws/stt", messages: [startMessage(language.value), { type: "audio", audio: "<base64>", encoding: "linear", sample_rate: 24000 }, { type: "stop" }] },
    ];
  };
  const element = h("div.panel.listen",
    panelHead(t("nav.listen"), t("listen.lead"), codeButton(requests)),
    h("section.card", { "aria-label": t("speak.settings") }, settings), modes);
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
