// The microphone as 16-bit samples, and its level.
import { t } from "../i18n.js";
import { explained, field, h } from "../ui.js";
import { RATE, wav } from "./pcm.js";
import { openContext } from "./stream.js";

const REASONS = {
  NotFoundError: "mic.none",
  OverconstrainedError: "mic.none",
  NotAllowedError: "mic.denied",
  NotReadableError: "mic.used",
  AbortError: "mic.used",
};

// `begin(handle)` passes the samples, 60 ms at a time, at `rate`. It rejects if none can be read, or when the microphone is lost.
export async function openMicrophone({ device = "", rate = RATE, clean = true } = {}) {
  if (!navigator.mediaDevices) throw explained(t("mic.insecure"));
  const audio = { echoCancellation: clean, noiseSuppression: clean, autoGainControl: clean };
  if (device) audio.deviceId = { exact: device };
  const stream = await navigator.mediaDevices.getUserMedia({ audio }).catch((error) => {
    const known = REASONS[error.name];
    throw explained(known ? t(known) : t("mic.failed", { reason: error.message }));
  });
  const lost = new Promise((_, reject) => { stream.getTracks()[0].onended = () => reject(explained(t("mic.lost"))); });
  const context = openContext(); // Firefox refuses a microphone with a different sample rate
  const source = context.createMediaStreamSource(stream);
  const meter = new AnalyserNode(context, { fftSize: 1024 });
  source.connect(meter);
  const close = async () => {
    stream.getTracks().forEach((track) => track.stop());
    await context.close();
  };
  const begin = async (handle) => {
    await context.audioWorklet.addModule("/console/js/audio/worklet.js")
      .catch(({ message }) => { throw explained(t("mic.failed", { reason: message })); });
    // The mean of all channels, since a voice may be on any of them.
    const node = new AudioWorkletNode(context, "microphone", { channelCount: 1, channelCountMode: "explicit", processorOptions: { rate } });
    node.port.onmessage = ({ data }) => handle(new Uint8Array(data.buffer));
    source.connect(node);
    await lost;
  };
  return { begin, close, meter, stream };
}

// Records into a WAV file, which every route accepts, until `onlost(error)`. `stop()` returns the file, or null if it is empty.
export async function record({ device, ontick, onlost }) {
  const microphone = await openMicrophone({ device, clean: false });
  const pieces = [];
  let bytes = 0;
  microphone.begin((piece) => {
    pieces.push(piece);
    bytes += piece.length;
    ontick(bytes / 2 / RATE);
  }).catch(onlost);
  const stop = async () => {
    await microphone.close();
    return bytes ? wav(pieces, RATE) : null;
  };
  return { stop, meter: microphone.meter };
}

// A choice of the microphone. Browsers name the devices only after the user has allowed one.
export function devicePicker() {
  const select = h("select", new Option(t("mic.default"), ""));
  const made = field(t("listen.microphone"), select);
  made.fill = async () => {
    const all = (await navigator.mediaDevices?.enumerateDevices().catch(() => [])) || [];
    const named = all.filter((one) => one.kind === "audioinput" && one.deviceId && one.deviceId !== "default" && one.label);
    const chosen = select.value;
    select.replaceChildren(new Option(t("mic.default"), ""), ...named.map((one) => new Option(one.label, one.deviceId)));
    if (named.some((one) => one.deviceId === chosen)) select.value = chosen;
    made.hidden = named.length < 2;
  };
  made.fill();
  navigator.mediaDevices?.addEventListener("devicechange", made.fill);
  Object.defineProperty(made, "value", { get: () => select.value });
  return made;
}
