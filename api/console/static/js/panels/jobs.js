// Jobs: long recordings as text, and long texts as audio.
import { formOf, upload } from "../api.js";
import { codeButton } from "../code.js";
import { clock, t, usd } from "../i18n.js";
import { limits, price } from "../session.js";
import { card, explained, field, form, h, panelHead, status, submitButton, tabs } from "../ui.js";
import { told } from "../work.js";
import { bookForm } from "./jobs/book.js";
import { chooser, factsOf, partsOf } from "./jobs/upload.js";
import { jobList } from "./jobs/list.js";
import { jobResult } from "./jobs/result.js";
import { transcriptOptions } from "./listen/options.js";
import { RECORDINGS, checkKind, lengthOf } from "./listen/queue.js";

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
    facts.catch(() => {}); // awaited below, and again when the file is sent
    const length = await lengthOf(file);
    await facts;
    if (length > limits.job_hours * 3600) throw explained(t("jobs.too_long", { name: file.name, length: clock(length), hours: limits.job_hours }));
    return length;
  }, tellCost);
  channels.box.addEventListener("change", () => tellCost(recording.result));
  const transcribe = form(transcribing, async () => {
    const file = await recording.wanted();
    const kept = await facts;
    const body = formOf({ ...written.chosen(), name: file.name, parts: partsOf(kept) });
    const job = await upload("/jobs/transcriptions", body, told(transcribing));
    recording.sent(file);
    await list.upload(job.id, kept, file, transcribing);
    transcribing.say(t("jobs.begun", { name: file.name }));
  }, recording, field(t("word.language"), written.language),
  h("details", h("summary", t("word.options")), h("div.stack", h("div.fields", written.fields), written.checks, h("div.checks", written.speakers, channels))), cost, submitButton(t("jobs.go.transcription")), transcribing);

  const speak = bookForm({ onbegun: list.look });
  const kinds = tabs(t("jobs.kinds"), [["transcription", t("jobs.kind.transcription"), transcribe], ["speech", t("jobs.kind.speech"), speak]], undefined, "jobs");

  const requests = () => {
    const path = `/jobs/${result.id || "JOB_ID"}`;
    const progress = { title: t("jobs.read"), method: "GET", path };
    if (kinds.chosen === "speech") return [speak.request(), progress];
    return [
      { title: t("jobs.kind.transcription"), path: "/jobs/transcriptions", form: written.chosen(), files: [["audio", recording.file?.name || "interview.mp3"]] },
      progress,
      { title: t("listen.transcript"), method: "GET", path: `${path}/transcript?format=json` },
    ];
  };
  const element = h("div.panel.jobs", panelHead(t("nav.jobs"), t("jobs.lead"), codeButton(requests, place)),
    h("div.columns", card(t("jobs.new"), kinds), card(t("jobs.list"), place, list)), result);
  return {
    element,
    show: (rest) => {
      kinds.show(rest);
      list.show();
    },
  };
}
