// The frame: the panels if there is an accepted credential, otherwise Enter.
import { ask } from "./api.js";
import { closeSockets } from "./audio/socket.js";
import { hush } from "./audio/player.js";
import { chooseLanguage, number, t, usd } from "./i18n.js";
import { icon, svg } from "./icons.js";
import { go, listen, route } from "./router.js";
import { about, credential, drop, emit, endWork, isKey, isOwner, keep, keepOperator, on, operatorToken, recall, session, shareWithTabs } from "./session.js";
import { history as keptSpeech, own, wipe } from "./store.js";
import { announce, button, confirmed, h, markCurrent, status } from "./ui.js";
import { forget, refreshCredit, stopRefreshing } from "./work.js";

const PANELS = ["speak", "listen", "talk", "chat", "jobs", "voices", "account"];
const LINK = /^#login=(.+)$/; // printed by `make run` or `antiphon login-link`; it works once
const panelNames = () => [...(session.workspace ? PANELS : []), ...(operatorToken() ? ["operator"] : [])];
const app = document.getElementById("app");
const skip = document.getElementById("skip");

let frame = null; // frame of the signed-in workspace; kept, detached, after its session has ended
let panels = new Map();
let chosen = null;

skip.addEventListener("click", (event) => {
  event.preventDefault(); // the router owns the hash
  document.getElementById("main")?.focus();
});

const logo = () => svg("svg", { viewBox: "0 0 32 32", class: "logo", "aria-hidden": "true" },
  svg("rect", { width: 32, height: 32, rx: 8, class: "logo-back" }),
  svg("path", { d: "M6 14v4M11 9v14M16 12v8M21 6v20M26 14v4", class: "logo-line" }));

const banner = (name, isShown) => h("p.banner", { id: name, role: "alert", hidden: !isShown }, icon("warn"), t(`nav.${name}`));
const showBanner = (name, isShown) => frame?.querySelectorAll(`#${name}`).forEach((one) => { one.hidden = !isShown; });

function makeFrame() {
  const isUser = session.workspace !== null; // an operator may have none
  const links = panelNames().map((name) => h("li", h("a.nav-link", { href: `#/${name}`, data: { panel: name } }, icon(name), h("span", t(`nav.${name}`)))));
  const credit = h("strong", "–");
  const held = h("small", { hidden: true });
  const meter = h("a.credit", { href: "#/account/overview" }, h("span", t("nav.credit")), credit, held);
  const secret = credential();
  const name = !isUser ? t("nav.operator") : session.user?.email || (isKey(secret) ? t("nav.key", { prefix: secret.slice(0, 11) }) : t("nav.signed_in"));
  const logIn = button(t("operator.log_in"), () => showEnter(), { icon: "account", kind: "quiet small", id: "log-in", label: t("operator.log_in") });
  const leave = button(t("nav.leave"), askAndSignOut, { icon: "leave", kind: "quiet small", id: "leave", label: t("nav.leave") });
  const page = (name, sign) => h("a.nav-docs", { href: `/${name}`, "aria-label": t(`nav.${name}`), target: "_blank", rel: "noopener" }, icon(sign), h("span", t(`nav.${name}`)));
  const main = h("main", { id: "main", tabIndex: -1 });
  const made = h("div.frame",
    h("header.bar", h("a.brand", { href: `#/${panelNames()[0]}`, "aria-label": about.brand }, logo(), h("span", about.brand)), isUser && !isOwner() && meter,
      h("nav", { "aria-label": t("nav.label") }, h("ul", links)),
      h("div.bar-end", page("guide", "help"), page("docs", "book"), h("p.who", { title: name }, name), !isUser && logIn, leave)),
    h("div.main-wrap", banner("offline", !navigator.onLine), banner("paused", false), main));
  made.main = main;
  made.showCredit = (value) => {
    credit.textContent = value === null ? "–" : usd(value, 5);
    held.hidden = !session.held;
    held.textContent = t("nav.held", { amount: number(session.held, 5, 2) });
  };
  made.showCredit(session.credit);
  return made;
}

const closeDialogs = () => document.querySelectorAll("dialog").forEach((one) => one.close());

// Hides the chosen panel: stops its sound, and removes what it may show only once.
function hide() {
  hush();
  panels.get(chosen)?.hide?.();
}

