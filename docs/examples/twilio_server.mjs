// Answers telephone calls: tells Twilio to connect each call with a voice agent of the service.
// ANTIPHON_KEY=sk_… ANTIPHON_URL=https://speech.example.com node docs/examples/twilio_server.mjs
import { createServer } from "node:http";

const service = process.env.ANTIPHON_URL ?? process.env.SERVICE ?? "http://127.0.0.1:8000";
const session = {
  type: "realtime",
  instructions: "You answer the telephone of a bakery. Greet the caller. Be brief.",
  max_output_tokens: 200,
};

// The credential of one call. It expires soon, and contains the agent's instructions.
async function clientSecret() {
  const response = await fetch(`${service}/openai/v1/realtime/client_secrets`, {
    method: "POST",
    headers: {
      authorization: `Bearer ${process.env.ANTIPHON_KEY}`,
      "content-type": "application/json",
    },
    body: JSON.stringify({ expires_after: { seconds: 60 }, session }),
    signal: AbortSignal.timeout(10_000),
  });
  if (!response.ok) throw new Error(`${response.status} ${await response.text()}`);
  return (await response.json()).value;
}

async function twiml() {
  try {
    const url = `${service.replace("http", "ws")}/telephony/twilio/${await clientSecret()}`;
    const stream = `<Stream url="${url}"><Parameter name="speaks_first" value="true"/></Stream>`;
    return `<Response><Connect>${stream}</Connect></Response>`;
  } catch (error) {
    console.log(`${service} did not create a client secret: ${error.cause ?? error.message}`);
    return "<Response><Say>We cannot answer now. Please call again later.</Say></Response>";
  }
}

createServer(async (request, response) => {
  if (request.method !== "POST") return response.writeHead(405).end();
  const body = `<?xml version="1.0" encoding="UTF-8"?>${await twiml()}`;
  response.writeHead(200, { "content-type": "text/xml" }).end(body);
}).listen(Number(process.env.CALLS_PORT ?? 9001), "127.0.0.1");
