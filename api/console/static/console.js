"use strict";

// The credential lives as long as the tab: a key on a shared machine should not outlast it.
const CREDENTIAL = "credential";
const at = (id) => document.getElementById(id);
const isKey = (credential) => (credential || "").startsWith("sk_");
let chatId = null;

function showStatus(text, bad = false) {
  at("status").textContent = text;
  at("status").className = bad ? "bad" : "";
}

async function call(path, options = {}) {
  const headers = { ...options.headers };
  const credential = sessionStorage.getItem(CREDENTIAL);
  if (credential) headers.Authorization = `Bearer ${credential}`;
  if (options.json !== undefined) {
    headers["Content-Type"] = "application/json";
    options = { ...options, body: JSON.stringify(options.json) };
  }
  const answer = await fetch(path, { ...options, headers }).catch(() => {
    throw new Error("The service does not answer.");
  });
  if (!answer.ok) {
    const body = await answer.json().catch(() => ({}));
    if (answer.status === 401 && credential) leave();
    const error = new Error(body.message || `The server answered ${answer.status}.`);
    throw Object.assign(error, { status: answer.status });
  }
  return answer;
}

// Runs a form's handler with its button disabled and its failure shown.
function onSubmit(id, handle) {
  at(id).addEventListener("submit", async (event) => {
    event.preventDefault();
    const buttons = [...event.target.querySelectorAll("button")];
    buttons.forEach((button) => { button.disabled = true; });
    try {
      showStatus("Working …");
      showStatus((await handle(new FormData(event.target), event)) || "");
    } catch (error) {
      showStatus(error.message, true);
    } finally {
      buttons.forEach((button) => { button.disabled = false; });
    }
  });
}

// The items of a list; none where the key lacks the scope or the model is not up yet: the rest of
// the page is usable.
async function fetchList(path, name) {
  try {
    return (await (await call(path)).json())[name];
  } catch (error) {
    if (error.status !== 403 && error.status !== 503) throw error;
    return [];
  }
}

async function enter(credential) {
  sessionStorage.setItem(CREDENTIAL, credential);
  try {
    await show(credential);
  } catch (error) {
    leave();
    throw error;
  }
}

async function show(credential) {
  const voices = await fetchList("/default-voices", "data");
  const languages = await fetchList("/stt/languages", "languages");
  const groups = Map.groupBy
    ? Map.groupBy(voices, (voice) => voice.labels.language_name)
    : voices.reduce((map, voice) => {
        const name = voice.labels.language_name;
        return map.set(name, [...(map.get(name) || []), voice]);
      }, new Map());
  const select = document.querySelector("[name=voice_id]");
  select.replaceChildren(select.options[0]);
  for (const [language, members] of [...groups].sort()) {
    const group = document.createElement("optgroup");
    group.label = language;
    group.append(...members.map((voice) => new Option(`${voice.name} · ${voice.model}`, voice.voice_id)));
    select.append(group);
  }
  // The socket wants a voice; the page's first text is English.
  const english = voices.find((voice) => voice.labels.language === "en") || voices[0];
  at("speak-live").dataset.voice = english ? english.voice_id : "";
  const heard = document.querySelector("[name=language]");
  heard.replaceChildren(heard.options[0]);
  languages.forEach((one) => heard.append(new Option(one.name, one.code)));
  await Promise.all([listKeys(), showAccount()]);
  document.querySelectorAll("#enter form").forEach((form) => form.reset());
  at("enter").hidden = true;
  at("work").hidden = false;
  at("account").hidden = false;
  at("password").hidden = isKey(credential);
  at("who").textContent = isKey(credential) ? `${credential.slice(0, 11)}…` : "Signed in";
}

// Signs out: removes the key and all data of the account, so that the next user does not see them.
function leave() {
  sessionStorage.removeItem(CREDENTIAL);
  chatId = null;
  sockets.forEach((socket) => socket.close());
  for (const id of ["created", "keys", "turns", "heard", "live", "talk"]) at(id).replaceChildren();
  clearAccount();
  at("spoken").removeAttribute("src");
  at("spoken").hidden = true;
  document.querySelectorAll("#work form").forEach((form) => form.reset());
  at("enter").hidden = false;
  at("work").hidden = true;
  at("account").hidden = true;
}

