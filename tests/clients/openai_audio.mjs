// The official Node client of OpenAI, unchanged, for speech, transcripts and models.
import { createReadStream } from "node:fs";
import OpenAI from "openai";

const [baseURL, apiKey, text, recording] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 });
const file = () => createReadStream(recording);
const model = "whisper-1";
const seen = {};

const speech = await client.audio.speech.create({ model: "tts-1", voice: "alloy", input: text });
seen.type = speech.headers.get("content-type");
seen.head = Buffer.from(await speech.arrayBuffer()).subarray(0, 3).toString("latin1");

const events = await client.audio.speech.create({
  model: "gpt-4o-mini-tts",
  voice: { id: "onyx" },
  input: text,
  response_format: "pcm",
  stream_format: "sse",
});
seen.events = (await events.text())
  .split("\n\n")
  .filter(Boolean)
  .map((line) => JSON.parse(line.slice("data: ".length)).type);

seen.text = (await client.audio.transcriptions.create({ file: file(), model })).text;
seen.verbose = await client.audio.transcriptions.create({
  file: file(),
  model,
  response_format: "verbose_json",
  timestamp_granularities: ["word", "segment"],
});
seen.srt = await client.audio.transcriptions.create({
  file: file(),
  model,
  response_format: "srt",
});
seen.streamed = [];
for await (const event of await client.audio.transcriptions.create({
  file: file(),
  model: "gpt-4o-transcribe",
  stream: true,
})) {
  seen.streamed.push(event.type);
}
seen.models = [];
for await (const one of client.models.list()) seen.models.push(one.id);
seen.alias = (await client.models.retrieve("tts-1")).id;
try {
  await client.audio.speech.create({ model: "tts-1", voice: "nobody", input: text });
} catch (error) {
  seen.refused = { name: error.constructor.name, code: error.code, param: error.param };
}
console.log(JSON.stringify(seen));
