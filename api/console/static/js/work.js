// Data that several panels need: voices, models, languages, credit.
import { ApiError, ask, list } from "./api.js";
import { t } from "./i18n.js";
import { emit, isOwner, noteCredit, on, session } from "./session.js";
import { mayHelp } from "./ui.js";

const RETRY_MS = 5000;

const kept = new Map();

// The answer of a list, requested only once until `forget`.
function once(name, work) {
  if (!kept.has(name)) {
    const asked = work();
    kept.set(name, asked);
    asked.catch(() => kept.delete(name));
  }
  return kept.get(name);
}

let era = 0; // counts the workspaces that were left, whose answers are not shown
on("leave", () => { era += 1; }, true);

// Makes a function that shows what `read` finds, or its failure in `place`. It reads again after the milliseconds that
// `show` returns, and after a temporary failure while `isShown`.
function reader(read, show, place, isShown = () => true) {
  const mine = era;
  let next = 0;
  return async function look() {
    if (mine !== era) return;
    let pause = 0;
    try {
      const found = await read();
      if (mine !== era) return;
      place?.recover(look);
      pause = show(found);
    } catch (error) {
      if (mine !== era) return;
      if (!(error instanceof ApiError)) throw error;
      place?.fail(error, look);
      pause = isShown() && mayHelp(error) ? Math.max(RETRY_MS, 1000 * (error.wait || 0)) : 0;
    }
    clearTimeout(next); // another look may have overlapped this one
    if (pause) next = setTimeout(look, pause);
  };
}

// Shows what `read` finds, as soon as it finds it. Resolves after the first attempt.
export const soon = (read, show, place) => reader(read, (found) => void show(found), place)();

const LISTS = { voices: "/default-voices", dictionaries: "/pronunciations?limit=100" };
export const sharedList = (name) => once(name, () => list(LISTS[name], "data"));

// Calls `show` with a list, now and whenever it has changed.
export function follow(name, show, place) {
  on(name, show);
  return soon(() => sharedList(name), show, place);
}

// Reads a list again, after a voice or a dictionary is made, changed or deleted.
export function changed(name) {
  kept.delete(name);
  return soon(() => sharedList(name), (all) => emit(name, all));
}

const byName = (one, other) => one.name.localeCompare(other.name);
const languages = () => once("languages", async () => (await list("/stt/languages", "languages")).sort(byName));
// The name of a language, with the measured quality of its recognition, if any.
const graded = (language) => (language.grade ? `${language.name} (${t(`language.${language.grade}`)})` : language.name);

// Adds the languages of recognition to a list of choices.
export const fillLanguages = (box) => soon(languages, (all) => box.append(...all.map((one) => new Option(graded(one), one.code))));

// Adds the languages that custom voices accept; `british` is English with another accent.
export const fillVoiceLanguages = (box, british) => soon(() => list("/voices/languages", "languages"), (all) => {
  const accents = all.some((one) => one.code === "en") ? [british] : [];
  box.append(...[...all, ...accents].sort(byName).map((one) => new Option(one.name, one.code)));
});

// [code, name] of the languages of voices, by name.
export const voiceLanguages = (all) =>
  [...new Map(all.map((one) => [one.labels.language, one.labels.language_name]))].sort((one, other) => one[1].localeCompare(other[1]));

// All models, and the default chat model. Only OpenAI's list tells which it is: the model with the name of
// OpenAI's voice agent.
async function models() {
  const all = await once("models", () => list("/openai/v1/models", "data"));
  return { all, usual: all.find((one) => one.aliases.includes("gpt-realtime")) };
}

// Adds the chat models to a list whose first choice lets the service decide, and shows which model that is.
export const fillModels = (box, then = () => {}) => soon(models, ({ all, usual }) => {
  if (usual) box.options[0].textContent = t("model.default", { model: usual.id });
  box.append(...all.filter((one) => one.kind === "chat").map((one) => new Option(one.id, one.id)));
  then();
});

// Shows in `about` which chat model answers for the choice in `box`, and how much of its successor is
// downloaded.
export const tellModel = (about, box) => soon(models, ({ all, usual }) => {
  const chosen = all.find((one) => one.id === box.value) || usual;
  if (!chosen) return;
  const { coming, status } = chosen;
  const share = coming && Math.round((100 * coming.got_bytes) / coming.size_bytes);
  const lines = [t(status === "unavailable" ? "model.none" : "model.answers", { model: chosen.id })];
  if (coming) lines.push(t(coming.problem ? "model.waits" : "model.coming", { ...coming, share }));
  about.textContent = lines.join(" ");
  if (!coming) return;
  kept.delete("models");
  setTimeout(() => about.isConnected && tellModel(about, box), 5000);
});

export const forget = () => kept.clear();

// Polls what a panel shows: `draw` shows the result of `read`, and returns the milliseconds until the next read, or 0.
export function watch(panel, place, read, draw) {
  const made = { isShown: false };
  on("route", ({ name }) => { made.isShown = name === panel; });
  made.look = reader(read, draw, place, () => made.isShown);
  made.show = () => {
    made.isShown = true;
    made.look();
  };
  return made;
}

// Shows the progress of an upload in `place`, and at its end the text `then`.
export const told = (place, then) => ({
  onProgress: (share) => place.say(share === 1 && then ? then : t("upload.sent", { percent: Math.floor(share * 100) })),
  onWait: () => place.say(t("error.resend")),
});

let timer = 0;

// Called soon after charged work; asks once for several requests, since each question counts as a request.
export function refreshCredit(wait = 900) {
  clearTimeout(timer);
  if (isOwner()) return;
  const { workspace } = session;
  timer = setTimeout(async () => {
    const today = new Date().toISOString().slice(0, 10);
    const usage = await ask(`/billing/usage?from=${today}&to=${today}`).catch(() => null);
    if (usage && session.workspace === workspace) noteCredit(usage.credit_balance, usage.credit_held);
  }, wait);
}

export const stopRefreshing = () => clearTimeout(timer);
