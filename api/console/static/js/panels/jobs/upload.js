// A recording that is uploaded in parts, and continues where it stopped.
import { aborted, ask, upload } from "../../api.js";
import { PART_MB } from "../../limits.js";

const MB = 2 ** 20;
const LEAST_MB = 8; // of a part, which a lost connection sends again
const USUAL_PARTS = 16; // each is a request, of which a plan allows so many a minute

const bytesOfPart = (file) => Math.min(PART_MB * MB, Math.max(LEAST_MB * MB, Math.ceil(file.size / USUAL_PARTS)));
export const partsOf = (file) => Math.max(1, Math.ceil(file.size / bytesOfPart(file)));

// Its `state` is sending, waiting (for the network or the service), paused or sent, and `share` what is uploaded. `run` sends
// the parts that the service lacks, and throws its failure.
export function partialUpload(id, file, onchange) {
  const made = { file, state: "paused", share: 0 };
  let control = null;
  const tell = (state, share = made.share) => {
    Object.assign(made, { state, share });
    onchange();
  };
  const send = async (signal) => {
    const { received, status } = await ask(`/jobs/${id}`, { signal });
    if (status !== "uploading") return; // the answer to the last part was lost
    const missing = Array.from({ length: partsOf(file) }, (_, at) => at + 1).filter((number) => !received.includes(number));
    const bytes = bytesOfPart(file);
    for (const [at, number] of missing.entries()) {
      const form = new FormData();
      form.append("audio", file.slice((number - 1) * bytes, number * bytes), file.name);
      const onProgress = (share) => tell("sending", (partsOf(file) - missing.length + at + share) / partsOf(file));
      const put = () => upload(`/jobs/${id}/parts/${number}`, form, { method: "PUT", signal, onProgress, onWait: () => tell("waiting") });
      await put().catch(async (error) => {
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
      tell("sent", 1);
    } catch (error) {
      tell("paused");
      if (!aborted(error)) throw error;
    }
  };
  return made;
}
