// A chat: its messages, streamed answers, and calls of tools.
import { ApiError, aborted, ask, call, events } from "../../api.js";
import { ago, number, t, usd } from "../../i18n.js";
import { markdown } from "../../markdown.js";
import { on, price, session } from "../../session.js";
import { act, aside, button, copyButton, field, form, h, iconButton, markCurrent, onEnter, removed, setButton, status, toolCall, toolResult } from "../../ui.js";
import { refreshCredit } from "../../work.js";
import { chatSettings } from "./settings.js";

const PAGE = 100;
const MOST_PAUSE = 1000; // ms between two updates of a long answer

export function conversation() {
  const place = status();
  const log = h("div.turns.tall", { role: "log", "aria-label": t("chat.log"), tabIndex: 0 });
  const message = h("textarea", { rows: 2, name: "message", required: true });
  const settings = chatSettings({ saves: session.workspace.retention !== "zero" });
  const list = h("ul.chat-list");
  const more = button(t("action.more"), () => showList(page + 1), { kind: "small", hidden: true });
  const sendButton = button(t("chat.send"), () => (stop ? stop() : submit()), { icon: "send", kind: "main", id: "chat-send" });
  let chatId = null;
  let history = []; // of a chat that is not saved, whose earlier messages the service does not know
  let stop = null;
  let page = 1;
  let opened = 0; // counts changes of the shown chat, so that a late answer does not replace a newer choice

  const scroll = () => { log.scrollTop = log.scrollHeight; };
  const turn = (role, text = "") => {
    const content = h("div", role === "user" ? h("p.said-text", text) : markdown(text));
    const made = h("div.turn", { class: role }, h("span.offscreen", t(role === "user" ? "word.you" : "word.model")), content);
    // The longer a text takes to render, the less often it is rendered.
    let latest = text;
    let timer = 0;
    let pause = 0;
    made.show = () => {
      clearTimeout(timer);
      timer = 0;
      const began = performance.now();
      content.replaceChildren(markdown(latest));
      scroll();
      pause = Math.min(10 * (performance.now() - began), MOST_PAUSE);
    };
    made.write = (whole) => {
      latest = whole;
      timer ||= setTimeout(made.show, pause);
    };
    log.append(made);
    scroll();
    return made;
  };
  const reset = () => {
    opened += 1;
    chatId = null;
    history = [];
    log.replaceChildren();
    place.clear();
    mark();
  };
  const mark = () => markCurrent(list.querySelectorAll(".chat-open"), (chat) => chat.dataset.id === chatId);

  const body = (messages) => {
    const fields = settings.fields();
    const json = { ...fields, stream: true };
    if (chatId) json.chat_id = chatId;
    const isFirst = !chatId && !history.length;
    if (isFirst && settings.system) messages = [{ role: "system", content: settings.system }, ...messages];
    json.messages = chatId ? messages : [...history, ...messages];
    return { json, messages };
  };

  // Sends messages and streams the answer into a turn.
  const answer = async (given, input) => {
    const { json, messages } = body(given);
    opened += 1;
    const before = history; // "New chat" begins another
    input?.();
    const control = new AbortController();
    stop = () => control.abort();
    setButton(sendButton, "stop", t("action.stop"));
    place.say(t("chat.answering"));
    const line = turn("assistant");
    let text = "";
    let thoughts = "";
    let model = "";
    let done = {};
    const calls = [];
    try {
      const reply = await call("/v1/chat/completions", { method: "POST", json, signal: control.signal });
      for await (const data of events(reply)) {
        if (data.type === "chat_id") chatId = data.chat_id;
        if (data.type === "error") throw new ApiError(data.error.message, { code: data.error.code });
        if (data.type === "done") done = data;
        model = data.model || model;
        const { delta } = data.choices[0];
        thoughts += delta.reasoning_content || "";
        for (const piece of delta.tool_calls || []) merge(calls, piece);
        if (delta.content) {
          text += delta.content;
          line.write(text);
        }
      }
      line.show();
      before.push(...messages, { role: "assistant", content: text, ...(calls.length ? { tool_calls: calls } : {}) });
      if (thoughts) line.append(h("details", h("summary", t("chat.thinking")), h("p.hint", thoughts)));
      if (text) line.append(h("div.actions", copyButton(text, { of: t("chat.copy_answer") })));
      if (calls.length) askResults(line, calls);
      scroll();
      const tokens = done.usage?.total_tokens || 0;
      place.say(t("chat.done", { model, seconds: number((done.response_time_ms || 0) / 1000, 1), tokens, price: usd(price("chat_token", tokens)) }));
      if (chatId && !list.querySelector("[aria-current]")) showList();
    } catch (error) {
      line.show();
      if (!text && !calls.length) line.remove();
      if (!aborted(error)) throw error;
      if (text) before.push(...messages, { role: "assistant", content: text });
      place.say(t("chat.stopped"));
    } finally {
      stop = null;
      setButton(sendButton, "send", t("chat.send"));
      refreshCredit();
    }
  };

  const showCall = (one) => toolCall(one.function.name, one.function.arguments);
  const askResults = (line, calls) => {
    const inputs = calls.map((one) => toolResult({ name: one.id }));
    const results = form(place, async () => {
      const messages = calls.map((one, at) => ({ role: "tool", tool_call_id: one.id, content: inputs[at].value }));
      await answer(messages, () => {
        results.replaceWith(...messages.map((one) => h("p.hint", one.content)));
        message.focus();
      });
    }, calls.map((one, at) => [showCall(one), field(t("tool.result", { name: one.function.name }), inputs[at])]),
    button(t("chat.send_result"), null, { type: "submit", kind: "small" }));
    line.classList.add("tool");
    line.append(results);
  };

  // A chat that was deleted elsewhere continues as a new one.
  const fail = (error, retry, id = chatId) => {
    if (error.code === "chat_not_found") {
      error.message = t("chat.gone");
      if (chatId === id) chatId = null;
      showList();
    }
    place.fail(error, retry);
  };
  const submit = async () => {
    const content = message.value.trim();
    message.focus();
    if (!content) return;
    let mine = null;
    try {
      await answer([{ role: "user", content }], () => {
        mine = turn("user", content);
        message.value = "";
      });
    } catch (error) {
      if (mine && !message.value) { // an unanswered message can be sent again
        mine.remove();
        message.value = content;
      }
      fail(error, submit);
    }
  };

  const open = async (chat, at = 0) => {
    if (stop && !at) stop();
    opened += 1;
    const mine = opened;
    try {
      const first = await ask(`/chats/${chat.chat_id}?limit=${PAGE}`);
      const last = at || first.pagination.pages || 1;
      const shown = last === 1 ? first : await ask(`/chats/${chat.chat_id}?limit=${PAGE}&page=${last}`);
      if (mine !== opened) return;
      if (!at) {
        reset();
        chatId = chat.chat_id;
      }
      const before = log.scrollHeight;
      const turns = shown.messages.filter((one) => one.role !== "system").map((one) => {
        const made = turn(one.role === "user" ? "user" : "assistant", one.content);
        made.append(...(one.tool_calls || []).map(showCall));
        return made;
      });
      log.querySelector(".earlier")?.remove();
      if (at) log.prepend(...turns);
      if (last > 1) log.prepend(button(t("chat.earlier"), () => open(chat, last - 1), { kind: "small", class: "button small earlier" }));
      log.scrollTop = at ? log.scrollHeight - before : log.scrollHeight;
      mark();
      if (!at) message.focus();
    } catch (error) {
      if (mine === opened) fail(error, () => open(chat, at), chat.chat_id);
    }
  };
  const row = (chat) => {
    const title = chat.title || "…";
    return h("li",
      h("button.chat-open", { type: "button", data: { id: chat.chat_id }, title: t("chat.open", { title }), onclick: () => open(chat) }, h("span", title), h("small", ago(chat.updated_at))),
      iconButton("trash", t("chat.delete", { title }), act(place, async () => {
        if (!(await removed(`/chats/${chat.chat_id}`, t("chat.saved"), t("chat.delete_ask", { title })))) return;
        if (chatId === chat.chat_id) reset();
        await showList();
        fresh.focus();
      })));
  };
  const showList = async (wanted = 1) => {
    let found;
    try {
      found = await ask(`/chats?limit=20&page=${wanted}`);
    } catch (error) {
      if (error.status !== 403) place.fail(error, () => showList(wanted));
      return;
    }
    page = wanted;
    if (page === 1) list.replaceChildren();
    list.append(...found.data.map(row));
    more.hidden = page >= found.pagination.pages;
    mark();
  };
  const fresh = button(t("chat.new"), () => {
    stop?.();
    reset();
    message.focus();
  }, { icon: "plus", id: "chat-new" });

  onEnter(message, (event) => {
    if (event.shiftKey) return;
    event.preventDefault();
    if (!stop) submit();
  });
  showList();
  const made = h("div.chat-grid",
    h("section.card.conversation", { "aria-label": t("chat.mode.chat") },
      settings.answers, h("p.empty.none", t("chat.none")), log, place, h("div.compose", field(t("chat.message"), message), sendButton)),
    h("div.column", aside(t("chat.saved"), fresh, h("p.hint.none", t("chat.saved_none")), list, more), settings));
  made.request = () => ({ title: t("chat.mode.chat"), ...withOpenai(body([{ role: "user", content: message.value || "…" }]).json) });
  made.place = place;
  on("leave", () => stop?.());
  return made;
}

// Appends a piece of a streamed call to the previous pieces.
function merge(calls, piece) {
  const call_ = (calls[piece.index ?? 0] ||= { id: "", type: "function", function: { name: "", arguments: "" } });
  if (piece.id) call_.id = piece.id;
  call_.function.name += piece.function?.name || "";
  call_.function.arguments += piece.function?.arguments || "";
}

function withOpenai(json) {
  const shown = JSON.stringify(json.messages.map(({ role, content }) => ({ role, content })), null, 4);
  const openai = ["stream = client.chat.completions.create(", `    model="${json.model || "gpt-4o-mini"}", stream=True, messages=${shown.replaceAll("\n", "\n    ")}`, ")", "for chunk in stream:", `    print(chunk.choices[0].delta.content or "", end="")`].join("\n");
  return { path: "/v1/chat/completions", json, streams: true, openai };
}
