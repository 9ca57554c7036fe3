// The sockets from Node: prints what came, as JSON. Uses the built-in WebSocket, or the package `ws`.
const [kind, base, apiKey, voice, text] = process.argv.slice(2);
const Socket = kind === "ws" ? (await import("ws")).default : globalThis.WebSocket;

function open(path) {
  const socket = new Socket(`${base}${path}?apiKey=${encodeURIComponent(apiKey)}`);
  const messages = [];
  let wake = () => {};
  const give = (message) => {
    messages.push(message);
    wake();
  };
  socket.onmessage = (event) => give(JSON.parse(event.data));
  socket.onclose = (event) => give({ closed: event.code });
  return {
    socket,
    send: (message) => socket.send(JSON.stringify(message)),
    next: async () => {
      while (!messages.length) await new Promise((resolve) => (wake = resolve));
      return messages.shift();
    },
  };
}

const seen = { speech: [], bytes: 0, recognition: [] };

const speech = open("/ws/tts");
for (let message; !("closed" in (message = await speech.next())); ) {
  const name = Object.keys(message)[0];
  if (seen.speech.at(-1) !== name) seen.speech.push(name);
  if (name === "connection_established") {
    speech.send({ create_context: { context_id: "c", voice_id: voice } });
    speech.send({ send_text: { context_id: "c", text } });
    speech.send({ close_context: { context_id: "c" } });
  } else if (name === "audio_chunk") {
    seen.bytes += Buffer.from(message.audio_chunk.audioContent, "base64").length;
  }
}

const recognition = open("/ws/stt");
for (let message; !("closed" in (message = await recognition.next())); ) {
  const type = message.type ?? Object.keys(message)[0];
  seen.recognition.push(type);
  if (type === "connection_established") recognition.send({ type: "start", languages: ["en"] });
  else if (type === "connected") {
    recognition.socket.send(new Uint8Array(480).fill(0xff)); // 60 ms of mu-law silence
    recognition.send({ type: "test", message: "hello", timestamp: 5 });
  } else if (type === "test_response") {
    seen.echo = message;
    recognition.send({ type: "stop" });
  } else if (type === "session_stopped") seen.summary = message.billing_summary;
}

console.log(JSON.stringify(seen));
