// Files that wait, are sent, or are transcribed, one after another.
import { aborted, formOf, upload } from "../../api.js";
import { clock, number, t, usd } from "../../i18n.js";
import { icon } from "../../icons.js";
import { limits, on, price } from "../../session.js";
import { button, explained, filePicker, h, iconButton, status } from "../../ui.js";
import { refreshCredit } from "../../work.js";

// The length of a file, or null if the browser cannot tell.
export function lengthOf(file) {
  return new Promise((resolve) => {
    const audio = new Audio(URL.createObjectURL(file));
    const end = (value) => {
      URL.revokeObjectURL(audio.src);
      resolve(value);
    };
    audio.onloadedmetadata = () => end(Number.isFinite(audio.duration) ? audio.duration : null);
    audio.onerror = () => end(null);
  });
}

export const RECORDINGS = "audio/*,video/*,.m4a,.flac,.ogg,.opus";

// Refuses a file that certainly is not a recording, before it is sent.
export function checkKind({ name, type }) {
  if (type && !/^(audio|video)\/|\/(ogg|mp4|octet-stream)$/.test(type)) throw explained(t("listen.no_recording", { name }));
}

const FOR_JOBS = ["file_too_large", "audio_too_long"]; // the service's codes, for files that the browser cannot measure
const forJobs = (key, values) => explained(t(key, values), { job: "transcription" });

export function fileQueue({ options, path, onshow, onremove }) {
  const list = h("ul.queue", { "aria-label": t("listen.files") });
  let running = false;

  const row = (file) => {
    const item = { file, state: "waiting", control: new AbortController() };
    const state = h("p.hint", { role: "status" }, t("listen.waiting"));
    const bar = h("progress", { max: 1, value: 0, "aria-label": file.name, hidden: true });
    const place = status();
    const actions = h("div.actions");
    item.element = h("li.queue-row", h("div", h("p.queue-name", file.name), state), actions, bar, place);
    const gone = () => {
      item.control.abort();
      item.state = "gone";
      item.element.remove();
      onremove(item);
    };
    item.set = (name, text) => {
      item.state = name;
      state.textContent = text;
      bar.hidden = name !== "uploading" && name !== "working";
      if (name === "working") bar.removeAttribute("value");
      const isOver = !["waiting", "uploading", "working"].includes(name);
      actions.replaceChildren(
        ...(name === "done" ? [button(t("listen.show"), () => onshow(item), { kind: "small", label: t("listen.open", { name: file.name }) })] : []),
        ...(isOver ? [button(t("listen.repeat"), repeat, { kind: "small", label: t("listen.repeat_of", { name: file.name }) })] : []),
        iconButton(isOver ? "trash" : "close", t(isOver ? "action.remove_of" : "action.cancel_of", { name: file.name }), isOver ? gone : () => {
          item.control.abort();
          item.set("cancelled", t("listen.cancelled"));
        }));
    };
    item.progress = (share) => {
      bar.value = share;
      if (share < 1) item.set("uploading", t("upload.sent", { percent: Math.floor(share * 100) }));
      else item.set("working", t("listen.working"));
    };
    const repeat = () => {
      place.clear();
      item.control = new AbortController();
      item.set("waiting", t("listen.waiting"));
      work();
    };
    item.fail = (error) => {
      item.set("failed", "");
      if (FOR_JOBS.includes(error.code)) error.job = "transcription";
      place.fail(error, repeat);
    };
    item.set("waiting", t("listen.waiting"));
    return item;
  };

  const checked = async (file) => {
    checkKind(file);
    if (file.size > limits.recording_mb * 1024 * 1024) throw forJobs("listen.too_large", { name: file.name, mb: number(file.size / 1e6, 1), most: limits.recording_mb });
    const seconds = await lengthOf(file);
    if (seconds > limits.recording_minutes * 60 + 1) throw forJobs("listen.too_long", { name: file.name, length: clock(seconds), most: limits.recording_minutes });
  };

  const transcribe = async (item) => {
    try {
      await checked(item.file);
      item.control.signal.throwIfAborted();
      const [asked, where] = [options(), path()];
      const form = formOf(asked, [where === "/stt" ? "audio" : "file", item.file]);
      item.progress(0);
      item.result = await upload(where, form, {
        onProgress: item.progress,
        onWait: () => item.set("uploading", t("error.resend")),
        signal: item.control.signal,
      });
      const { duration, language, segments } = item.result;
      // A translation has segments in place of words.
      item.result.words ||= segments?.map(({ text, start, end }) => ({ word: text, start, end }));
      const cost = price("stt_second", duration * (asked.multichannel ? 2 : 1)); // each channel is charged
      item.set("done", t("listen.done", { length: clock(duration), language, price: usd(cost) }));
      refreshCredit();
      onshow(item);
    } catch (error) {
      if (!aborted(error)) item.fail(error);
    }
  };

  const items = [];
  const work = async () => {
    if (running) return;
    running = true;
    for (let next; (next = items.find((one) => one.state === "waiting")); ) await transcribe(next);
    running = false;
  };
  list.add = (files) => {
    for (const file of files) {
      const item = row(file);
      items.push(item);
      list.append(item.element);
    }
    work();
  };
  list.mark = (item) => items.forEach((one) => one.element.classList.toggle("chosen", one === item));
  on("leave", () => items.splice(0).forEach((one) => {
    one.state = "gone";
    one.control.abort();
  }));
  return list;
}

// A place to drop files on, with a button for those who cannot.
export function dropZone(title, about, onfiles, { multiple = true, accept = RECORDINGS } = {}) {
  const made = h("div.drop", icon("upload"), h("p", h("strong", title)), h("p.hint", about), filePicker(t(multiple ? "listen.choose" : "listen.choose_one"), accept, onfiles, { multiple, icon: "plus" }));
  for (const name of ["dragenter", "dragover", "dragleave", "drop"]) {
    made.addEventListener(name, (event) => {
      event.preventDefault();
      made.classList.toggle("over-it", name === "dragenter" || name === "dragover");
      if (name === "drop" && event.dataTransfer.files.length) onfiles([...event.dataTransfer.files]);
    });
  }
  return made;
}
