// Texts by key. Another language is a folder beside `strings/en` and a line in CATALOGUES.
import { isOwner } from "./session.js";
import en from "./strings/en/index.js";

const CATALOGUES = { en: async () => en };

let texts = en;
export let language = "en";

// Uses the browser's first language that has a catalogue; English fills gaps.
export async function chooseLanguage() {
  for (const wanted of navigator.languages || []) {
    const code = wanted.split("-")[0].toLowerCase();
    if (!CATALOGUES[code]) continue;
    texts = { ...en, ...(await CATALOGUES[code]()) };
    language = code;
    break;
  }
  document.documentElement.lang = language;
}

// The text of a key, with `{name}` replaced by its value. If `{n}` is 1, the key `….one` is used. Owners pay
// nothing: they get the key `….free` if there is one, else no text about prices.
export function t(key, values = {}) {
  const variant = isOwner() && texts[`${key}.free`] !== undefined ? ".free" : values.n === 1 && texts[`${key}.one`] !== undefined ? ".one" : "";
  const text = texts[key + variant];
  if (text === undefined) throw new Error(`there is no text for ${key}`);
  if (isOwner() && variant !== ".free" && key.split(/[._]/).includes("price")) return "";
  return text.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? shown(values[name]) : whole));
}

const shown = (value) => (typeof value === "number" ? number(value) : String(value));

export const number = (value, digits = 0, least = 0) => value.toLocaleString(undefined, { minimumFractionDigits: least, maximumFractionDigits: digits });

// Small amounts keep their significant digits. A balance has more digits, so that each request shows in it.
export function usd(amount, most = 2) {
  const digits = amount !== 0 && Math.abs(amount) < 0.01 ? 6 : most;
  return `${amount.toLocaleString(undefined, { minimumFractionDigits: 2, maximumFractionDigits: digits })} USD`;
}

export function clock(seconds) {
  if (!Number.isFinite(seconds)) return "0:00";
  const whole = Math.floor(seconds);
  return `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, "0")}`;
}

export const moment = (time) =>
  time ? new Date(time).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" }) : "";

export const day = (time) => new Date(time).toLocaleDateString(undefined, { dateStyle: "medium" });

export function ago(time) {
  const seconds = (Date.now() - new Date(time)) / 1000;
  const format = new Intl.RelativeTimeFormat(language, { numeric: "auto" });
  for (const [unit, length] of [["day", 86400], ["hour", 3600], ["minute", 60]]) {
    if (seconds >= length) return format.format(-Math.floor(seconds / length), unit);
  }
  return t("time.now");
}
