"use strict";

// Collects the microphone's samples, as 16-bit integers, into messages of about 60 ms.
class Microphone extends AudioWorkletProcessor {
  constructor() {
    super();
    this.samples = new Int16Array(Math.round(sampleRate * 0.06));
    this.filled = 0;
  }

  process([[channel]]) {
    for (const sample of channel || []) {
      this.samples[this.filled] = Math.max(-1, Math.min(1, sample)) * 32767;
      this.filled += 1;
      if (this.filled === this.samples.length) {
        this.port.postMessage(this.samples.slice());
        this.filled = 0;
      }
    }
    return true;
  }
}

registerProcessor("microphone", Microphone);
