// Elements, and the parts of every panel: labelled fields, buttons that show when they are busy, a status.
import { aborted, ApiError, ask } from "./api.js";
import { t } from "./i18n.js";
import { on } from "./session.js";
import { icon } from "./icons.js";

let ids = 0;
export const newId = (prefix = "x") => `${prefix}-${(ids += 1)}`;

// `h("p.note", {id, onclick, "aria-…"}, …children)`. Values of null or false are left out; text is
// always text: nothing here reads HTML.
export function h(name, properties, ...children) {
  const isProperties = properties?.constructor === Object;
  const [tag, ...classes] = name.split(".");
  const made = document.createElement(tag || "div");
  if (classes.length) made.className = classes.join(" ");
  for (const [key, value] of Object.entries(isProperties ? properties : {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "class") made.classList.add(...value.split(" ").filter(Boolean));
    else if (key === "data") Object.assign(made.dataset, value);
    else if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key in made && !key.startsWith("aria") && key !== "list" && key !== "form") made[key] = value;
    else made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...(isProperties ? children : [properties, ...children]).flat(3).filter((one) => one !== null && one !== undefined && one !== false));
  return made;
}

// Whether a button's work is running. The button keeps the focus, which a disabled button would lose.
const isBusy = (element) => element.getAttribute("aria-disabled") === "true";

export async function busy(element, work) {
  if (!element) return work();
  if (isBusy(element)) return undefined;
  element.setAttribute("aria-disabled", "true");
  element.classList.add("busy");
  try {
    return await work();
  } finally {
    element.removeAttribute("aria-disabled");
    element.classList.remove("busy");
  }
}

// A button; `label` is its name if it shows only an icon, or tells which row it belongs to.
export function button(text, onclick, { icon: name, label, kind = "", ...more } = {}) {
  const made = h("button", { type: "button", class: `button ${kind}`, "aria-label": label, title: text ? null : label, ...more });
  setButton(made, name, text);
  if (onclick) {
    made.addEventListener("click", (event) => {
      if (!isBusy(made)) onclick(event, made);
    });
  }
  return made;
}

export const iconButton = (name, label, onclick, more = {}) => button("", onclick, { icon: name, label, kind: "quiet square", ...more });

export function setButton(made, name, text, label) {
  made.replaceChildren(...(name ? [icon(name)] : []), ...(text ? [h("span", text)] : []));
  if (label) made.setAttribute("aria-label", label);
}

// Calls `handle` for Enter, but not for the one that ends a composition, such as of Japanese. In Safari, only its `keyCode` (229) differs.
export const onEnter = (element, handle) => element.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.isComposing && event.keyCode !== 229) handle(event);
});

export function field(label, control, { hint, kind = "" } = {}) {
  control.id ||= newId("field");
  const about = hint && h("p.hint", { id: newId("hint") }, hint);
  if (about) control.setAttribute("aria-describedby", about.id);
  return Object.assign(h("div.field", { class: kind }, h("label", { htmlFor: control.id }, label), control, about), { control });
}

export function check(label, properties = {}) {
  const box = h("input", { type: "checkbox", id: newId("check"), ...properties });
  box.defaultChecked = box.checked; // the state after a reset of the form
  const made = h("div.check", box, h("label", { htmlFor: box.id }, label));
  made.box = box;
  return made;
}

// The values of controls by name: texts that are not empty, and checked boxes.
export const chosenIn = (...controls) => Object.fromEntries(controls
  .map((one) => [one.name, one.type === "checkbox" ? one.checked : one.value.trim()])
  .filter(([, value]) => value));

// `choices` are [value, text].
export const select = (choices, properties = {}) =>
  h("select", properties, choices.map(([value, text]) => new Option(text, value, false, value === properties.value)));

export function range(label, { min, max, step, value, show = (v) => v, ...more }) {
  const output = h("output", show(value));
  const input = h("input", { type: "range", min, max, step, value, ...more });
  const update = () => {
    output.value = show(Number(input.value));
    input.setAttribute("aria-valuetext", show(Number(input.value)));
  };
  input.addEventListener("input", update);
  update();
  const made = field(label, input, { kind: "range" });
  made.firstChild.append(output);
  made.input = input;
  return made;
}

