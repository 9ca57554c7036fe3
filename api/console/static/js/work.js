// What panels ask for more than once: voices, models, languages, credit.
import { ask, list } from "./api.js";
import { emit, noteCredit, session } from "./session.js";

const kept = new Map();

// The answer of a list, asked for once until `forget`.
function once(name, work) {
  if (!kept.has(name)) {
    const asked = work();
    kept.set(name, asked);
    asked.catch(() => kept.delete(name));
  }
  return kept.get(name);
}

export const voices = () => once("voices", () => list("/default-voices", "data"));
export const languages = () => once("languages", () => list("/stt/languages", "languages"));
export const models = () => once("models", () => list("/models", "data"));

export const forget = (...names) => (names.length ? names.forEach((name) => kept.delete(name)) : kept.clear());

// After a voice is ready or gone: every list of voices is drawn again.
export async function voicesChanged() {
  forget("voices");
  emit("voices", await voices());
}

let timer = 0;

// Soon after work that costs: one question for several requests, since questions count as requests.
export function refreshCredit(wait = 900) {
  clearTimeout(timer);
  const { workspace } = session;
  timer = setTimeout(async () => {
    const today = new Date().toISOString().slice(0, 10);
    const usage = await ask(`/billing/usage?from=${today}&to=${today}`).catch(() => null);
    if (usage && session.workspace === workspace) noteCredit(usage.credit_balance);
  }, wait);
}

export const stopRefreshing = () => clearTimeout(timer);
