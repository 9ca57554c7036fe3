// Names that are pronounced and spelt correctly: ANTIPHON_KEY=sk_… node docs/examples/names.mjs names.mp3
import { readFile, writeFile } from "node:fs/promises";

const service = process.env.ANTIPHON_URL ?? process.env.SERVICE ?? "http://127.0.0.1:8000";
const authorization = `Bearer ${process.env.ANTIPHON_KEY}`;
const file = process.argv[2];
if (!file) {
  console.error("usage: ANTIPHON_KEY=sk_… node names.mjs FILE.mp3");
  process.exit(1);
}
const text = "Dr. Quixbury restarted Nginx at 2:30pm, and paid $12 for it.";
const entries = [
  { grapheme: "Nginx", alias: "engine X" },
  { grapheme: "Quixbury", phoneme: "ˈkwɪksbəri", alias: "Quicksberry" },
];

async function request(method, path, body) {
  const isForm = body instanceof FormData;
  const headers = isForm ? { authorization } : { authorization, "content-type": "application/json" };
  const sent = isForm ? body : body && JSON.stringify(body);
  const response = await fetch(service + path, { method, headers, body: sent });
  if (!response.ok) throw new Error(`${response.status} ${await response.text()}`);
  return response;
}

async function transcribe(options) {
  const form = new FormData();
  form.append("audio", new Blob([await readFile(file)]), file);
  for (const [name, value] of options) form.append(name, value);
  return (await (await request("POST", "/stt", form)).json()).text;
}

const { id } = await (
  await request("POST", "/pronunciations", { name: `Names ${Date.now()}`, entries })
).json();
const pronunciations = [{ id }];
const explained = await request("POST", "/tts/explain", { text, pronunciations });
for (const sentence of (await explained.json()).sentences) console.log("spoken:", sentence.text);

const speech = await request("POST", "/openai/v1/audio/speech", { input: text, pronunciations });
await writeFile(file, Buffer.from(await speech.arrayBuffer()));
console.log("without:", await transcribe([]));
const keyterms = entries.map((entry) => ["keyterms", entry.grapheme]);
console.log("heard:", await transcribe([...keyterms, ["numerals", true]]));
