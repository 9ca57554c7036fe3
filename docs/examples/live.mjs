// Speaks over /ws/tts and transcribes over /ws/stt: ANTIPHON_KEY=sk_… node docs/examples/live.mjs
// Needs Node 22, or Node 20 with --experimental-websocket.
if (!globalThis.WebSocket) {
  console.error(`Node ${process.version} has no WebSocket: use Node 22 or newer, or with Node 20:`);
  console.error("node --experimental-websocket docs/examples/live.mjs …");
  process.exit(1);
}
const url = process.env.ANTIPHON_URL ?? process.env.SERVICE ?? "http://127.0.0.1:8000";
const service = url.replace("http", "ws");
const key = process.env.ANTIPHON_KEY;

// Opens a socket; `receive` gets each message, and a function that sends one.
function converse(path, receive) {
  const socket = new WebSocket(`${service}${path}?apiKey=${key}`);
  const send = (message) => socket.send(JSON.stringify(message));
  return new Promise((resolve, reject) => {
    socket.onmessage = ({ data }) => receive(JSON.parse(data), send);
    socket.onclose = ({ code, reason }) => {
      if (code === 1000) resolve();
      else reject(new Error(`closed: ${code} ${reason}`));
    };
  });
}

const response = await fetch(`${service.replace("ws", "http")}/default-voices`, {
  headers: { authorization: `Bearer ${key}` },
});
const voices = (await response.json()).data;
const { voice_id } = voices.find(({ labels }) => labels.language === "en");

const samples = []; // 16-bit mono at 16 kHz
const audio_config = { audio_encoding: "LINEAR16", sample_rate_hertz: 16000 };
await converse("/ws/tts", (message, send) => {
  if (message.connection_established) {
    send({ create_context: { voice_id, audio_config } });
    for (const word of "Good morning. It is half past eight.".split(" ")) {
      send({ send_text: { text: `${word} ` } }); // as a language model writes it
    }
    send({ close_context: {} }); // speaks the rest, then ends
  } else if (message.audio_chunk) {
    samples.push(Buffer.from(message.audio_chunk.audioContent, "base64"));
  }
});
console.log(`${Buffer.concat(samples).length / 32000} s of speech`);

await converse("/ws/stt", async (message, send) => {
  if (message.connection_established) {
    send({ type: "start", languages: ["en"], config: { continuous_mode: true } });
  } else if (message.type === "connected") {
    const pcm = Buffer.concat(samples);
    for (let at = 0; at < pcm.length; at += 3200) { // 100 ms, in place of a microphone
      const audio = pcm.subarray(at, at + 3200).toString("base64");
      send({ type: "audio", audio, encoding: "linear", sample_rate: 16000 });
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    send({ type: "stop" });
  } else if (message.is_final && message.text) {
    console.log(message.timestamp, message.text);
  }
});
