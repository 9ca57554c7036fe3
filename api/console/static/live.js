"use strict";

// Speech over the two sockets: playback during synthesis, transcripts during recording.
const SPEECH_RATE = 24000; // Hz, of both directions
const sockets = new Set(); // that are open: `leave` closes them

// Without `protocols`, which may carry the credential, it is part of the address.
function openSocket(path, protocols) {
  const url = new URL(path, location.href);
  url.protocol = url.protocol.replace("http", "ws");
  if (!protocols) url.searchParams.set("apiKey", sessionStorage.getItem(CREDENTIAL));
  const socket = new WebSocket(url, protocols || []);
  sockets.add(socket);
  socket.addEventListener("close", () => sockets.delete(socket));
  return socket;
}

// `begin` passes base64 of its 16-bit samples at SPEECH_RATE.
async function openMicrophone() {
  if (!navigator.mediaDevices) throw new Error("Browsers have a microphone only for pages from https or localhost.");
  const stream = await navigator.mediaDevices.getUserMedia({ audio: true }).catch((error) => {
    throw new Error(`The browser gives no microphone: ${error.message}.`);
  });
  const context = new AudioContext(); // Firefox connects no microphone to one of another rate
  const close = () => {
    stream.getTracks().forEach((track) => track.stop());
    return context.close();
  };
  const begin = async (handle) => {
    await context.audioWorklet.addModule("/console/microphone.js");
    const node = new AudioWorkletNode(context, "microphone", { processorOptions: { rate: SPEECH_RATE } });
    node.port.onmessage = ({ data }) => handle(toBase64(new Uint8Array(data.buffer)));
    context.createMediaStreamSource(stream).connect(node);
  };
  return { begin, close };
}

// Plays base64 of 16-bit samples, one chunk after another.
class Player {
  constructor(context) {
    this.context = context;
    this.sources = [];
    this.ends = 0; // of the audio scheduled so far, on the context's clock
    this.begin();
  }

  begin() {
    this.total = 0; // seconds that were scheduled since
  }

  play(base64) {
    const { context } = this;
    const bytes = Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
    const samples = new Int16Array(bytes.buffer);
    const buffer = context.createBuffer(1, samples.length, context.sampleRate);
    buffer.getChannelData(0).set(Float32Array.from(samples, (sample) => sample / 32768));
    const source = new AudioBufferSourceNode(context, { buffer });
    source.connect(context.destination);
    this.ends = Math.max(this.ends, context.currentTime + 0.02);
    source.start(this.ends);
    this.ends += buffer.duration;
    this.total += buffer.duration;
    this.sources.push(source);
    source.onended = () => this.sources.splice(this.sources.indexOf(source), 1);
  }

  // Silences it; returns the seconds that were heard.
  stop() {
    const heard = Math.max(0, this.total - Math.max(0, this.ends - this.context.currentTime));
    for (const source of [...this.sources]) source.stop();
    this.ends = 0;
    return heard;
  }
}

// Resolves at a clean end of the socket; `handle` gets each message.
function converse(socket, handle) {
  return new Promise((resolve, reject) => {
    let last = {}; // a server that ends the session says why
    socket.onmessage = ({ data }) => {
      try {
        last = JSON.parse(data);
        handle(last);
      } catch (error) {
        reject(error);
        socket.close();
      }
    };
    socket.onclose = ({ code }) => {
      if (code === 1000 || code === 1005) resolve();
      else if (last.error) reject(new Error(last.error.message));
      else reject(new Error(code === 1006 ? "The connection was refused or lost." : `The session ended (${code}).`));
    };
  });
}

function toBase64(bytes) {
  let text = "";
  for (const byte of bytes) text += String.fromCharCode(byte);
  return btoa(text);
}

async function speakLive(text, voiceId) {
  const context = new AudioContext({ sampleRate: SPEECH_RATE });
  const socket = openSocket("/ws/tts");
  const send = (message) => socket.send(JSON.stringify(message));
  let asked = 0;
  let first = 0;
  const player = new Player(context);
  const conversation = converse(socket, (message) => {
    if (message.error) throw new Error(message.error.message);
    if (message.connection_established) {
      const audio_config = { audio_encoding: "LINEAR16", sample_rate_hertz: SPEECH_RATE };
      send({ create_context: { context_id: "console", voice_id: voiceId, audio_config } });
    } else if (message.context_created) {
      asked = performance.now();
      send({ send_text: { context_id: "console", text } });
      send({ close_context: { context_id: "console" } });
    } else if (message.audio_chunk) {
      first ||= performance.now() - asked;
      player.play(message.audio_chunk.audioContent);
    }
  });
  try {
    await conversation;
  } finally {
    // A browser allows a page only some of them.
    setTimeout(() => context.close(), Math.max(0, player.ends - context.currentTime) * 1000 + 200);
  }
  return `first sound after ${first.toFixed(0)} ms`;
}

let stopListening = null;

async function listenLive(output, language) {
  const microphone = await openMicrophone();
  const socket = openSocket("/ws/stt");
  const send = (message) => socket.readyState === WebSocket.OPEN && socket.send(JSON.stringify(message));
  const hear = (audio) => send({ type: "audio", audio, encoding: "linear", sample_rate: SPEECH_RATE });
  stopListening = () => send({ type: "stop" });
  output.replaceChildren();
  const lines = new Map();
  try {
    await converse(socket, (message) => {
      if (message.connection_established) {
        const config = {
          encoding: "linear",
          sample_rate: SPEECH_RATE,
          continuous_mode: true,
          interim_results_frequency: 400,
        };
        send({ type: "start", languages: language ? [language] : null, config });
      } else if (message.type === "connected") {
        microphone.begin(hear).catch((error) => showStatus(error.message, true));
        showStatus("Listening …");
      } else if (message.type === "error") {
        throw new Error(message.error);
      } else if (message.type === "transcription") {
        let line = lines.get(message.sentence_id);
        if (!line) {
          line = document.createElement("p");
          lines.set(message.sentence_id, line);
          output.append(line);
        }
        line.textContent = message.text;
        line.className = message.is_final ? "final" : "interim";
        if (message.is_final && !message.text) line.remove();
      }
    });
  } finally {
    await microphone.close();
  }
  return "";
}

at("speak-live").addEventListener("click", async ({ target }) => {
  const form = new FormData(at("speak-form"));
  const voiceId = form.get("voice_id") || at("speak-live").dataset.voice;
  target.disabled = true;
  try {
    showStatus("Working …");
    showStatus(await speakLive(form.get("text"), voiceId));
  } catch (error) {
    showStatus(error.message, true);
  } finally {
    target.disabled = false;
  }
});

at("microphone").addEventListener("click", async ({ target }) => {
  if (stopListening) {
    stopListening();
    return;
  }
  target.textContent = "Stop";
  stopListening = () => {}; // a click during the start does not start a second session
  try {
    showStatus(await listenLive(at("live"), document.querySelector("[name=language]").value));
  } catch (error) {
    showStatus(error.message, true);
  } finally {
    stopListening = null;
    target.textContent = "Use the microphone";
  }
});
