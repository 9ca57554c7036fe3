// WebSockets of the service. Signing out closes all that are open.
import { ApiError } from "../api.js";
import { t } from "../i18n.js";
import { credential } from "../session.js";

const REFUSED = 4401;
const NO_CREDIT = 4402;
export const sockets = new Set();

// The credential is in `protocols` or, without these, in the address.
export function openSocket(path, protocols) {
  const url = new URL(path, location.href);
  url.protocol = url.protocol.replace("http", "ws");
  if (!protocols) url.searchParams.set("apiKey", credential());
  const socket = new WebSocket(url, protocols || []);
  sockets.add(socket);
  socket.addEventListener("close", () => sockets.delete(socket));
  return socket;
}

export const closeSockets = () => sockets.forEach((socket) => socket.close());

// Resolves at a clean end of the socket; `handle` gets every message except a refusal. If the socket is refused,
// `why` sends a request that fails for the same reason, but has an error to show. It also detects an expired session.
export function converse(socket, handle, why) {
  return new Promise((resolve, reject) => {
    let last = {}; // the last error message, in which the server says why it ends the session
    let opened = false;
    socket.onopen = () => { opened = true; };
    socket.onmessage = ({ data }) => {
      try {
        const message = JSON.parse(data);
        if (message.error) last = message;
        if (typeof message.error !== "string" || !message.message) handle(message);
      } catch (error) {
        reject(error);
        socket.close();
      }
    };
    socket.onclose = async ({ code }) => {
      if (code === 1000 || code === 1005) return resolve();
      if ((!opened || code === REFUSED) && why) await why().catch(reject);
      const said = last.message || (typeof last.error === "string" ? last.error : last.error?.message);
      if (said && code !== 1006) return reject(new ApiError(said, { status: code, code: code === NO_CREDIT ? "insufficient_credit" : last.error?.code }));
      if (code === 1006) return reject(new ApiError(t(navigator.onLine ? "error.socket" : "error.offline")));
      return reject(new ApiError(t("error.socket_code", { code })));
    };
  });
}
