// The official Node client of OpenAI, unchanged: prints what each style of loop saw, as JSON.
import OpenAI from "openai";

const [baseURL, apiKey, text] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 });
const model = "svc/slm-3b-int4";
const messages = [{ role: "user", content: text }];
const seen = {};

const whole = await client.chat.completions.create({ model, messages });
seen.whole = whole.choices[0].message.content;
seen.chatId = whole.chat_id;

seen.loop = "";
for await (const chunk of await client.chat.completions.create({ model, messages, stream: true })) {
  seen.loop += chunk.choices[0].delta.content;
}

const helper = client.chat.completions.stream({ model, messages });
seen.helperDeltas = "";
helper.on("content", (delta) => (seen.helperDeltas += delta));
const final = await helper.finalChatCompletion();
seen.helper = final.choices[0].message.content;
seen.finish = final.choices[0].finish_reason;
seen.usage = final.usage;

try {
  await client.chat.completions.create({ model, messages, temperature: 3 });
} catch (error) {
  seen.wrong = { name: error.constructor.name, code: error.code, param: error.param };
}

try {
  const broken = [{ role: "user", content: "please do not break now" }];
  const stream = await client.chat.completions.create({ model, messages: broken, stream: true });
  for await (const _ of stream);
} catch (error) {
  seen.broken = error.message;
}

if (baseURL.endsWith("/openai/v1")) {
  const response = await client.responses.create({ model, input: text });
  const stream = client.responses.stream({
    model,
    input: text,
    previous_response_id: response.id,
  });
  let streamed = "";
  stream.on("response.output_text.delta", (event) => (streamed += event.delta));
  const last = await stream.finalResponse();
  seen.responses = { whole: response.output_text, streamed, last: last.output_text };
}

console.log(JSON.stringify(seen));
