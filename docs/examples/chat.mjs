// Prints a chat's answer while the model writes it, and speaks it at the same time:
// ANTIPHON_KEY=sk_… node docs/examples/chat.mjs answer.pcm    (16-bit mono at 24 kHz)
// Needs Node 22, or Node 20 with --experimental-websocket. In a page, use a browser token as the key.
import { createWriteStream } from "node:fs";

if (!globalThis.WebSocket) {
  console.error(`Node ${process.version} has no WebSocket: use Node 22 or newer, or with Node 20:`);
  console.error("node --experimental-websocket docs/examples/chat.mjs …");
  process.exit(1);
}
const service = process.env.ANTIPHON_URL ?? process.env.SERVICE ?? "http://127.0.0.1:8000";
const key = process.env.ANTIPHON_KEY;
const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };

async function* chat(messages) {
  const response = await fetch(`${service}/openai/v1/chat/completions`, {
    method: "POST",
    headers,
    body: JSON.stringify({ messages, stream: true }),
  });
  if (!response.ok) throw new Error(`${response.status} ${await response.text()}`);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = ""; // an event may arrive in parts
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (!line.startsWith("data: {")) continue; // blank, or the last: data: [DONE]
      const { error, choices } = JSON.parse(line.slice("data: ".length));
      if (error) throw new Error(error.message);
      if (choices[0]?.delta.content) yield choices[0].delta.content;
    }
  }
}

// Speaks each sentence as soon as it is complete; `play` gets the audio.
function speak(texts, voice_id, play) {
  const socket = new WebSocket(`${service.replace("http", "ws")}/ws/tts?apiKey=${key}`);
  const send = (message) => socket.send(JSON.stringify(message));
  const audio_config = { audio_encoding: "LINEAR16", sample_rate_hertz: 24000 };
  let flushes = 0; // in progress; four may wait

  async function read() {
    send({ create_context: { voice_id, audio_config } });
    for await (const text of texts) {
      send({ send_text: { text } });
      if (!/[.!?…]["”')]*\s*$/.test(text) || flushes > 4) continue; // spoken with a later flush
      send({ flush_context: {} });
      flushes += 1;
    }
    send({ close_context: {} }); // speaks the rest, then ends
  }

  return new Promise((resolve, reject) => {
    const fail = (error) => {
      reject(error);
      socket.close(); // ends the synthesis
    };
    socket.onmessage = ({ data }) => {
      const message = JSON.parse(data);
      if (message.connection_established) read().catch(fail);
      else if (message.audio_chunk) play(Buffer.from(message.audio_chunk.audioContent, "base64"));
      else if (message.flush_completed) flushes -= 1;
      else if (message.error) fail(new Error(message.error.message ?? message.message));
    };
    socket.onclose = ({ code, reason }) => {
      if (code === 1000) resolve();
      else reject(new Error(`closed: ${code} ${reason}`));
    };
  });
}

async function* printed(texts) {
  for await (const text of texts) {
    process.stdout.write(text);
    yield text;
  }
}

const [path, voice = "Heart Fast"] = process.argv.slice(2);
if (!path) {
  console.error("usage: ANTIPHON_KEY=sk_… node chat.mjs FILE.pcm [VOICE]");
  process.exit(1);
}
const file = createWriteStream(path); // in place of a loudspeaker
const question = [{ role: "user", content: "Tell me in three sentences how bread is made." }];
await speak(printed(chat(question)), voice, (pcm) => file.write(pcm));
file.end();
