// Plays 16-bit samples while they come.
export class Stream {
  constructor(rate) {
    this.context = new AudioContext({ sampleRate: rate });
    this.meter = new AnalyserNode(this.context, { fftSize: 1024 });
    this.meter.connect(this.context.destination);
    this.rate = rate;
    this.sources = [];
    this.pieces = []; // all bytes, for a file
    this.ends = 0; // end of the audio scheduled so far, on the context's clock
    this.began = null; // when the first audio is heard
    this.begin();
  }

  begin() {
    this.total = 0; // seconds of audio scheduled since then
  }

  // The seconds that have been heard since the stream's first audio.
  get time() {
    return this.began === null ? 0 : Math.max(0, this.context.currentTime - this.began);
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
    while (this.context.state !== "closed" && this.context.currentTime < this.ends) {
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }

  // Stops the audio; returns the seconds that were heard.
  stop() {
    const heard = Math.max(0, this.total - Math.max(0, this.ends - this.context.currentTime));
    for (const source of [...this.sources]) source.stop();
    this.ends = 0;
    return heard;
  }

  async close() {
    if (this.context.state !== "closed") await this.context.close();
  }
}