// Where a panel shows its status and its errors.
export function status() {
  const said = h("p.said", { role: "status", "aria-live": "polite" });
  const failed = h("div.failed", { role: "alert", hidden: true });
  const made = h("div.status", said, failed);
  let ticking = 0;
  let failedWork = null;
  const clear = () => {
    clearInterval(ticking);
    failedWork = null;
    said.textContent = "";
    failed.hidden = true;
    failed.replaceChildren();
  };
  made.clear = clear;
  made.say = (text) => {
    clear();
    said.textContent = text;
  };
  // `retry` is offered if it may help, at once or after the time that the service requested.
  made.fail = (error, retry) => {
    if (aborted(error) || error?.isEnd) return clear();
    const text = sentence(error.message);
    // A repeated failure, such as of a poll, moves neither the page nor the focus.
    if (!failed.hidden && failedWork === retry && failed.children[1].textContent === text && !error.wait) return;
    clear();
    if (!(error instanceof ApiError) && !error.isExplained) console.warn(error);
    failed.hidden = false;
    failedWork = retry;
    failed.append(icon("warn"), h("p", text));
    const help = helpFor(error);
    if (help) failed.append(help);
    const again = retry && mayHelp(error) && button(t("action.retry"), () => { clear(); retry(); }, { icon: "refresh", kind: "small" });
    if (error.wait) countDown(error.wait, failed, again);
    else if (again) failed.append(again);
    failed.scrollIntoView({ block: "nearest" });
  };
  // Removes the failure of work that has since succeeded, but no other failure, such as a button's.
  made.recover = (work) => failedWork === work && clear();
  const countDown = (seconds, place, again) => {
    const line = h("p.wait", { "aria-live": "off" });
    place.append(line);
    const end = Date.now() + seconds * 1000;
    const tick = () => {
      const left = Math.ceil((end - Date.now()) / 1000);
      line.textContent = left > 0 ? t("error.wait", { n: left }) : t("error.waited");
      if (left > 0) return;
      clearInterval(ticking);
      if (again) place.append(again);
    };
    tick();
    ticking = setInterval(tick, 250);
  };
  return made;
}

// Whether the same request may succeed later: there was no answer, the service is busy or broken, another request was in
// the way, or credit was missing. A socket closed with 1008 refuses permanently.
const LATER = [0, 402, 408, 409, 429];
export const mayHelp = ({ status = 0, isExplained }) => !isExplained && (LATER.includes(status) || (status >= 500 && status !== 1008));

// A link to the jobs, for input beyond the limits of a request.
export const jobLink = (kind) => h("a", { href: `#/jobs/${kind}` }, t(`jobs.instead.${kind}`));

// The part of the account's overview that explains a refusal, by the service's code.
const OVERVIEW_HELP = { insufficient_credit: "credit", insufficient_quota: "credit", plan_required: "plan", storage_limit: "plan" };

function helpFor({ job, code }) {
  if (job) return jobLink(job);
  if (code === "insufficient_scope") return h("p", t("error.scope_help"));
  return OVERVIEW_HELP[code] && h("a", { href: "#/account/overview" }, t(`error.${OVERVIEW_HELP[code]}_help`));
}

// The service's messages begin with the field: "text: has 6000 characters".
export function sentence(text) {
  const whole = text.trim();
  const end = /[.!?…]$/.test(whole) ? "" : ".";
  return whole.charAt(0).toUpperCase() + whole.slice(1) + end;
}

// The service's messages begin with the name of a field. If a form has that field, the message shows its label instead,
// and the field is marked until it is changed.
function named(error, made) {
  const [whole, name] = /^(\w+)(?:\.\w+)*: /.exec(error.message) || [];
  const control = name && made.querySelector(`[name="${name}"]`);
  const label = control?.labels?.[0];
  if (!(error instanceof ApiError) || !label) return error;
  error.message = `${label.textContent}: ${error.message.slice(whole.length)}`;
  markInvalid(control);
  return error;
}

// Marks a control as invalid until it is changed.
export function markInvalid(control) {
  control.setAttribute("aria-invalid", "true");
  control.addEventListener("input", () => control.removeAttribute("aria-invalid"), { once: true });
}

// An error of the page itself, such as a missing microphone.
export const explained = (text, more) => Object.assign(new Error(text), { isExplained: true, ...more });

