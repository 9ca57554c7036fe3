// Receives the messages of webhooks, verifies them, and prints them.
// SECRET=whsec_… node docs/examples/webhook_receiver.mjs [CERTIFICATE.pem KEY.pem]
import { createHmac, timingSafeEqual } from "node:crypto";
import { readFileSync } from "node:fs";
import { createServer as createHttp } from "node:http";
import { createServer as createHttps } from "node:https";

const secret = process.env.SECRET;
if (!secret) {
  console.error("usage: SECRET=whsec_… node webhook_receiver.mjs [CERTIFICATE.pem KEY.pem]");
  process.exit(1);
}
const seen = new Set(); // in your database: a message may come twice

// Throws unless `body`, the bytes as they came, is a message of the service.
function verify(headers, body) {
  const sentAt = Number(headers["webhook-timestamp"]);
  if (!(Math.abs(Date.now() / 1000 - sentAt) <= 300)) throw new Error("too old, or from the future");
  const isBase64 = secret.startsWith("whsec_");
  const key = isBase64 ? Buffer.from(secret.slice("whsec_".length), "base64") : secret;
  const hmac = createHmac("sha256", key).update(`${headers["webhook-id"]}.${sentAt}.`).update(body);
  const right = Buffer.from(`v1,${hmac.digest("base64")}`);
  const given = (headers["webhook-signature"] ?? "").split(" ").map((text) => Buffer.from(text));
  const equal = (one) => one.length === right.length && timingSafeEqual(one, right);
  if (!given.some(equal)) throw new Error("the signature is wrong");
}

async function receive(request, response) {
  if (request.method !== "POST") return response.writeHead(405).end();
  const body = Buffer.concat(await request.toArray());
  try {
    verify(request.headers, body);
  } catch (error) {
    return response.writeHead(400).end(error.message);
  }
  // Answer first and work later: after 15 s the message counts as failed.
  response.writeHead(204).end();
  if (seen.has(request.headers["webhook-id"])) return;
  seen.add(request.headers["webhook-id"]);
  console.log(JSON.stringify(JSON.parse(body)));
}

const [cert, key] = process.argv.slice(2).map((path) => readFileSync(path));
const server = cert ? createHttps({ cert, key }, receive) : createHttp(receive);
server.listen(Number(process.env.HOOK_PORT ?? 9443), "127.0.0.1");
