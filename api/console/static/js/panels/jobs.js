// Jobs: long recordings as text, and long texts as audio.
import { ask, upload } from "../api.js";
import { codeButton } from "../code.js";
import { clock, moment, t, usd } from "../i18n.js";
import { JOB_CHARACTERS, JOB_HOURS } from "../limits.js";
import { voiceSelect } from "../previews.js";
import { on, price } from "../session.js";
import { act, button, card, check, confirmed, explained, field, form, h, panelHead, select, status, statusBadge, submitButton, tabs } from "../ui.js";
import { fillLanguages, refreshCredit } from "../work.js";
import { partialUpload, partsOf } from "./jobs/upload.js";
import { jobResult } from "./jobs/result.js";
import { dropZone, lengthOf } from "./listen/queue.js";

const LOOK_MS = 5000;
const TEXTS = ".txt,.md,.markdown,.epub,.ssml,.xml";

// The text of a file, empty for an EPUB, or null where the service cannot read the file.
async function textOf(file) {
  if (!TEXTS.split(",").some((end) => file.name.toLowerCase().endsWith(end))) return null;
  if (/\.epub$/i.test(file.name)) return "";
  return file.arrayBuffer().then((bytes) => new TextDecoder("utf-8", { fatal: true }).decode(bytes)).catch(() => null);
}