// A form that keeps its focus. `handle` gets the form; its failure is shown in `place`.
export function form(place, handle, ...children) {
  const made = h("form", { noValidate: false }, ...children);
  const submit = async () => {
    const main = made.querySelector("[type=submit]");
    await busy(main, async () => {
      place.clear();
      try {
        await handle(made);
      } catch (error) {
        place.fail(named(error, made), error.wait || error.status === 0 ? submit : undefined);
      }
    });
  };
  made.addEventListener("submit", (event) => {
    event.preventDefault();
    submit();
  });
  return made;
}

export const submitButton = (text, more = {}) => button(text, null, { kind: "main", type: "submit", ...more });

// Lets the browser ask before a reload that would lose unsaved work.
export function keepFromLoss(isAtRisk) {
  const warn = (event) => isAtRisk() && event.preventDefault();
  addEventListener("beforeunload", warn); // only when needed: with a listener, browsers do not cache the page for "Back"
  on("leave", () => removeEventListener("beforeunload", warn));
}

// Runs the work of a button and shows its failure in `place`.
export const act = (place, work) => (event, made) =>
  busy(made, () => Promise.resolve().then(() => work(event)).catch((error) => place.fail(error)));

// The focus returns to the element that opened a dialog, or to its namesake in a redrawn list.
function againIn(opener) {
  const nameOf = (one) => one.getAttribute("aria-label") || one.textContent;
  const same = [...document.querySelectorAll("main button")].find((one) => one.checkVisibility() && nameOf(one) === nameOf(opener));
  (same || document.querySelector("main h1"))?.focus();
}

export function dialog(title, content, { kind = "" } = {}) {
  const heading = h("h2", { id: newId("dialog") }, title);
  const made = h("dialog", { class: kind, "aria-labelledby": heading.id });
  const shut = iconButton("close", t("action.close"), () => made.close());
  const opener = document.activeElement;
  made.append(h("header.dialog-head", heading, shut), h("div.dialog-body", content));
  made.addEventListener("close", () => {
    made.remove();
    if (document.activeElement === document.body) againIn(opener);
  });
  made.addEventListener("click", (event) => event.target === made && made.close());
  document.body.append(made);
  made.showModal();
  return made;
}

// Colours of the statuses that the API names: of webhooks, deliveries, voices, jobs and models.
const STATUSES = {
  active: "good", delivered: "good", ready: "good", completed: "good",
  pending: "warn", processing: "warn", uploading: "warn",
  failed: "bad", inactive: "bad", unavailable: "bad",
};
export const statusBadge = (name, text = name) => h("span.badge", { class: STATUSES[name] }, text);

// A dialog with a form, which `send` closes when its work is done: `send(close)`.
export function formDialog(title, send, content, submit, options) {
  const place = status();
  const made = dialog(title, form(place, () => send(() => made.close()), ...content, submitButton(submit), place), options);
}

// A folded field for JSON, with a button that inserts a sample.
export const jsonField = (label, box, hint, sample) =>
  h("details", h("summary", label), h("div.stack", field(label, box, { hint }),
    h("div.actions", button(t("action.sample"), () => { box.value = JSON.stringify(sample, null, 2); box.focus(); }, { kind: "small" }))));

// The JSON of a box, or null if it is empty. If it is wrong, throws the problem, and shows the box.
export function readJson(box, label) {
  if (!box.value.trim()) return null;
  try {
    return JSON.parse(box.value);
  } catch (error) {
    for (let up = box; (up = up.parentElement?.closest("details")); ) up.open = true;
    box.focus();
    throw explained(t("tool.not_json", { field: label, reason: error.message }));
  }
}

// The functions that a box lists as JSON: {name, description, parameters}.
export function readTools(box) {
  const list = readJson(box, t("tool.list")) ?? [];
  if (!Array.isArray(list) || !list.every((one) => one?.name || one?.function?.name)) throw explained(t("tool.not_list", { field: t("tool.list") }));
  return list.map((one) => one.function || one);
}

// A call of a tool, as a language model asks for it.
export const toolCall = (name, given) => h("p", icon("tool"), " ", h("strong", t("tool.call", { name })), " ", h("code", given));
export const toolResult = (properties = {}) => h("input", { value: '"ok"', autocomplete: "off", spellcheck: false, ...properties });

