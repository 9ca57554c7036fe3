// The Realtime client of openai-node in a spoken dialogue. Arguments: base URL, key, and a folder
// with the user's sentences as WAV files.
import net from "node:net";
import OpenAI from "openai";
import { OpenAIRealtimeWS } from "openai/realtime/ws";
import { dialogue, seen } from "./dialogue.mjs";

const [baseURL, apiKey, folder] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey });
const plain = { createConnection: ({ host, port }) => net.connect(port, host) }; // it dials wss: only
const realtime = new OpenAIRealtimeWS({ model: "gpt-realtime-mini", options: plain }, client);

realtime.on("error", (error) => seen.errors.push(error.message));
realtime.on("conversation.item.input_audio_transcription.completed", (event) =>
  seen.heard.push(event.transcript),
);
realtime.on("response.output_audio.delta", (event) => {
  seen.seconds += Buffer.from(event.delta, "base64").length / 48_000;
});
realtime.on("response.done", ({ response }) => {
  const [item] = response.output;
  seen.said.push(item.content?.[0].transcript ?? "");
  seen.interruptions += response.status_details?.reason === "turn_detected";
  if (item.type !== "function_call") return;
  const { city } = JSON.parse(item.arguments);
  seen.calls.push(city);
  const output = { type: "function_call_output", call_id: item.call_id, output: `fine in ${city}` };
  realtime.send({ type: "conversation.item.create", item: output });
  realtime.send({ type: "response.create" });
});
realtime.socket.on("open", () =>
  realtime.send({
    type: "session.update",
    session: {
      type: "realtime",
      instructions: "You are a concierge.",
      audio: { input: { transcription: { model: "gpt-4o-mini-transcribe" } } },
      tools: [
        {
          type: "function",
          name: "weather",
          description: "The weather of a city.",
          parameters: { type: "object", properties: { city: { type: "string" } } },
        },
      ],
    },
  }),
);
await new Promise((resolve) => realtime.once("session.updated", resolve));
await dialogue(
  folder,
  (pcm) => realtime.send({ type: "input_audio_buffer.append", audio: pcm.toString("base64") }),
  () => realtime.send({ type: "response.create" }),
);
realtime.close();
