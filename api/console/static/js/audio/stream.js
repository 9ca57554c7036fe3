// Contexts that play or record, and 16-bit samples that are played while they come.
import { emit } from "../session.js";

const SETTLED_MS = 500; // a context needs a moment to start
const contexts = new Set();

// Browsers suspend a context that no click has allowed, and iOS interrupts it for a call or a locked screen. The next click,
// key or return to the page resumes it; until then, the event "paused" is true.
for (const event of ["mousedown", "touchend", "keydown", "visibilitychange"]) {
  document.addEventListener(event, () => contexts.forEach((one) => one.resume().catch(() => {})), true);
}

export function openContext(options) {
  const context = new AudioContext(options);
  contexts.add(context);
  const tell = () => emit("paused", [...contexts].some(({ state }) => !["running", "closed"].includes(state)));
  context.onstatechange = () => {
    if (context.state === "closed") contexts.delete(context);
    setTimeout(tell, SETTLED_MS);
  };
  setTimeout(tell, SETTLED_MS);
  return context;
}

export class Stream {
  constructor(rate) {
    this.context = openContext({ sampleRate: rate });
    this.meter = new AnalyserNode(this.context, { fftSize: 1024 });
    this.meter.connect(this.context.destination);
    this.rate = rate;
    this.sources = [];
    this.pieces = []; // all bytes, for a file
    this.ends = 0; // end of the audio scheduled so far, on the context's clock, which stops while the context is suspended
    this.began = null; // when the first audio is heard
    this.total = 0; // seconds of audio scheduled; a caller may count from 0 again
  }

  // The seconds that have been heard since the stream's first audio.
  get time() {
    return this.began === null ? 0 : Math.max(0, this.context.currentTime - this.began);
  }

  // The seconds of scheduled audio that have not been heard.
  get left() {
    return Math.max(0, this.ends - this.context.currentTime);
  }

  play(bytes) {
    if (!bytes.length) return;
    this.pieces.push(bytes);
    const samples = new Int16Array(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length));
    const buffer = this.context.createBuffer(1, samples.length, this.rate);
    buffer.getChannelData(0).set(Float32Array.from(samples, (sample) => sample / 32768));
    const source = new AudioBufferSourceNode(this.context, { buffer });
    source.connect(this.meter);
    this.ends = Math.max(this.ends, this.context.currentTime + 0.02);
    this.began ??= this.ends;
    source.start(this.ends);
    this.ends += buffer.duration;
    this.total += buffer.duration;
    this.sources.push(source);
    source.onended = () => this.sources.splice(this.sources.indexOf(source), 1);
  }

  // Resolves when all audio has been heard.
  async finished() {
    while (this.context.state !== "closed" && this.left) {
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }

  // Stops the audio; returns the seconds that were heard.
  stop() {
    const heard = Math.max(0, this.total - this.left);
    for (const source of [...this.sources]) source.stop();
    this.ends = 0;
    return heard;
  }
}
