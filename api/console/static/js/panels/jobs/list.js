// The jobs of the workspace, with their uploads.
import { ask } from "../../api.js";
import { clock, moment, t, usd } from "../../i18n.js";
import { on } from "../../session.js";
import { act, button, confirmed, drawRows, filePicker, h, status, statusBadge } from "../../ui.js";
import { refreshCredit, watch } from "../../work.js";
import { RECORDINGS } from "../listen/queue.js";
import { keepUpload, keptUploads, partialUpload } from "./upload.js";

const LOOK_MS = 5000;
const PAGE = 100;

export function jobList({ place, result }) {
  const list = h("ul.queue", { id: "jobs-list", "aria-label": t("jobs.list") });
  const uploads = new Map(); // by job
  let jobs = [];
  let money = ""; // the held amount at the last look

  // Distinguishes a job from others with the same name.
  const traits = (job) => [
    job.voices.join(", "),
    job.selection && t("jobs.chapters_read", { n: Number(job.selection), numbers: job.selection.replaceAll(",", ", ") }),
    job.output_format?.toUpperCase(), t("jobs.created", { time: moment(job.created_at) }),
  ].filter(Boolean).join(" · ");
  const facts = (job) => {
    const { share = 0, state = "lost", name = "" } = uploads.get(job.id) || {};
    const done = { percent: Math.floor(100 * job.progress), end: moment(job.estimated_completion) };
    const isLate = new Date(job.estimated_completion) < Date.now(); // or if the time is unknown
    const now = {
      uploading: t(`jobs.upload.${state}`, { percent: Math.floor(100 * share), name }),
      processing: job.progress ? t(isLate ? "jobs.late" : "jobs.percent", done) : t("jobs.waits"),
    }[job.status] || t("jobs.ended", { time: moment(job.finished_at) });
    return [
      t(`jobs.kind.${job.type}`), traits(job), now, job.waiting, job.duration && t("jobs.length", { length: clock(job.duration) }),
      job.cost && (job.finished_at ? usd(job.cost) : t("jobs.cost_so_far", { price: usd(job.cost) })),
      job.credit_held && t("jobs.held", { price: usd(job.credit_held) }),
    ].filter(Boolean).join(" · ");
  };
  // The actions for a job, as buttons whose failures are shown in `reason`.
  const actionsOf = (job, reason) => {
    const moved = uploads.get(job.id);
    const state = moved?.state || "lost";
    const of = { name: job.name };
    const small = (text, label, work, icon) => button(t(text), act(reason, work), { kind: "small", label: t(label, of), icon });
    const isUpload = job.status === "uploading";
    const hasResult = job.status === "completed" ? job.type !== "batch" : job.type === "transcription" && job.progress > 0;
    return [
      isUpload && ["sending", "waiting"].includes(state) && small("player.pause", "jobs.pause", () => moved.pause(), "pause"),
      isUpload && state === "paused" && small("jobs.continue", "jobs.continue_of", () => run(job.id, reason), "upload"),
      isUpload && state === "kept" && filePicker(t("jobs.continue"), RECORDINGS, act(reason, ([file]) => takeAgain(job.id, file, reason)), { kind: "small", label: t("jobs.continue_of", of), icon: "upload" }),
      hasResult && small("listen.show", "jobs.show", () => result.show(job.id, moved?.file)),
      job.finished_at ? small("action.delete", "action.delete_of", () => remove(job.id), "trash") : small("action.cancel", "action.cancel_of", () => remove(job.id), "trash"),
    ].filter(Boolean).flat();
  };
  const row = (job) => {
    const said = h("p.hint");
    const bar = h("progress", { max: 1, "aria-label": job.name });
    const actions = h("div.actions");
    const reason = status();
    const made = h("li.queue-row", { data: { id: job.id } }, h("div", h("p.queue-name", job.name, " ", statusBadge(job.status)), said), actions, bar, reason);
    let drawn = null;
    made.update = (now) => {
      const { state = "lost", share = 0 } = uploads.get(job.id) || {};
      said.textContent = facts(now);
      bar.hidden = Boolean(now.finished_at);
      bar.value = now.status === "uploading" ? share : now.progress;
      if (drawn === state) return;
      drawn = state;
      actions.replaceChildren(...actionsOf(now, reason));
    };
    if (job.status === "failed") made.append(h("p.failed", job.message || ""));
    return made;
  };
  const draw = (all = jobs) => {
    jobs = all;
    drawRows(list, jobs, row, (job) => `${job.id} ${job.status} ${job.progress > 0}`);
  };
  // Offers to continue uploads that another page began, and forgets those that the service no longer has.
  const recall = (all) => {
    for (const [id, kept] of Object.entries(keptUploads())) {
      const job = all.find((one) => one.id === id);
      if (job ? job.status !== "uploading" : all.length < PAGE) keepUpload(id, null);
      else if (job && !uploads.has(id)) {
        uploads.set(id, partialUpload(id, kept, null, () => draw()));
        uploads.get(id).measure().catch((error) => place.fail(error));
      }
    }
  };
  const watched = watch("jobs", place, () => ask(`/jobs?limit=${PAGE}`), ({ data: all }) => {
    recall(all);
    draw(all);
    const held = all.map((job) => job.credit_held).join();
    if (held !== money) refreshCredit();
    money = held;
    return watched.isShown && all.some((job) => !job.finished_at) ? LOOK_MS : 0;
  });
  const run = async (id, where) => {
    where.clear();
    await uploads.get(id).run();
    if (uploads.get(id).state === "sent") await watched.look();
  };
  const takeAgain = async (id, file, where) => {
    where.clear();
    await uploads.get(id).take(file);
    await run(id, where);
  };
  const remove = async (id) => {
    const job = jobs.find((one) => one.id === id);
    const of = { name: `${job.name} (${traits(job)})`, price: usd(job.cost) };
    const [title, question, action] = job.finished_at ? ["action.delete_of", "jobs.delete_ask", "action.delete"] : ["action.cancel_of", "jobs.cancel_ask", "jobs.cancel"];
    if (!(await confirmed(t(title, { name: job.name }), t(question, of), t(action)))) return;
    uploads.get(id)?.pause();
    await ask(`/jobs/${id}`, { method: "DELETE" });
    keepUpload(id, null);
    if (result.id === id) result.clear();
    await watched.look();
    refreshCredit();
    (list.querySelector("button") || made.closest(".panel").querySelector("h1")).focus();
  };

  const made = h("div.stack", h("p.empty.none", t("jobs.none")), list);
  // Uploads the file of a new job; its failures are shown in `where`.
  made.upload = async (id, kept, file, where) => {
    keepUpload(id, kept);
    uploads.set(id, partialUpload(id, kept, file, () => draw()));
    await watched.look();
    const start = () => run(id, where).catch((error) => where.fail(error, start));
    start();
  };
  made.look = watched.look;
  made.show = watched.show;
  on("leave", () => uploads.forEach((moved) => moved.pause()));
  return made;
}
