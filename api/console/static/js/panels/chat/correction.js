// Correction: every change as a diff that can be accepted or rejected.
import { ask } from "../../api.js";
import { t, usd } from "../../i18n.js";
import { limits, price } from "../../session.js";
import { aside, button, chosenIn, copyButton, explained, field, form, h, iconButton, select, status, submitButton } from "../../ui.js";
import { refreshCredit } from "../../work.js";

const CONTEXTS = ["", "email", "chat", "document", "message", "social"];
const STYLES = ["autoCapitalize", "autoPunctuate", "useContractions", "expandAbbreviations"];

function dictionary() {
  const rows = h("div.pairs");
  const made = h("div.stack", h("p.hint", t("correct.dictionary_hint")), rows, h("div.actions", button(t("correct.add"), () => add().focus(), { icon: "plus", kind: "small" })));
  const add = () => {
    const term = h("input", { maxLength: 200, autocomplete: "off" });
    const replacement = h("input", { maxLength: 200, autocomplete: "off" });
    const row = h("div.pair", field(t("correct.term"), term), field(t("correct.replacement"), replacement));
    row.append(iconButton("close", t("correct.remove", { term: "" }), () => row.remove()));
    row.entry = () => ({ term: term.value.trim(), replacement: replacement.value });
    rows.append(row);
    return term;
  };
  made.entries = () => [...rows.children].map((row) => row.entry()).filter((one) => one.term);
  return made;
}

export function correction() {
  const place = status();
  const text = h("textarea.big", { rows: 7, name: "text", value: t("correct.first"), spellcheck: false });
  const count = h("p.count");
  const context = select(CONTEXTS.map((one) => [one, t(`correct.context.${one || "none"}`)]), { name: "appContext" });
  const tone = h("input", { name: "tone", maxLength: 100, autocomplete: "off" });
  const styles = new Map(STYLES.map((name) => [name, select(["", "true", "false"].map((one) => [one, t(`correct.choice.${one}`)]))]));
  const terms = dictionary();
  const facts = h("p.hint", { role: "status" });
  const warnings = h("ul.hint", { "aria-label": t("correct.undone") });
  const shown = h("div.corrected.of-content");
  let original = [];
  let edits = []; // with `taken`

  const size = () => [...text.value].length;
  const recount = () => {
    count.textContent = t("text.count", { n: size(), most: limits.correction_characters });
    count.classList.toggle("bad", size() > limits.correction_characters);
  };
  const body = () => {
    const json = { text: text.value, stream: false, save_chat: false, ...chosenIn(context) };
    const style = chosenIn(tone);
    for (const [name, box] of styles) if (box.value) style[name] = box.value === "true";
    if (Object.keys(style).length) json.style = style;
    if (terms.entries().length) json.dictionary = terms.entries();
    return json;
  };
  // The text as strings that stay, and the edits between them.
  const parts = () => {
    const textBetween = (from, to) => original.slice(from, to).join("");
    const found = edits.flatMap((edit, at) => [textBetween(edits[at - 1]?.end ?? 0, edit.start), edit]);
    return [...found, textBetween(edits.at(-1)?.end ?? 0)];
  };
  const result = () => parts().map((part) => (part.taken ? part.replacement : part.original ?? part)).join("");
  const editButton = (edit) => {
    const nothing = t("correct.nothing_there");
    const made = h("button.edit", {
      type: "button", title: edit.kind, "aria-pressed": String(edit.taken),
      "aria-label": t("correct.edit", { kind: edit.kind, original: edit.original.trim() || nothing, replacement: edit.replacement.trim() || nothing }),
      onclick: () => edit.take(!edit.taken),
    }, edit.original && h("del", edit.original), edit.replacement && h("ins", edit.replacement));
    edit.take = (taken) => {
      edit.taken = taken;
      made.setAttribute("aria-pressed", String(taken));
    };
    return made;
  };
  const draw = () => shown.replaceChildren(...parts().map((part) => (edits.includes(part) ? editButton(part) : part)));
  const after = h("div.actions.of-content",
    copyButton(result, { label: t("correct.copy") }),
    button(t("correct.all"), () => edits.forEach((one) => one.take(true)), { kind: "small" }),
    button(t("correct.no"), () => edits.forEach((one) => one.take(false)), { kind: "small" }));

  const correct = form(place, async () => {
    if (!text.value.trim()) throw explained(t("speak.empty"));
    if (size() > limits.correction_characters) throw explained(t("correct.over", { n: size(), most: limits.correction_characters }));
    const json = body();
    const answer = await ask("/v1/chat/completions", { method: "POST", json });
    original = [...json.text];
    edits = answer.correction.edits.map((one) => ({ ...one, taken: true }));
    const undone = answer.correction.warnings;
    const unchanged = undone.length ? t("correct.unchanged") : t("correct.nothing");
    facts.textContent = edits.length ? t("correct.edits", { n: edits.length, model: answer.model }) : unchanged;
    warnings.replaceChildren(...undone.map((warning) => h("li", warning.message)));
    draw();
    const tokens = answer.usage.total_tokens;
    place.say(tokens ? t("correct.price", { tokens, price: usd(price("chat_token", tokens)) }) : t("correct.free"));
    refreshCredit();
  },
  field(t("correct.text"), text), count,
  submitButton(t("chat.mode.correct"), { icon: "check", id: "correct-go" }), place,
  h("details", h("summary", t("correct.style")), h("div.fields", field(t("correct.context"), context), field(t("correct.tone"), tone, { hint: t("correct.tone_hint") }),
    STYLES.map((name) => field(t(`correct.style.${name}`), styles.get(name))))),
  h("details", h("summary", t("correct.dictionary")), terms));
  text.addEventListener("input", recount);
  recount();
  const made = h("div.columns", h("section.card", { "aria-label": t("correct.text") }, correct), aside(t("correct.result"), h("p.empty.none", t("correct.none")), facts, warnings, shown, after));
  made.request = () => ({ title: t("chat.mode.correct"), path: "/v1/chat/completions", json: body() });
  return made;
}
