// A file that is chosen for a job, and a recording that is uploaded in parts and continues where it stopped.
import { aborted, ask, formOf, upload } from "../../api.js";
import { t } from "../../i18n.js";
import { limits } from "../../session.js";
import { setting } from "../../store.js";
import { explained, h, mayHelp } from "../../ui.js";
import { dropZone } from "../listen/queue.js";

const MB = 2 ** 20;
const LEAST_MB = 8; // size of a part, which is sent again after a lost connection
const USUAL_PARTS = 16; // each is a request, and the plan limits requests per minute
const KEPT = "uploads"; // the browser's storage has, under this key, what identifies the file of each job

// FNV-1a of the first part. Pages without https have no crypto.subtle, and this only has to detect mistakes.
async function hashOf(file, bytes) {
  const first = new Uint8Array(await file.slice(0, bytes).arrayBuffer());
  return first.reduce((hash, byte) => Math.imul(hash ^ byte, 0x01000193), 0x811c9dc5);
}

// A place for one file. `look` returns facts about the file, such as its length, or throws; `tell` shows them. After a
// temporary failure, the file stays chosen.
export function chooser(kind, accept, place, look, tell) {
  const name = h("p.chosen-file", { role: "status" });
  let next = null; // the file that will be analysed next
  let timer = 0;
  const keep = (file, { result = null, refusal = null } = {}) => {
    Object.assign(made, { file, result, refusal });
    name.textContent = file?.name || "";
    tell(result);
  };
  const take = async (file) => {
    place.clear();
    keep(file);
    const answer = await look(file).then((result) => ({ result }), (refusal) => ({ refusal }));
    if (made.file !== file) return; // another one was chosen meanwhile
    const { refusal } = answer;
    keep(refusal && !mayHelp(refusal) ? null : file, answer);
    if (refusal) place.fail(refusal, () => made.take(file));
  };
  const stopWaiting = () => {
    clearTimeout(timer);
    next = null;
  };
  const about = t(`jobs.drop_about.${kind}`, { hours: limits.job_hours, n: limits.job_characters });
  const made = dropZone(t(`jobs.drop.${kind}`), about, ([file]) => made.take(file), { multiple: false, accept });
  made.append(name);
  made.take = (file) => {
    stopWaiting();
    made.looked = take(file);
  };
  made.takeSoon = (file, ms) => {
    stopWaiting();
    next = file;
    timer = setTimeout(() => made.take(file), ms);
  };
  made.clear = () => {
    stopWaiting();
    keep(null);
  };
  // Forgets a file that was sent; false if another file was chosen in the meantime, which stays.
  made.sent = (file) => {
    const isLast = made.file === file && !next;
    if (isLast) made.clear();
    return isLast;
  };
  made.clear();
  // The analysed file. Throws the reason if there is none.
  made.wanted = async () => {
    const unseen = next || (made.refusal && made.file);
    if (unseen) made.take(unseen);
    await made.looked;
    if (made.refusal || !made.file) throw made.refusal || explained(t("jobs.no_file"));
    return made.file;
  };
  return made;
}

// What is stored about a file while it is uploaded: {name, size, bytes of a part, hash}.
export async function factsOf(file) {
  const { name, size } = file;
  const bytes = Math.min(limits.part_mb * MB, Math.max(LEAST_MB * MB, Math.ceil(size / USUAL_PARTS)));
  if (size > limits.most_parts * bytes) throw explained(t("jobs.too_large", { name, gb: (limits.most_parts * limits.part_mb) / 1024 }));
  return { name, size, bytes, hash: await hashOf(file, bytes) };
}
export const partsOf = ({ size, bytes }) => Math.max(1, Math.ceil(size / bytes));

export const keptUploads = () => setting(KEPT) || {};
export function keepUpload(id, facts) {
  const { [id]: _, ...others } = keptUploads();
  setting(KEPT, facts ? { ...others, [id]: facts } : others);
}

// `state` is kept (after a reload, without the file), sending, waiting (for the network or the service), paused or
// sent; `share` is the uploaded share. `run` sends the parts that the service lacks, and throws on failure.
export function partialUpload(id, facts, file, onchange) {
  const made = { file, name: facts.name, state: file ? "paused" : "kept", share: 0 };
  const parts = partsOf(facts);
  let control = null;
  const tell = (state, share = made.share) => {
    Object.assign(made, { state, share });
    onchange();
  };
  const send = async (signal) => {
    const read = () => ask(`/jobs/${id}`, { signal });
    const { received, status } = await read();
    if (status !== "uploading") return; // the answer to the last part was lost
    const missing = Array.from({ length: parts }, (_, at) => at + 1).filter((number) => !received.includes(number));
    for (const [at, number] of missing.entries()) {
      const piece = new File([made.file.slice((number - 1) * facts.bytes, number * facts.bytes)], facts.name);
      const onProgress = (share) => tell("sending", (parts - missing.length + at + share) / parts);
      const put = () => upload(`/jobs/${id}/parts/${number}`, formOf({}, ["audio", piece]), { method: "PUT", signal, onProgress, onWait: () => tell("waiting") });
      await put().catch(async (error) => {
        if (error.status === 400 && (await read()).status !== "uploading") return; // it arrived before its answer was lost
        if (!error.wait) throw error;
        tell("waiting"); // too many requests a minute
        await new Promise((resolve) => setTimeout(resolve, error.wait * 1000));
        signal.throwIfAborted();
        await put();
      });
    }
  };
  made.pause = () => control?.abort();
  made.run = async () => {
    control = new AbortController();
    tell("sending");
    try {
      await send(control.signal);
      keepUpload(id, null);
      tell("sent", 1);
    } catch (error) {
      tell("paused");
      if (!aborted(error)) throw error;
    }
  };
  // After a reload, finds out how much the service has.
  made.measure = async () => tell(made.state, (await ask(`/jobs/${id}`)).received.length / parts);
  // Takes the file once the user has chosen it again.
  made.take = async (again) => {
    const isSame = again.name === facts.name && again.size === facts.size && (await hashOf(again, facts.bytes)) === facts.hash;
    if (!isSame) throw explained(t("jobs.other_file", { name: again.name, wanted: facts.name }));
    made.file = again;
  };
  return made;
}
