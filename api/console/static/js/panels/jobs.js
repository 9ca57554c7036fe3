// Jobs: long recordings as text, and long texts as audio.
import { formOf, upload } from "../api.js";
import { codeButton } from "../code.js";
import { clock, t, usd } from "../i18n.js";
import { DOCUMENT_MB, JOB_CHARACTERS, JOB_HOURS } from "../limits.js";
import { voiceSelect } from "../previews.js";
import { on, price } from "../session.js";
import { card, chosenIn, explained, field, form, h, panelHead, select, status, submitButton, tabs } from "../ui.js";
import { told } from "../work.js";
import { factsOf, partsOf } from "./jobs/upload.js";
import { jobList } from "./jobs/list.js";
import { jobResult } from "./jobs/result.js";
import { transcriptOptions } from "./listen/options.js";
import { RECORDINGS, checkKind, dropZone, lengthOf } from "./listen/queue.js";

const TEXTS = ".txt,.md,.markdown,.epub,.ssml,.xml";

// The text of a file, or an empty one where only the service reads it, as an EPUB or another encoding. Throws an explained error where the service cannot read the file.
async function textOf(file) {
  const { name, size } = file;
  if (size > DOCUMENT_MB * 2 ** 20) throw explained(t("jobs.document_too_large", { name, mb: DOCUMENT_MB }));
  if (/\.epub$/i.test(name)) return "";
  const isText = TEXTS.split(",").some((end) => name.toLowerCase().endsWith(end));
  if (!isText) throw explained(t("jobs.kind_of_text", { name }));
  return file.arrayBuffer().then((bytes) => new TextDecoder("utf-8", { fatal: true }).decode(bytes)).catch(() => "");
}

// A place for one file. `look` gives its amount, or refuses it with an error; `tell` shows what the amount costs.
function chooser(kind, accept, place, look, tell) {
  const name = h("p.chosen-file", { role: "status" });
  const keep = (file, { amount = null, refusal = null } = {}) => {
    Object.assign(made, { file, amount, refusal });
    name.textContent = file?.name || "";
    tell(amount);
  };
  const made = dropZone(t(`jobs.drop.${kind}`), t(`jobs.drop_about.${kind}`, { hours: JOB_HOURS, n: JOB_CHARACTERS }), async ([file]) => {
    place.clear();
    keep(file);
    const result = await look(file).then((amount) => ({ amount }), (refusal) => ({ refusal }));
    if (made.file !== file) return; // another one was chosen meanwhile
    keep(result.refusal ? null : file, result);
    if (result.refusal) place.fail(result.refusal);
  }, { multiple: false, accept });
  made.append(name);
  made.clear = () => keep(null);
  made.clear();
  made.wanted = () => {
    if (!made.file) throw made.refusal || explained(t("jobs.no_file"));
    return made.file;
  };
  return made;
}

export default function makeJobs() {
  const place = status();
  const result = jobResult();
  const list = jobList({ place, result });

  const transcribing = status();
  const written = transcriptOptions();
  const { channels } = written;
  const hourCost = t("jobs.price.transcription", { price: usd(price("stt_second", 3600)) });
  const cost = h("p.hint", { role: "status" }, hourCost);
  let facts = null;
  const tellCost = (seconds) => {
    const paid = seconds * (channels.box.checked ? 2 : 1);
    cost.textContent = seconds ? t("jobs.about.transcription", { length: clock(seconds), price: usd(price("stt_second", paid)) }) : hourCost;
  };
  const recording = chooser("transcription", RECORDINGS, transcribing, async (file) => {
    checkKind(file);
    facts = factsOf(file);
    facts.catch(() => {}); // it is awaited below, and when the file is sent
    const length = await lengthOf(file);
    await facts;
    if (length > JOB_HOURS * 3600) throw explained(t("jobs.too_long", { name: file.name, length: clock(length), hours: JOB_HOURS }));
    return length;
  }, tellCost);
  channels.box.addEventListener("change", () => tellCost(recording.amount));
  const transcribe = form(transcribing, async () => {
    const file = recording.wanted();
    const kept = await facts;
    const body = formOf({ ...written.chosen(), name: file.name, parts: partsOf(kept) });
    const job = await upload("/jobs/transcriptions", body, told(transcribing));
    recording.clear();
    await list.upload(job.id, kept, file, transcribing);
    transcribing.say(t("jobs.begun", { name: file.name }));
  }, recording, field(t("word.language"), written.language),
  h("details", h("summary", t("word.options")), h("div.stack", h("div.fields", written.fields), written.checks, h("div.checks", written.speakers, channels))), cost, submitButton(t("jobs.go.transcription")), transcribing);

  const speaking = status();
  const voice = voiceSelect(["", t("voices.auto")], speaking, { name: "voice_id" });
  const format = select([["m4b", "M4B"], ["mp3", "MP3"]], { name: "output_format" });
  const bookCost = h("p.hint", { role: "status" });
  const tellBookCost = (n) => {
    bookCost.textContent = n ? t("jobs.about.speech", { n, price: usd(price("tts_character", n)) }) : t("jobs.price.speech", { price: usd(price("tts_character", 1000)) });
  };
  const book = chooser("speech", TEXTS, speaking, async (file) => {
    const text = await textOf(file);
    return [...text].length;
  }, tellBookCost);
  const optionsOfBook = () => chosenIn(format, voice);
  const speak = form(speaking, async () => {
    const file = book.wanted();
    await upload("/jobs/speech", formOf(optionsOfBook(), ["document", file]), told(speaking));
    book.clear();
    speaking.say(t("jobs.begun", { name: file.name }));
    await list.look();
  }, book, h("div.fields", h("div.with-preview", field(t("voices.title"), voice), voice.preview), field(t("speak.format"), format)),
  bookCost, submitButton(t("jobs.go.speech")), speaking);

  const kinds = tabs(t("jobs.kinds"), [["transcription", t("jobs.kind.transcription"), transcribe], ["speech", t("jobs.kind.speech"), speak]], undefined, "jobs");
  const stopListening = on("voices", voice.fill);

  const requests = () => [
    { title: t("jobs.kind.transcription"), path: "/jobs/transcriptions", form: written.chosen(), files: [["audio", recording.file?.name || "interview.mp3"]] },
    { title: t("jobs.kind.speech"), path: "/jobs/speech", form: optionsOfBook(), files: [["document", book.file?.name || "book.epub"]] },
    { title: t("jobs.read"), method: "GET", path: `/jobs/${result.id || "JOB_ID"}` },
    { title: t("listen.transcript"), method: "GET", path: `/jobs/${result.id || "JOB_ID"}/transcript?format=json` },
  ];
  const element = h("div.panel.jobs", panelHead(t("nav.jobs"), t("jobs.lead"), codeButton(requests)),
    h("div.columns", card(t("jobs.new"), kinds), card(t("jobs.list"), place, list)), result);
  return {
    element,
    show: (rest) => {
      kinds.show(rest);
      list.show();
    },
    leave: () => {
      list.leave();
      stopListening();
      result.clear();
    },
  };
}
