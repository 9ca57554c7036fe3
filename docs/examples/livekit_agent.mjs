// A voice agent in rooms of LiveKit, on the models of this service.
//
// npm install @livekit/agents @livekit/agents-plugin-openai zod
// ANTIPHON_KEY=sk_… LIVEKIT_URL=wss://… LIVEKIT_API_KEY=… LIVEKIT_API_SECRET=… \
//   node livekit_agent.mjs start
import { fileURLToPath } from "node:url";
import { ServerOptions, cli, defineAgent, llm, voice } from "@livekit/agents";
import * as openai from "@livekit/agents-plugin-openai";
import { z } from "zod";

const service = process.env.ANTIPHON_URL || process.env.SERVICE || "http://127.0.0.1:8000";
const where = {
  baseURL: `${service}/openai/v1`,
  apiKey: process.env.ANTIPHON_KEY,
};
const weather = llm.tool({
  description: "The weather of a city.",
  parameters: z.object({ city: z.string() }),
  execute: async ({ city }) => `fine in ${city}`,
});

export const concierge = () => new voice.Agent({ instructions: "You are a concierge. Be brief.", tools: { weather } });

// The service detects turns, transcribes them, answers and speaks.
export const ofOneSocket = () =>
  new voice.AgentSession({ llm: new openai.realtime.RealtimeModel({ model: "gpt-realtime", voice: "alloy", ...where }) });

export default defineAgent({
  entry: async (job) => {
    await job.connect();
    const session = ofOneSocket();
    await session.start({ agent: concierge(), room: job.room });
    await session.generateReply({ instructions: "Greet the user." });
  },
});

const file = fileURLToPath(import.meta.url);
if (process.argv[1] === file) cli.runApp(new ServerOptions({ agent: file }));
