// SSML in the text: whether it is SSML, its plain text, the place of an error, and buttons to write
// it.
import { t } from "../../i18n.js";
import { button, h, markInvalid } from "../../ui.js";

const DOCUMENT = /^\s*(<\?xml[^>]*\?>\s*)?<speak[\s/>]/;
const BREAK = /(<break\s+time\s*=\s*(["'])\d+(?:\.\d+)?m?s\2\s*\/>)/;
// Pauses of a plain text in brackets, as in `_BREAK` of pipelines/tts/reading.py.
const BRACKETS = /(?<![^\s.,;:!?…。，、；：！？—–-])\[(?:(?:(short|medium|long) )?pause|pause[ :](\d{1,5}(?:\.\d{1,3})?m?s))\](?![([:\]"'`’”*_])/gi;
const SECONDS = { short: 0.25, medium: 0.5, long: 1.2 };
const ENTITIES = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'" };
// The markup that a button puts around the selection; the user replaces the first `…`.
const MARKUP = {
  slower: ['<prosody rate="slow">', "</prosody>"],
  emphasis: ["<emphasis>", "</emphasis>"],
  spell: ['<say-as interpret-as="characters">', "</say-as>"],
  alias: ['<sub alias="…">', "</sub>"],
  ipa: ['<phoneme ph="…">', "</phoneme>"],
};
const PAUSE = '<break time="0.7s"/>';

export const isMarkup = (text) => DOCUMENT.test(text);
export const escaped = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/"/g, "&quot;");

const parts = (text) => text.replace(BRACKETS, (_, kind, time) => `<break time="${(time || `${SECONDS[(kind || "medium").toLowerCase()]}s`).toLowerCase()}"/>`).split(BREAK);

// The text without tags, as it is read and counted; also for a part between two words.
export function plain(text, isWhole = isMarkup(text)) {
  if (!isWhole) return parts(text).filter((_, at) => at % 3 === 0).join("");
  return text.replace(/<[^>]*>/g, "").replace(/&(?:#(x?)([\da-f]{1,6})|(\w+));/gi, (whole, hex, number, name) =>
    (name ? ENTITIES[name] : String.fromCodePoint(Math.min(parseInt(number, hex ? 16 : 10) || 32, 0x10ffff))) ?? whole);
}

// Selects the place that an error such as "text: line 2, column 9: …" names; false if it names none.
export function markFault(field, message) {
  const found = /^\w+: line (\d+), column (\d+)/.exec(message || "");
  if (!found) return false;
  const lines = field.value.split("\n");
  const line = Math.min(Number(found[1]), lines.length) - 1;
  const before = lines.slice(0, line).reduce((sum, one) => sum + one.length + 1, 0);
  const start = before + [...lines[line]].slice(0, Number(found[2]) - 1).join("").length;
  const tag = field.value.indexOf(">", start);
  markInvalid(field);
  field.setSelectionRange(start, tag < 0 ? lines[line].length + before : tag + 1);
  field.blur();
  field.focus(); // scrolls to the selection
  return true;
}

// Writes a new text as one step that can be undone, and selects a part of it.
function write(field, text, start, end) {
  field.focus();
  field.select();
  if (!document.execCommand("insertText", false, text)) {
    field.value = text;
    field.dispatchEvent(new Event("input"));
  }
  field.setSelectionRange(start, end);
}

function insert(field, name) {
  const { value, selectionStart: from, selectionEnd: to } = field;
  if (name === "pause") return write(field, value.slice(0, from) + PAUSE + value.slice(to), from + PAUSE.length, from + PAUSE.length);
  const isDocument = isMarkup(value);
  const own = (text) => (isDocument ? text : parts(text).filter((_, at) => at % 3 < 2).map((one, at) => (at % 2 ? one : escaped(one))).join(""));
  const [open, close] = MARKUP[name];
  const chosen = own(value.slice(from, to)) || t("markup.word");
  const head = (isDocument ? "" : "<speak>") + own(value.slice(0, from));
  const gap = open.indexOf("…");
  const start = head.length + (gap < 0 ? open.length : gap);
  return write(field, head + open + chosen + close + own(value.slice(to)) + (isDocument ? "" : "</speak>"), start, gap < 0 ? start + chosen.length : start + 1);
}

export const markupButtons = (field) => h("div.row.start.markup", { role: "group", "aria-label": t("markup.title") },
  ["pause", ...Object.keys(MARKUP)].map((name) => button(t(`markup.${name}`), () => insert(field, name), { kind: "small quiet", title: t(`markup.${name}_about`) })));
