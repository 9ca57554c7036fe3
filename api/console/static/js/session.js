// Who is signed in, and what all panels share about the workspace.
//
// The credential lasts as long as the tab, so that no key stays on a shared machine. The credential of the
// owner of a service that serves only its own machine is shared by all tabs, until a sign-out.
const CREDENTIAL = "credential";
const USER = "user";
const OPERATOR = "operator";

export const about = JSON.parse(document.documentElement.dataset.about || "{}");
export const limits = about.limits || {}; // limits of the API, which pages check before a request
export const isKey = (text) => (text || "").startsWith("sk_");
const home = () => (sessionStorage.getItem(CREDENTIAL) || !about.alone ? sessionStorage : localStorage);
export const credential = () => home().getItem(CREDENTIAL);
export const operatorToken = () => sessionStorage.getItem(OPERATOR);
export const keepOperator = (token) => (token ? sessionStorage.setItem(OPERATOR, token) : sessionStorage.removeItem(OPERATOR));

// `workspace` has id, name, plan and retention.
export const session = { workspace: null, user: null, credit: null, held: 0, limits: null };
export const isOwner = () => session.workspace?.plan === "owner"; // without prices, credit and plans

// Listeners for the console's events. Those of the frame stay; those of panels end with the work of a workspace.
let listeners = [];
let locked = false;
let work = new AbortController(); // of the work for a workspace

export const on = (event, handle, isLasting = false) => listeners.push({ event, handle, isLasting });
export const emit = (event, detail) => listeners.filter((one) => one.event === event).forEach((one) => one.handle(detail));

// Ends all work for the workspace: "leave" is the last event of its panels.
export function endWork() {
  emit("leave");
  work.abort();
  work = new AbortController();
  listeners = listeners.filter((one) => one.isLasting);
}

// A signal that also aborts at the end of the work for the workspace, whose answers are not for the next user.
// Browsers before 2024 have no `any`.
export const whileHere = (signal) => (signal && AbortSignal.any ? AbortSignal.any([work.signal, signal]) : signal || work.signal);

export const isSession = (name) => [CREDENTIAL, USER].includes(name);
const forget = (place) => [CREDENTIAL, USER].forEach((name) => place.removeItem(name));

export function keep(secret, user, place = sessionStorage) {
  place.setItem(CREDENTIAL, secret); // not removed first, since other tabs would see that and sign out
  if (user) place.setItem(USER, JSON.stringify({ email: user.email, name: user.name }));
  else place.removeItem(USER);
  session.user = user || null;
  locked = false;
}

export function shareWithTabs() {
  if (!about.alone || !isOwner()) return;
  keep(credential(), session.user, localStorage);
  forget(sessionStorage);
}

export function recall() {
  if (!about.alone) forget(localStorage);
  session.user = JSON.parse(home().getItem(USER) || "null");
}

// Forgets the credential, but keeps the work.
export function drop() {
  forget(home()); // a guest in one tab must not sign out the owner in other tabs
  Object.assign(session, { workspace: null, user: null, credit: null, held: 0, limits: null });
}

export const isLocked = () => locked;

// The service refused the credential: back to Enter, with the work kept for the same workspace.
export function expire() {
  locked = true;
  emit("expired");
}

export function noteLimits(headers) {
  const limit = Number(headers.get("X-RateLimit-Limit"));
  if (!limit) return;
  session.limits = { limit, remaining: Number(headers.get("X-RateLimit-Remaining")) };
  emit("limits", session.limits);
}

// `held` is the credit set aside for work in progress, if the answer has it.
export function noteCredit(credit, held = session.held) {
  Object.assign(session, { credit, held });
  emit("credit", credit);
}

export const micro = (amount) => amount / 1e6;
export const price = (name, count) => micro((about.prices?.[name] || 0) * count);