// Draws rows, each made by `row` with its `update`. A row stays as long as its key, and the focus stays in its row.
export function drawRows(list, items, row, keyOf) {
  const rows = new Map([...list.children].map((one) => [one.dataset.key, one]));
  const focused = document.activeElement;
  const id = focused.closest("[data-id]")?.dataset.id;
  const next = items.map((item) => {
    const key = keyOf(item);
    const made = rows.get(key) || row(item);
    made.dataset.key = key;
    made.update?.(item);
    return made;
  });
  if (next.length !== rows.size || next.some((one, at) => one !== list.children[at])) list.replaceChildren(...next);
  if (focused.isConnected) focused.focus();
  else list.querySelector(`[data-id="${id}"] button`)?.focus({ preventScroll: true });
}

// A button to choose files, and its input; `onfiles` gets the files and the button.
export function filePicker(text, accept, onfiles, { multiple = false, ...more } = {}) {
  const input = h("input.offscreen", { type: "file", accept, multiple, tabIndex: -1, "aria-label": more.label || text });
  const made = button(text, () => input.click(), more);
  input.addEventListener("change", () => {
    const files = [...input.files];
    input.value = ""; // the same file may be chosen again
    if (files.length) onfiles(files, made);
  });
  return [made, input];
}

// A button that starts work, and stops it while it runs: `work(stopBy)` passes the function that stops it to `stopBy`.
// `idle` and `running`, each an icon and a text, set the button's look.
export function workButton(idle, running, work, properties) {
  let stop = null;
  let left = false; // the panel ended before the work could be stopped
  const made = button("", () => (stop ? stop() : made.run()), properties);
  const show = () => {
    made.classList.toggle("running", stop !== null);
    setButton(made, ...(stop ? running : idle));
  };
  made.stop = () => stop?.();
  made.run = async () => {
    stop = () => {}; // a click during the start must not begin a second run
    left = false;
    show();
    try {
      await work((end) => {
        stop = end;
        if (left) end();
      });
    } finally {
      stop = null;
      show();
    }
  };
  on("leave", () => {
    left = true;
    made.stop();
  });
  show();
  return made;
}

// True when the user agrees. `word` must be typed if the action cannot be undone.
export function confirmed(title, text, action, word = "") {
  return new Promise((resolve) => {
    const typed = h("input", { type: "text", autocomplete: "off", spellcheck: false });
    const yes = button(action, () => {
      if (word && typed.value.trim() !== word) return typed.focus();
      answer = true;
      made.close();
    }, { kind: "danger" });
    const no = button(t("action.back"), () => made.close());
    let answer = false;
    const made = dialog(title, [
      h("p", text),
      word && field(t("confirm.type", { word }), typed),
      h("div.actions", no, yes),
    ], { kind: "narrow" });
    made.addEventListener("close", () => resolve(answer));
    (word ? typed : no).focus();
  });
}

// Deletes the object at a path of the API, if the user agrees; returns whether it was deleted.
export async function removed(path, title, question) {
  if (!(await confirmed(title, question, t("action.delete")))) return false;
  await ask(path, { method: "DELETE" });
  return true;
}

// Shows a part of a panel by its `load`; a failure is shown in `place`, and can be tried again.
export function shownBy(load, place, made) {
  made.show = () => Promise.resolve(load()).then(() => place.recover(made.show), (error) => place.fail(error, made.show));
  return made;
}

// Marks one of several links or buttons as the current one.
export function markCurrent(all, isCurrent) {
  for (const one of all) {
    if (isCurrent(one)) one.setAttribute("aria-current", one.href ? "page" : "true");
    else one.removeAttribute("aria-current");
  }
}

export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch { // pages over plain http have no clipboard
    const area = h("textarea.offscreen", { value: text });
    (document.querySelector("dialog[open]") || document.body).append(area);
    const focused = document.activeElement;
    area.select();
    document.execCommand("copy");
    area.remove();
    focused?.focus();
  }
}

export const copyButton = (text, { label = t("action.copy"), of } = {}) => button(label, async (_, made) => {
  await copy(typeof text === "function" ? text() : text);
  made.lastChild.textContent = t("action.copied");
  announce(t("action.copied"));
  setTimeout(() => { made.lastChild.textContent = label; }, 1600);
}, { icon: "copy", kind: "small", label: of });

// Announces a short text to screen readers, for changes that are only visible.
export function announce(text) {
  let place = document.getElementById("announcer");
  if (!place) document.body.append((place = h("div.offscreen", { id: "announcer", role: "status" })));
  place.textContent = text;
}

