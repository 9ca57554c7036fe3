// ElevenLabs' clients for Node and for browsers, as they are published: prints what they read.
import { readFileSync } from "node:fs";
import WebSocket from "ws";
import { ElevenLabsClient } from "@elevenlabs/elevenlabs-js";

globalThis.WebSocket ??= WebSocket;
const { AudioFormat, RealtimeEvents, Scribe } = await import("@elevenlabs/client");

const [baseUrl, apiKey, path] = process.argv.slice(2);
const client = new ElevenLabsClient({ apiKey, baseUrl });
const [rachel, adam] = ["21m00Tcm4TlvDq8ikWAM", "pNInz6obpgDQGcFmaJgB"];
const data = readFileSync(path);
const file = () => new Blob([data], { type: "audio/wav" });

async function bytes(stream) {
  let size = 0;
  for await (const chunk of stream) size += chunk.length;
  return size;
}

// What a browser hears with this token: the kind of the first event, and the last text.
function scribe(token) {
  return new Promise((resolve) => {
    const connection = Scribe.connect({
      token, baseUri: baseUrl.replace("http", "ws"), modelId: "scribe_v2_realtime",
      audioFormat: AudioFormat.PCM_16000, sampleRate: 16000,
    });
    let first = "closed";
    const end = (text) => {
      connection.close();
      resolve([first, text]);
    };
    connection.on(RealtimeEvents.SESSION_STARTED, () => {
      first = "session_started";
      connection.send({ audioBase64: data.subarray(44).toString("base64") });
      connection.commit();
    });
    connection.on(RealtimeEvents.COMMITTED_TRANSCRIPT, (event) => end(event.text));
    connection.on(RealtimeEvents.ERROR, () => end("error"));
    connection.on(RealtimeEvents.CLOSE, () => end("closed"));
  });
}

const inputs = [{ text: "Hello.", voiceId: rachel }, { text: "Good day.", voiceId: adam }];
const subscription = await client.user.subscription.get();
const voices = await client.voices.search({ language: ["en"], pageSize: 5 });
const timed = await client.textToDialogue.convertWithTimestamps({ inputs });
const aligned = await client.forcedAlignment.create({ file: file(), text: "The quick brown horse." });
const { token } = await client.tokens.singleUse.create("realtime_scribe");
const seen = {
  subscription: [subscription.hasOpenInvoices, subscription.openInvoices],
  languages: [...new Set(voices.voices.map((voice) => voice.labels.language))],
  dialogue: await bytes(await client.textToDialogue.convert({ inputs })),
  segments: timed.voiceSegments.map((segment) => segment.voiceId),
  changed: await bytes(await client.speechToSpeech.convert(rachel, { audio: file() })),
  aligned: aligned.words.map((word) => word.text),
  scribe: await scribe(token),
  again: (await scribe(token))[0],
};
console.log(JSON.stringify(seen));
process.exit(0);