async function showPanel({ name, rest }) {
  if (!frame?.isConnected) return;
  closeDialogs(); // they belong to the previous page
  if (!panelNames().includes(name)) return go(panelNames()[0]);
  const first = chosen === null;
  const mine = frame;
  markCurrent(frame.querySelectorAll(".nav-link"), (link) => link.dataset.panel === name);
  document.title = t("title", { panel: t(`nav.${name}`), brand: about.brand });
  if (chosen !== name) hide();
  chosen = name;
  let panel = panels.get(name);
  if (!panel) {
    const waiting = h("p.loading", { role: "status" }, t("loading"));
    frame.main.replaceChildren(waiting);
    try {
      const module = await import(`./panels/${name}.js`);
      if (mine !== frame || chosen !== name) return; // otherwise the discarded panel would leave its listeners behind
      panel = panels.get(name) || module.default();
    } catch (error) {
      console.warn(error);
      waiting.textContent = t("loading.failed", { reason: error.message });
      return;
    }
    panels.set(name, panel);
  }
  if (frame.main.firstChild !== panel.element) {
    frame.main.replaceChildren(panel.element);
    scrollTo(0, 0);
  }
  panel.show?.(rest);
  if (!first) panel.element.querySelector("h1")?.focus({ preventScroll: true });
}

// Shows the panels for a credential, or throws the service's error about it.
async function enter(secret, user) {
  const identity = await ask("/auth/workspace", { credentialToUse: secret });
  const before = session.workspace || kept;
  if (frame && before?.id !== identity.id) forgetWork();
  keep(secret, user);
  session.workspace = identity;
  kept = null;
  await own();
  shareWithTabs();
  frame ||= makeFrame();
  chosen = null;
  app.replaceChildren(frame);
  emit("entered");
  refreshCredit(0);
  await showPanel(route());
}

// Shows only the operator's page, to an operator without a workspace.
async function enterAsOperator(token) {
  await ask("/operator/overview", { credentialToUse: token });
  keepOperator(token);
  forgetWork();
  frame = makeFrame();
  app.replaceChildren(frame);
  await showPanel(route());
}

let kept = null; // the workspace whose work is kept after its session has ended

// Ends all that works for the workspace, and takes its data out of the page.
function forgetWork() {
  closeSockets();
  stopRefreshing();
  hush();
  endWork();
  panels = new Map();
  frame?.remove();
  frame = chosen = kept = null;
  closeDialogs();
  announce("");
  forget();
}

async function showEnter({ expired = false, failure = null } = {}) {
  document.title = t("title", { panel: t("enter.log_in"), brand: about.brand });
  const { default: makeEnter } = await import("./panels/enter.js");
  const enterPanel = makeEnter({ enter, enterAsOperator, logo, expired, failure, discard: async () => {
    forgetWork();
    await wipe();
    showEnter();
  } });
  app.replaceChildren(enterPanel.element);
  enterPanel.focus();
}

// Signs out, and removes all of the workspace from the page and from the browser.
async function signOut() {
  const secret = credential();
  forgetWork();
  // An API key has no session to end, nor has an expired token.
  const ended = secret && !isKey(secret) ? ask("/auth/logout", { method: "POST", credentialToUse: secret }).catch(() => {}) : null;
  drop();
  keepOperator(null);
  await wipe();
  await ended;
  history.replaceState(null, "", location.pathname);
  await showEnter();
}

async function askAndSignOut() {
  const { length: n } = await keptSpeech();
  if (!n || (await confirmed(t("nav.leave"), t("nav.leave_ask", { n }), t("nav.leave")))) await signOut();
}

on("expired", () => {
  kept = session.workspace;
  closeSockets();
  hide();
  closeDialogs();
  drop();
  showEnter({ expired: true });
}, true);
on("sign-out", signOut, true);
addEventListener("storage", () => { // another tab signed out
  if (!session.workspace || credential()) return;
  forgetWork();
  drop();
  showEnter();
});
addEventListener("hashchange", () => LINK.test(location.hash) && location.reload()); // opened in this tab
on("route", showPanel, true);
on("credit", (value) => frame?.showCredit(value), true);
document.addEventListener("visibilitychange", () => document.hidden || emit("visible"));
for (const event of ["online", "offline"]) addEventListener(event, () => showBanner("offline", !navigator.onLine));
on("paused", (isPaused) => showBanner("paused", isPaused), true);

async function begin() {
  const link = LINK.exec(location.hash)?.[1];
  if (link) history.replaceState(null, "", location.pathname);
  await chooseLanguage();
  listen();
  recall();
  if (link) {
    const error = await ask("/auth/link", { method: "POST", json: { token: link }, open: true }).then(({ user, token }) => keep(token, user), (one) => one);
    if (error && !credential()) return showEnter({ failure: error });
  }
  if (!credential() && !operatorToken()) return showEnter();
  const place = status();
  app.replaceChildren(h("div.starting", logo(), place));
  place.say(t("loading"));
  const attempt = async () => {
    try {
      await (credential() ? enter(credential(), session.user) : enterAsOperator(operatorToken()));
    } catch (error) {
      if (error.status === 401) {
        credential() ? drop() : keepOperator(null);
        await showEnter();
      } else place.fail(error, attempt);
    }
  };
  await attempt();
}

begin();
