// Requests to the service. Failures are ApiErrors that say what happened and what to do.
import { t } from "./i18n.js";
import { credential, expire, isLocked, noteLimits, operatorToken, whileHere } from "./session.js";

const MOST_TRIES = 6; // about a minute of attempts while there is a network
const FIRST_WAIT_MS = 1000;
const STALLED_MS = 30_000;
const TICK_MS = 200; // between two looks at the network

export class ApiError extends Error {
  constructor(message, { status = 0, code = "", wait = 0, isEnd = false } = {}) {
    super(message);
    this.status = status; // 0: no answer came
    this.code = code;
    this.wait = wait; // seconds until the request may be repeated
    this.isEnd = isEnd; // the session has ended, which Enter reports
  }
}

// Works also on pages without https, where crypto.randomUUID is missing.
export const newId = () => [...crypto.getRandomValues(new Uint8Array(16))].join("-");

export const aborted = (error) => error?.name === "AbortError";

// Takes the options of fetch, or `json` for the body. Sends the credential unless `open`.
export async function call(path, { json, open = false, credentialToUse, ...options } = {}) {
  const key = open ? null : credentialToUse || credential();
  const headers = { ...options.headers };
  if (key) headers.Authorization = `Bearer ${key}`;
  if (json !== undefined) {
    headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(json);
  }
  if (key && !credentialToUse) options.signal = whileHere(options.signal);
  let answer;
  try {
    answer = await fetch(path, { ...options, headers });
    options.signal?.throwIfAborted();
  } catch (error) {
    if (aborted(error)) throw error;
    throw new ApiError(t(navigator.onLine ? "error.no_answer" : "error.offline"));
  }
  if (key) noteLimits(answer.headers);
  if (!answer.ok) throw await failure(answer.status, answer.headers, await answer.text(), key && !credentialToUse);
  return answer;
}

export const ask = async (path, options) => (await call(path, options)).json();

// Calls with the operator's token; if it has expired, the workspace's session continues.
export const callAsOperator = (path, options) => call(path, { ...options, credentialToUse: operatorToken() || "-" });
export const askAsOperator = async (path, options) => (await callAsOperator(`/operator/${path}`, options)).json();

// `isOwn`: the page's own credential was sent, not one that is only being tried.
async function failure(status, headers, text, isOwn) {
  let body = {};
  try {
    body = JSON.parse(text);
  } catch {
    // a proxy answered
  }
  const wait = status === 429 || status === 503 ? Number(headers.get("Retry-After")) || 0 : 0;
  const isEnd = status === 401 && Boolean(isOwn);
  if (isEnd && !isLocked()) expire();
  const said = typeof body.error === "object" ? body.error : body;
  const message = said?.message || t("error.status", { status });
  return new ApiError(message, { status, wait, isEnd, code: said?.code || body.error || "" });
}

// A form of fields and of files, given as [field, file]. A list is sent item by item.
export function formOf(fields, ...files) {
  const form = new FormData();
  for (const [name, value] of Object.entries(fields)) for (const one of [value].flat()) form.append(name, one);
  for (const [name, file] of files) form.append(name, file, file.name);
  return form;
}

// Sends a form and reports its progress (0 to 1), which fetch cannot. Without a network it waits, calls
// `onWait`, and sends the form again, with the same Idempotency-Key: nothing is done or charged twice.
export async function upload(path, form, { method = "POST", onProgress = () => {}, onWait = () => {}, signal } = {}) {
  const once = newId();
  const stopped = whileHere(signal);
  for (let tries = 0; ; tries += 1) {
    try {
      stopped.throwIfAborted();
      return await send(method, path, form, once, onProgress, stopped);
    } catch (error) {
      const isRunning = tries > 0 && error.code === "idempotency_conflict"; // the first attempt is still running
      if (aborted(error) || !(error.status === 0 || isRunning) || tries === MOST_TRIES) throw error;
      onWait();
      await networkAfter(FIRST_WAIT_MS * 2 ** tries, stopped);
    }
  }
}

function send(method, path, form, once, onProgress, signal) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    let stalled = 0;
    const lost = () => {
      reject(new ApiError(t(navigator.onLine ? "error.no_answer" : "error.offline")));
      request.abort();
    };
    const moved = (isSent) => {
      clearTimeout(stalled);
      if (!isSent) stalled = setTimeout(lost, STALLED_MS);
    };
    request.open(method, path);
    request.setRequestHeader("Authorization", `Bearer ${credential()}`);
    request.setRequestHeader("Idempotency-Key", once);
    request.upload.onprogress = ({ loaded, total }) => {
      moved(loaded === total);
      onProgress(total ? loaded / total : 0);
    };
    request.onload = async () => {
      const headers = { get: (name) => request.getResponseHeader(name) };
      noteLimits(headers);
      if (request.status < 400) resolve(JSON.parse(request.responseText));
      else reject(await failure(request.status, headers, request.responseText, true));
    };
    request.onerror = lost;
    request.onabort = () => reject(new DOMException("", "AbortError"));
    const over = new AbortController();
    request.onloadend = () => {
      clearTimeout(stalled);
      over.abort();
    };
    addEventListener("offline", lost, { signal: over.signal });
    signal.addEventListener("abort", () => request.abort(), { signal: over.signal });
    moved(false);
    request.send(form);
  });
}

// Resolves after `ms` or, while there is no network, as soon as there is one.
async function networkAfter(ms, signal) {
  let wasOffline = false;
  for (let waited = 0; !navigator.onLine || (!wasOffline && waited < ms); waited += TICK_MS) {
    wasOffline ||= !navigator.onLine;
    await new Promise((resolve) => setTimeout(resolve, TICK_MS));
    signal.throwIfAborted();
  }
}

// The items of a list; none if the key lacks the scope.
export async function list(path, name) {
  try {
    return (await ask(path))[name];
  } catch (error) {
    if (error.status !== 403) throw error;
    return [];
  }
}

// The lines of a streamed answer.
export async function* lines(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      rest += value;
      const whole = rest.split("\n");
      rest = whole.pop();
      yield* whole;
    }
    if (rest) yield rest;
  } catch (error) {
    if (aborted(error)) throw error;
    throw new ApiError(t("error.cut"));
  } finally {
    reader.cancel().catch(() => {});
  }
}

// The JSON of each `data:` line of server-sent events, until `[DONE]`.
export async function* events(answer) {
  for await (const line of lines(answer)) {
    if (!line.startsWith("data: ")) continue;
    if (line === "data: [DONE]") return;
    yield JSON.parse(line.slice(6));
  }
}
