// The Vercel AI SDK over both of its providers: prints what it read, as JSON.
import { readFile } from "node:fs/promises";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import {
  experimental_generateSpeech as generateSpeech,
  experimental_transcribe as transcribe,
  generateObject,
  generateText,
  stepCountIs,
  streamText,
  tool,
} from "ai";
import { z } from "zod";

const [baseURL, apiKey, text, call, object, recording] = process.argv.slice(2);
const openai = createOpenAI({ baseURL, apiKey });
const compatible = createOpenAICompatible({
  name: "antiphon",
  baseURL,
  apiKey,
  supportsStructuredOutputs: true,
});
const weather = tool({
  description: "The weather of a city",
  inputSchema: z.object({ city: z.string() }),
  execute: async ({ city }) => `fine in ${city}`,
});
const common = { maxRetries: 0 };

async function chat(model) {
  const seen = {};
  const whole = await generateText({ ...common, model, prompt: text });
  seen.text = whole.text;
  seen.finish = whole.finishReason;
  seen.tokens = whole.usage.outputTokens;

  const stream = streamText({ ...common, model, prompt: text });
  seen.streamed = "";
  for await (const piece of stream.textStream) seen.streamed += piece;
  seen.streamedFinish = await stream.finishReason;
  seen.streamedTokens = (await stream.usage).outputTokens;

  const tools = { ...common, model, prompt: call, tools: { weather } };
  const called = await generateText(tools);
  seen.calls = called.toolCalls.map(({ toolName, input }) => ({ toolName, input }));
  seen.callFinish = called.finishReason;
  const steps = streamText({ ...tools, stopWhen: stepCountIs(2) });
  await steps.consumeStream();
  seen.steps = (await steps.steps).map((step) => step.finishReason);
  seen.results = (await steps.steps)[0].toolResults.map((result) => result.output);
  seen.last = await steps.text;

  const schema = z.object({ name: z.string(), age: z.number() });
  seen.object = (await generateObject({ ...common, model, prompt: object, schema })).object;
  return seen;
}

// The second turn names the message of the first by its id, as this provider does by default.
async function converse(model) {
  const first = await generateText({ ...common, model, prompt: "one two" });
  const messages = [
    { role: "user", content: "one two" },
    ...first.response.messages,
    { role: "user", content: "three" },
  ];
  const second = await generateText({ ...common, model, messages });
  return { text: second.text, tokens: second.usage.inputTokens };
}

const speech = await generateSpeech({
  ...common,
  model: openai.speech("tts-1"),
  text,
  voice: "onyx",
  outputFormat: "wav",
  speed: 2,
});
const heard = await transcribe({
  ...common,
  model: openai.transcription("whisper-1"),
  audio: await readFile(recording),
  providerOptions: { openai: { timestampGranularities: ["word"], prompt: "Antiphon" } },
});
let refused;
try {
  await generateText({ ...common, model: openai.chat("gpt-9"), prompt: text });
} catch (error) {
  refused = { status: error.statusCode, message: error.message, retryable: error.isRetryable };
}
console.log(
  JSON.stringify({
    openai: await chat(openai.chat("svc/echo")),
    responses: await chat(openai("svc/echo")),
    conversation: await converse(openai("svc/echo")),
    compatible: await chat(compatible("svc/echo")),
    speech: { mediaType: speech.audio.mediaType, bytes: speech.audio.uint8Array.length },
    heard: {
      text: heard.text,
      language: heard.language,
      seconds: heard.durationInSeconds,
      segments: heard.segments,
    },
    refused,
  }),
);
