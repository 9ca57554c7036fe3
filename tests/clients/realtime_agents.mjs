// A RealtimeSession of openai-agents-js in a spoken dialogue. Arguments: base URL, key, and a
// folder with the user's sentences as WAV files.
import { RealtimeAgent, RealtimeSession, tool } from "@openai/agents-realtime";
import { z } from "zod";
import { dialogue, seen } from "./dialogue.mjs";

const [baseURL, apiKey, folder] = process.argv.slice(2);
const weather = tool({
  name: "weather",
  description: "The weather of a city.",
  parameters: z.object({ city: z.string() }),
  execute: async ({ city }) => {
    seen.calls.push(city);
    return `fine in ${city}`;
  },
});
const agent = new RealtimeAgent({
  name: "Concierge",
  instructions: "You are a concierge.",
  tools: [weather],
});
const session = new RealtimeSession(agent, { transport: "websocket" });

session.on("error", ({ error }) => seen.errors.push(String(error?.message ?? JSON.stringify(error))));
session.on("audio", ({ data }) => (seen.seconds += data.byteLength / 48_000));
session.on("audio_interrupted", () => (seen.interruptions += 1));
session.on("history_updated", (history) => {
  const messages = history.filter(({ role }) => role === "user");
  seen.heard = messages.flatMap(({ content }) => content.map((part) => part.transcript ?? part.text));
});
session.on("agent_end", (context, agent, text) => seen.said.push(text));

await session.connect({ url: `${baseURL.replace("http", "ws")}/realtime?model=${session.transport.currentModel}`, apiKey });
await dialogue(
  folder,
  (pcm) => session.sendAudio(pcm.buffer.slice(pcm.byteOffset, pcm.byteOffset + pcm.length)),
  () => session.sendMessage("Hello!"),
);
session.close();
