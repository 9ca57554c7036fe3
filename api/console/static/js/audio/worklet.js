"use strict";

// Collects the microphone's samples, as 16-bit integers at `rate`, into messages of about 60 ms.
class Microphone extends AudioWorkletProcessor {
  constructor({ processorOptions: { rate } }) {
    super();
    this.step = rate / sampleRate; // output samples per input sample
    this.samples = new Int16Array(Math.round(rate * 0.06));
    this.filled = 0;
    this.sum = 0; // weighted sum of input samples for the next output sample, which is their mean
    this.part = 0; // share of that output sample that they cover so far
  }

  process([[channel]]) {
    for (const sample of channel || []) {
      let left = this.step;
      while (this.part + left >= 1) {
        this.put(this.sum + sample * (1 - this.part));
        left -= 1 - this.part;
        this.sum = this.part = 0;
      }
      this.sum += sample * left;
      this.part += left;
    }
    return true;
  }

  put(sample) {
    this.samples[this.filled] = Math.max(-1, Math.min(1, sample)) * 32767;
    this.filled += 1;
    if (this.filled === this.samples.length) {
      this.port.postMessage(this.samples.slice());
      this.filled = 0;
    }
  }
}

registerProcessor("microphone", Microphone);