export function download(blob, name) {
  const link = h("a", { href: URL.createObjectURL(blob), download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

// A name for a file, from a text.
export const fileName = (text, end) =>
  `${text.normalize("NFC").replace(/[^\p{L}\p{M}\p{N}]+/gu, "-").replace(/^-+|-+$/g, "").slice(0, 48).toLowerCase() || "audio"}.${end}`;

// On narrow screens, each row is a block with the heads beside its cells; the roles keep it a table. Without rows, the
// text `empty` is shown.
export function table(label, heads, rows, empty) {
  if (!rows.length && empty) return h("p.empty", empty);
  const cell = (content, at) => h(at ? "td" : "th", at ? { role: "cell", data: { head: heads[at] } } : { scope: "row", role: "rowheader" }, content);
  const body = h("tbody", { role: "rowgroup" }, rows.map((cells) => h("tr", { role: "row" }, cells.map(cell))));
  const head = h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, heads.map((text) => h("th", { scope: "col", role: "columnheader" }, text || h("span.offscreen", t("table.actions"))))));
  return h("div.table", { tabIndex: 0, role: "group", "aria-label": label }, h("table", { role: "table" }, head, body));
}

// Tabs of [id, text, element or a function that makes it]; `choose(id)` shows one, and the address of a `panel` names it.
export function tabs(label, entries, onchoose = () => {}, panel = "") {
  const places = new Map();
  const bar = h("div.tabs", { role: "tablist", "aria-label": label });
  const made = h("div.tabbed", bar);
  made.choose = (id) => {
    for (const [key, { tab, place }] of places) {
      const chosen = key === id;
      tab.setAttribute("aria-selected", String(chosen));
      tab.tabIndex = chosen ? 0 : -1;
      place.hidden = !chosen;
    }
    const { tab: shownTab, place, content } = places.get(id);
    if (shownTab.isConnected) bar.scrollLeft = shownTab.offsetLeft - bar.clientWidth / 3;
    if (typeof content === "function" && !place.childElementCount) place.append(content());
    made.chosen = id;
    if (panel) history.replaceState(null, "", `#/${panel}/${id}`);
    onchoose(id);
  };
  made.show = ([id] = []) => made.choose(places.has(id) ? id : made.chosen || entries[0][0]);
  for (const [id, text, content] of entries) {
    const tab = h("button.tab", { type: "button", role: "tab", id: newId("tab"), onclick: () => made.choose(id) }, text);
    const place = h("div", { role: "tabpanel", id: newId("tabpanel"), "aria-labelledby": tab.id, hidden: true });
    tab.setAttribute("aria-controls", place.id);
    if (typeof content !== "function") place.append(content);
    places.set(id, { tab, place, content });
    bar.append(tab);
    made.append(place);
  }
  bar.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const keys = [...places.keys()];
    const next = keys[(keys.indexOf(made.chosen) + step + keys.length) % keys.length];
    made.choose(next);
    places.get(next).tab.focus();
    event.preventDefault();
  });
  return made;
}

// The parts of a panel, each created by `makers` when it is first chosen; the address names the chosen one.
export function panelParts(panel, makers, onchoose = () => {}) {
  const made = new Map();
  const part = (name) => {
    if (!made.has(name)) made.set(name, makers[name]());
    return made.get(name);
  };
  const element = tabs(t(`${panel}.parts`), Object.keys(makers).map((name) => [name, t(`${panel}.${name}`), () => part(name)]), (name) => {
    for (const [other, one] of made) if (other !== name) one.hide?.();
    part(name).show?.();
    onchoose(name);
  }, panel);
  return {
    element,
    part,
    show: element.show,
    hide: () => made.forEach((one) => one.hide?.()),
  };
}

export const card = (title, ...children) => {
  const heading = h("h2", { id: newId("card") }, title);
  return h("section.card", { "aria-labelledby": heading.id }, heading, ...children);
};

// Cards that are shown together.
export const stacked = (...cards) => Object.assign(h("div.stack", cards), { show: () => cards.forEach((one) => one && one.show?.()) });

// A card of lower importance than its page's main part.
export function aside(...content) {
  const made = card(...content);
  made.classList.add("aside");
  return made;
}

// Optional settings.
export const folded = (title, ...children) => h("details.card.aside.folded", h("summary", title), h("div.stack", children));

// The head of a panel; its heading takes the focus when the panel is shown.
export const panelHead = (title, about, ...actions) =>
  h("header.panel-head", h("div", h("h1", { tabIndex: -1 }, title), h("p.lead", about)), h("div.actions", ...actions));
