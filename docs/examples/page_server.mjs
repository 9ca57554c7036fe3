// Serves the pages beside it, and gives each visitor a token in place of the API key.
// ANTIPHON_KEY=sk_… node docs/examples/page_server.mjs      http://localhost:9000/captions.html
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";

const service = process.env.SERVICE ?? "http://127.0.0.1:8000";
const PAGES = ["/captions.html", "/speech.html"];

// A token for ten minutes of speech and transcription. Ask for your own login before.
async function token() {
  const response = await fetch(`${service}/auth/tokens`, {
    method: "POST",
    headers: {
      authorization: `Bearer ${process.env.ANTIPHON_KEY}`,
      "content-type": "application/json",
    },
    body: JSON.stringify({ scopes: ["stt", "tts"], expires_in: 600 }),
    signal: AbortSignal.timeout(10_000),
  });
  if (!response.ok) throw new Error(`no token: ${response.status}`);
  return (await response.json()).token;
}

createServer(async (request, response) => {
  const path = request.url.split("?")[0];
  try {
    if (request.method === "POST") {
      const body = JSON.stringify({ service, token: await token() });
      response.writeHead(200, { "content-type": "application/json" }).end(body);
    } else if (PAGES.includes(path)) {
      const page = await readFile(new URL(`.${path}`, import.meta.url));
      response.writeHead(200, { "content-type": "text/html" }).end(page);
    } else {
      response.writeHead(404).end();
    }
  } catch (error) {
    console.error(error.message);
    response.writeHead(502).end(error.message);
  }
}).listen(Number(process.env.PAGE_PORT ?? 9000), "127.0.0.1");
