// Markdown as elements: paragraphs, headings, lists, quotes, code, bold, italics and links. It makes
// text nodes only, so what a model writes cannot become markup.
import { copyButton, h } from "./ui.js";

const WORD = /[\p{L}\p{N}_]/u;

// Returns a function that finds the next match from a place. Calls with rising places read the text once in total.
function places(text, pattern) {
  let at = -1;
  return (from) => {
    if (at < from) {
      pattern.lastIndex = from;
      at = pattern.exec(text)?.index ?? Infinity;
    }
    return at;
  };
}

// Reads each character a bounded number of times, regardless of what a model writes.
function inline(text) {
  const parts = [];
  const special = places(text, /[`*_[]/g);
  const closers = { "`": places(text, /`/g), "*": places(text, /[*\n]/g), _: places(text, /[_\n]/g), "[": places(text, /[\]\n]/g) };
  const endOfUrl = places(text, /[\s)]/g);
  const run = (at) => {
    let end = at;
    while (text[end] === text[at]) end += 1;
    return end - at;
  };
  const touches = (at, mark) => at >= 0 && at < text.length && (text[at] === mark || WORD.test(text[at]));
  // The markup that begins at `at`: the characters to keep before it, its element, and its end.
  const element = (at) => {
    const mark = text[at];
    if (mark === "`") {
      const length = run(at);
      const close = closers[mark](at + length);
      if (close === Infinity) return { end: at + length };
      const ticks = Math.min(length, run(close));
      return { before: length - ticks, made: h("code", text.slice(at + length, close)), end: close + ticks };
    }
    if (mark === "[") {
      const close = closers[mark](at + 1);
      const scheme = /^\]\((https?:\/\/)/.exec(text.slice(close, close + 10))?.[1];
      const end = scheme && close > at + 1 ? endOfUrl(close + 2) : Infinity;
      if (text[end] !== ")" || end === close + 2 + scheme.length) return { end: at + 1 };
      return { made: h("a", { href: text.slice(close + 2, end), target: "_blank", rel: "noopener noreferrer" }, text.slice(at + 1, close)), end: end + 1 };
    }
    const isStrong = mark === "*" && text[at + 1] === "*";
    const begin = at + (isStrong ? 2 : 1);
    const close = closers[mark](begin);
    if (close === begin || text[close] !== mark) return { end: begin };
    if (isStrong) return text[close + 1] === mark ? { made: h("strong", text.slice(begin, close)), end: close + 2 } : { end: begin };
    if (/\s/.test(text[begin]) || touches(at - 1, mark) || touches(close + 1, mark)) return { end: begin };
    return { made: h("em", text.slice(begin, close)), end: close + 1 };
  };
  let from = 0;
  for (let at = special(0); at < text.length; ) {
    const { before = 0, made, end } = element(at);
    if (made) {
      parts.push(text.slice(from, at + before), made);
      from = end;
    }
    at = special(end);
  }
  return [...parts, text.slice(from)].filter((one) => one !== "");
}

// Consecutive lines of one kind become one element.
const KINDS = [["ul", /^\s*[-*+]\s+(.*)/], ["ol", /^\s*\d+[.)]\s+(.*)/], ["blockquote", /^>\s?(.*)/], ["p", /([^]*)/]];

export function markdown(text) {
  const made = h("div.markdown");
  let lines = [];
  let kind = "";
  const flush = () => {
    if (!lines.length) return;
    if (kind === "ul" || kind === "ol") made.append(h(kind, lines.map((line) => h("li", inline(line)))));
    else made.append(kind === "p" ? h("p", inline(lines.join("\n"))) : h(kind, h("p", inline(lines.join("\n")))));
    lines = [];
  };
  const add = (next, line) => {
    if (next !== kind) flush();
    kind = next;
    lines.push(line);
  };
  const all = text.split("\n");
  for (let i = 0; i < all.length; i += 1) {
    const line = all[i];
    const fence = /^\s*(```+|~~~+)/.exec(line);
    if (fence) {
      flush();
      const code = [];
      for (i += 1; i < all.length && !all[i].trim().startsWith(fence[1]); i += 1) code.push(all[i]);
      const whole = code.join("\n");
      made.append(h("div.snippet", copyButton(whole), h("pre", { tabIndex: 0 }, h("code", whole))));
      continue;
    }
    const heading = /^#{1,6}\s+(.*)/.exec(line);
    if (!line.trim()) flush();
    else if (heading) {
      flush();
      made.append(h("p", h("strong", inline(heading[1]))));
    } else {
      const [next, pattern] = KINDS.find(([, one]) => one.test(line));
      add(next, pattern.exec(line)[1]);
    }
  }
  flush();
  return made;
}
