// Speaks, transcribes and chats: ANTIPHON_KEY=sk_… node docs/examples/quickstart.mjs
import { readFile, writeFile } from "node:fs/promises";

const service = process.env.ANTIPHON_URL ?? process.env.SERVICE ?? "http://127.0.0.1:8000";
const authorization = `Bearer ${process.env.ANTIPHON_KEY}`;

async function request(path, body) {
  const isForm = body instanceof FormData;
  const response = await fetch(service + path, {
    method: "POST",
    headers: isForm ? { authorization } : { authorization, "content-type": "application/json" },
    body: isForm ? body : JSON.stringify(body),
  });
  if (!response.ok) throw new Error(`${response.status} ${await response.text()}`);
  return response;
}

const speech = await request("/openai/v1/audio/speech", { input: "Hello! It is 8:30." });
await writeFile("hello.mp3", Buffer.from(await speech.arrayBuffer()));

const form = new FormData();
form.append("audio", new Blob([await readFile("hello.mp3")]), "hello.mp3");
console.log((await (await request("/stt", form)).json()).text);

const messages = [{ role: "user", content: "Write a haiku about the sea." }];
const chat = await request("/v1/chat/completions", { messages });
let rest = ""; // an event may arrive in parts
for await (const piece of chat.body.pipeThrough(new TextDecoderStream())) {
  const lines = (rest + piece).split("\n");
  rest = lines.pop();
  for (const line of lines.filter((line) => line.startsWith("data: {"))) {
    const { error, choices } = JSON.parse(line.slice("data: ".length));
    if (error) throw new Error(error.message);
    process.stdout.write(choices[0]?.delta.content ?? "");
  }
}
