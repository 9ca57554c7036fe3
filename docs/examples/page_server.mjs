// Serves the pages beside it, and gives each visitor a short-lived credential, not the API key.
// ANTIPHON_KEY=sk_… node docs/examples/page_server.mjs      http://localhost:9000/captions.html
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";

const service = process.env.ANTIPHON_URL ?? process.env.SERVICE ?? "http://127.0.0.1:8000";
const PAGES = ["/agent.html", "/captions.html", "/speech.html"];
const agent = {
  type: "realtime",
  model: "gpt-realtime",
  instructions: "You answer visitors of a bakery's web page. Greet the visitor. Be brief.",
  max_output_tokens: 200,
  audio: { input: { transcription: { model: "whisper-1", language: "en" } } },
};

async function ask(path, body) {
  const response = await fetch(service + path, {
    method: "POST",
    headers: {
      authorization: `Bearer ${process.env.ANTIPHON_KEY}`,
      "content-type": "application/json",
    },
    body: JSON.stringify(body),
    signal: AbortSignal.timeout(10_000),
  });
  if (!response.ok) throw new Error(`no credential: ${response.status} ${await response.text()}`);
  return response.json();
}

// On your own server, first check that the visitor is logged in.
const credentials = {
  // A credential for speech and transcription, valid for ten minutes.
  "/token": async () => {
    const { token } = await ask("/auth/tokens", { scopes: ["stt", "tts"], expires_in: 600 });
    return { service, token };
  },
  // A credential for calls with this agent, which must begin within a minute.
  "/client-secret": async () => {
    const body = { expires_after: { seconds: 60 }, session: agent };
    const { value } = await ask("/openai/v1/realtime/client_secrets", body);
    return { service, secret: value };
  },
};

createServer(async (request, response) => {
  const path = request.url.split("?")[0];
  try {
    if (request.method === "POST" && Object.hasOwn(credentials, path)) {
      const body = JSON.stringify(await credentials[path]());
      response.writeHead(200, { "content-type": "application/json" }).end(body);
    } else if (request.method === "GET" && PAGES.includes(path)) {
      const page = await readFile(new URL(`.${path}`, import.meta.url));
      response.writeHead(200, { "content-type": "text/html" }).end(page);
    } else {
      response.writeHead(404).end();
    }
  } catch (error) {
    console.error(error.cause ?? error.message);
    response.writeHead(502).end(error.message);
  }
}).listen(Number(process.env.PAGE_PORT ?? 9000), "127.0.0.1");