async function listKeys() {
  const keys = await fetchList("/developer/api", "keys");
  at("keys").replaceChildren(...keys.map((key) => {
    const row = document.createElement("tr");
    const when = (time) => (time ? new Date(time).toLocaleString() : "never");
    for (const text of [key.name, `${key.prefix}…`, when(key.created_at), when(key.last_used_at)]) {
      row.insertCell().textContent = text;
    }
    const remove = document.createElement("button");
    remove.type = "button";
    remove.textContent = "Delete";
    remove.addEventListener("click", async () => {
      if (!confirm(`Delete the key ${key.name}? Clients that use it stop working.`)) return;
      await call(`/developer/api/${key.id}`, { method: "DELETE" })
        .then(listKeys).catch((error) => showStatus(error.message, true));
    });
    row.insertCell().append(remove);
    return row;
  }));
}

onSubmit("key-form", (form) => enter(form.get("key").trim()));

onSubmit("login-form", async (form, event) => {
  const path = event.submitter ? event.submitter.value : "/auth/login";
  const json = { email: form.get("email"), password: form.get("password") };
  if (path === "/auth/signup" && form.get("invite")) json.invite = form.get("invite").trim();
  await enter((await (await call(path, { method: "POST", json })).json()).token);
});

onSubmit("speak-form", async (form) => {
  const json = {
    text: form.get("text"),
    speed: Number(form.get("speed")),
    pitch: Number(form.get("pitch")),
    enhance: form.has("enhance"),
  };
  if (form.get("voice_id")) json.voice_id = form.get("voice_id");
  const result = await (await call("/tts-synthesize", { method: "POST", json })).json();
  at("spoken").src = `data:audio/mpeg;base64,${result.audio_base64}`;
  at("spoken").hidden = false;
  at("spoken").play().catch(() => {}); // a browser may want a click first
  return `${result.duration_seconds.toFixed(1)} s of speech`;
});

onSubmit("listen-form", async (form) => {
  if (!form.get("language")) form.delete("language");
  const result = await (await call("/stt", { method: "POST", body: form })).json();
  at("heard").textContent = result.text || "Nothing was said.";
  return `${result.language}, ${result.duration.toFixed(1)} s, confidence ${result.confidence.toFixed(2)}`;
});

onSubmit("chat-form", async (form, event) => {
  const turn = (role, text) => {
    const line = document.createElement("p");
    line.className = role;
    line.textContent = text;
    at("turns").append(line);
    return line;
  };
  const content = form.get("message");
  turn("user", content);
  event.target.reset();
  const line = turn("assistant", "");
  const json = { messages: [{ role: "user", content }], stream: true };
  if (chatId) json.chat_id = chatId;
  const answer = await call("/v1/chat/completions", { method: "POST", json });
  let seconds = 0;
  for await (const data of events(answer.body.getReader())) {
    if (data.type === "chat_id") chatId = data.chat_id;
    if (data.type === "error") throw new Error(data.error.message);
    if (data.type === "done") seconds = data.response_time_ms / 1000;
    line.textContent += data.choices[0].delta.content || "";
    at("turns").scrollTop = at("turns").scrollHeight;
  }
  return `${seconds.toFixed(1)} s`;
});

// The JSON of each `data:` line of a stream, until `[DONE]`.
async function* events(reader) {
  const decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    rest += decoder.decode(value, { stream: true });
    const lines = rest.split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (!line.startsWith("data: ")) continue;
      if (line === "data: [DONE]") return;
      yield JSON.parse(line.slice(6));
    }
  }
}

onSubmit("create-form", async (form, event) => {
  const made = await (await call("/developer/api", { method: "POST", json: { name: form.get("name") } })).json();
  event.target.reset();
  at("created").textContent = `${made.key}\nShown this once: copy it now.`;
  await listKeys();
});

onSubmit("password-form", async (form, event) => {
  const json = { current_password: form.get("current"), new_password: form.get("new") };
  await call("/auth/password", { method: "PUT", json });
  event.target.reset();
  await showSessions();
  return "The password is changed, and all other sessions have ended.";
});

at("leave").addEventListener("click", async () => {
  // An API key has no session, and a token that has ended needs none.
  if (!isKey(sessionStorage.getItem(CREDENTIAL))) {
    await call("/auth/logout", { method: "POST" }).catch(() => {});
  }
  leave();
  location.reload(); // ends playback, recording and streams
});
const { signUp } = document.documentElement.dataset;
document.querySelector("[value='/auth/signup']").hidden = signUp === "closed";
at("invite").hidden = signUp !== "invite";
document.title = at("brand").textContent = `${document.documentElement.dataset.brand || ""} Console`.trim();
// After the other scripts have been loaded.
addEventListener("DOMContentLoaded", () => {
  const credential = sessionStorage.getItem(CREDENTIAL);
  if (credential) enter(credential).catch((error) => showStatus(error.message, true));
});