export default function makeJobs() {
  const place = status();
  const list = h("ul.queue", { id: "jobs-list", "aria-label": t("jobs.list") });
  const none = h("p.empty", t("jobs.none"));
  const result = jobResult();
  const sent = new Map(); // uploads by job
  let timer = 0;
  let money = ""; // what was held before
  let isShown = false;
  let isGone = false;

  const look = async () => {
    clearTimeout(timer);
    let answer;
    try {
      answer = await ask("/jobs?limit=100");
      place.recover();
    } catch (error) {
      if (!isGone) place.fail(error, look);
      return;
    }
    if (isGone) return;
    draw(answer.data);
    const held = answer.data.map((job) => job.credit_held).join();
    if (held !== money) refreshCredit();
    money = held;
    if (isShown && answer.data.some((job) => !job.finished_at)) timer = setTimeout(look, LOOK_MS);
  };

  const facts = (job) => {
    const moved = sent.get(job.id);
    const percent = Math.floor(100 * (moved?.share || 0));
    const done = { percent: Math.floor(100 * job.progress), end: moment(job.estimated_completion) };
    const state = {
      uploading: t(`jobs.upload.${moved?.state || "lost"}`, { percent }),
      processing: t(job.progress ? "jobs.percent" : "jobs.waits", done),
    }[job.status] || moment(job.finished_at);
    return [
      t(`jobs.kind.${job.type}`), state, job.duration && t("jobs.length", { length: clock(job.duration) }),
      job.cost && (job.finished_at ? usd(job.cost) : t("jobs.cost_so_far", { price: usd(job.cost) })),
      job.credit_held && t("jobs.held", { price: usd(job.credit_held) }),
    ].filter(Boolean).join(" · ");
  };
  const row = (job) => {
    const said = h("p.hint");
    const bar = h("progress", { max: 1, "aria-label": job.name });
    const actions = h("div.actions");
    const reason = status();
    const of = { name: job.name };
    const made = h("li.queue-row", { data: { id: job.id } }, h("div", h("p.queue-name", job.name, " ", statusBadge(job.status)), said), actions, bar, reason);
    let drawn = "";
    made.update = (now) => {
      const moved = sent.get(job.id);
      said.textContent = facts(now);
      bar.hidden = Boolean(now.finished_at);
      bar.value = now.status === "uploading" ? moved?.share || 0 : now.progress;
      const state = moved?.state || "lost";
      if (drawn === state) return;
      drawn = state;
      const isSending = state === "sending" || state === "waiting";
      const isUpload = now.status === "uploading" && state !== "sent";
      const hadFocus = actions.contains(document.activeElement);
      actions.replaceChildren(...[
        isUpload && isSending && button(t("player.pause"), () => moved.pause(), { icon: "pause", kind: "small", label: t("jobs.pause", of) }),
        isUpload && moved && !isSending && button(t("jobs.continue"), act(reason, () => run(job.id, reason)), { icon: "upload", kind: "small", label: t("jobs.continue_of", of) }),
        now.type === "transcription" && (now.status === "completed" || now.progress > 0) && button(t("listen.show"), act(reason, () => result.show(job.id, moved?.file)), { kind: "small", label: t("jobs.show", of) }),
        now.type === "speech" && now.status === "completed" && button(t("listen.show"), act(reason, () => result.show(job.id)), { kind: "small", label: t("jobs.show", of) }),
        button(t(now.finished_at ? "action.delete" : "action.cancel"), act(reason, () => remove(jobs.find((one) => one.id === job.id))), { icon: "trash", kind: "small", label: t(now.finished_at ? "action.delete_of" : "jobs.cancel_of", of) }),
      ].filter(Boolean));
      if (hadFocus) actions.firstChild.focus();
    };
    if (job.status === "failed") made.append(h("p.failed", job.message || ""));
    made.update(job);
    return made;
  };
  // Replaces only rows whose buttons change, so that the focus stays where it is.
  let jobs = [];
  const draw = (all = jobs) => {
    jobs = all;
    const rows = new Map([...list.children].map((one) => [one.dataset.of, one]));
    const focused = document.activeElement;
    const next = all.map((job) => {
      const of = `${job.id} ${job.status} ${job.progress > 0}`;
      const made = rows.get(of) || row(job);
      made.dataset.of = of;
      made.update(job);
      return made;
    });
    if (next.length !== list.childElementCount || next.some((one, at) => one !== list.children[at])) list.replaceChildren(...next);
    if (focused.isConnected) focused.focus();
    none.hidden = all.length > 0;
  };
  const remove = async (job) => {
    const ask_ = job.finished_at ? "jobs.delete_ask" : "jobs.cancel_ask";
    if (!(await confirmed(t("action.delete_of", { name: job.name }), t(ask_, { name: job.name, price: usd(job.cost) }), t("action.delete")))) return;
    sent.get(job.id)?.pause();
    await ask(`/jobs/${job.id}`, { method: "DELETE" });
    if (result.id === job.id) result.clear();
    await look();
    refreshCredit();
    (list.querySelector("button") || element.querySelector("h1")).focus();
  };
  const run = async (id, where) => {
    where.clear();
    await sent.get(id).run();
    if (sent.get(id).state === "sent") await look();
  };

  // A new job of either kind.
  const chooser = (kind, accept, onfile) => {
    const name = h("p.chosen-file", { role: "status" });
    const made = dropZone(t(`jobs.drop.${kind}`), t(`jobs.drop_about.${kind}`, { hours: JOB_HOURS, n: JOB_CHARACTERS }), ([file]) => {
      made.file = file;
      name.textContent = file.name;
      onfile(file);
    }, { multiple: false, accept });
    made.append(name);
    return made;
  };
  const wanted = (drop) => drop.file || (() => { throw explained(t("jobs.no_file")); })();
  const bodyOf = (fields, ...file) => {
    const body = new FormData();
    for (const [key, value] of Object.entries(fields)) body.append(key, value);
    if (file.length) body.append(...file);
    return body;
  };

  const transcribing = status();
  const language = select([["", t("listen.detect")]], { name: "language" });
  const speakers = check(t("listen.speakers"), { name: "speaker_labels" });
  const channels = check(t("listen.channels"), { name: "multichannel" });
  const cost = h("p.hint", { role: "status" }, t("jobs.price.transcription", { price: usd(price("stt_second", 3600)) }));
  let seconds = null;
  const tellCost = () => {
    const paid = seconds * (channels.box.checked ? 2 : 1);
    if (seconds) cost.textContent = t("jobs.about.transcription", { length: clock(seconds), price: usd(price("stt_second", paid)) });
  };
  const recording = chooser("transcription", "audio/*,video/mp4,.m4a,.flac,.ogg,.opus", async (file) => {
    seconds = await lengthOf(file);
    tellCost();
  });
  channels.box.addEventListener("change", tellCost);
  const optionsOfRecording = () => ({ ...(language.value && { language: language.value }), ...(speakers.box.checked && { speaker_labels: true }), ...(channels.box.checked && { multichannel: true }) });
  const transcribe = form(transcribing, async () => {
    const file = wanted(recording);
    const body = bodyOf({ ...optionsOfRecording(), name: file.name, parts: partsOf(file) });
    const job = await upload("/jobs/transcriptions", body, { onWait: () => transcribing.say(t("error.resend")) });
    sent.set(job.id, partialUpload(job.id, file, () => draw()));
    await look();
    const start = () => run(job.id, transcribing).catch((error) => transcribing.fail(error, start));
    start();
    transcribing.say(t("jobs.begun", { name: file.name }));
  }, recording, field(t("word.language"), language), h("div.checks", speakers, channels), cost, submitButton(t("jobs.go.transcription")), transcribing);

  const speaking = status();
  const voice = voiceSelect(["", t("voices.auto")], speaking, { name: "voice_id" });
  const format = select([["m4b", "M4B"], ["mp3", "MP3"]], { name: "output_format" });
  const bookCost = h("p.hint", { role: "status" }, t("jobs.price.speech", { price: usd(price("tts_character", 1000)) }));
  const book = chooser("speech", TEXTS, async (file) => {
    speaking.clear();
    bookCost.textContent = t("jobs.price.speech", { price: usd(price("tts_character", 1000)) });
    const text = await textOf(file);
    if (text === null) {
      book.file = null;
      speaking.fail(explained(t("jobs.kind_of_text", { name: file.name })));
    }
    if (!text || book.file !== file) return;
    const n = [...text].length;
    bookCost.textContent = t("jobs.about.speech", { n, price: usd(price("tts_character", n)) });
  });
  const optionsOfBook = () => ({ output_format: format.value, ...(voice.value && { voice_id: voice.value }) });
  const speak = form(speaking, async () => {
    const file = wanted(book);
    await upload("/jobs/speech", bodyOf(optionsOfBook(), "document", file, file.name), {
      onProgress: (share) => speaking.say(t("upload.sent", { percent: Math.floor(share * 100) })),
      onWait: () => speaking.say(t("error.resend")),
    });
    speaking.say(t("jobs.begun", { name: file.name }));
    await look();
  }, book, h("div.fields", h("div.with-preview", field(t("voices.title"), voice), voice.preview), field(t("speak.format"), format)),
  bookCost, submitButton(t("jobs.go.speech")), speaking);

  const kinds = tabs(t("jobs.kinds"), [["transcription", t("jobs.kind.transcription"), transcribe], ["speech", t("jobs.kind.speech"), speak]]);
  kinds.choose("transcription");
  fillLanguages(language);
  const stopListening = [on("voices", voice.fill), on("route", ({ name }) => { isShown = name === "jobs"; })];

  const requests = () => [
    { title: t("jobs.kind.transcription"), path: "/jobs/transcriptions", form: optionsOfRecording(), files: [["audio", recording.file?.name || "interview.mp3"]] },
    { title: t("jobs.kind.speech"), path: "/jobs/speech", form: optionsOfBook(), files: [["document", book.file?.name || "book.epub"]] },
    { title: t("jobs.read"), method: "GET", path: `/jobs/${result.id || "JOB_ID"}` },
    { title: t("listen.transcript"), method: "GET", path: `/jobs/${result.id || "JOB_ID"}/transcript?format=json` },
  ];
  const element = h("div.panel.jobs", panelHead(t("nav.jobs"), t("jobs.lead"), codeButton(requests)),
    h("div.columns", card(t("jobs.new"), kinds), card(t("jobs.list"), place, none, list)), result);
  return {
    element,
    show: () => {
      isShown = true;
      look();
    },
    leave: () => {
      isGone = true;
      clearTimeout(timer);
      stopListening.forEach((stop) => stop());
      sent.forEach((moved) => moved.pause());
      result.clear();
    },
  };
}
