// Markdown as elements: paragraphs, headings, lists, quotes, code, bold, italics and links. It makes
// text nodes only, so what a model writes cannot become markup.
import { copyButton, h } from "./ui.js";

const INLINE = /(`+)([^`]+?)\1|\*\*([^*\n]+?)\*\*|(?<![\w*])\*([^*\s][^*\n]*?)\*(?![\w*])|(?<!\w)_([^_\s][^_\n]*?)_(?!\w)|\[([^\]\n]+)\]\((https?:\/\/[^\s)]+)\)/g;

function inline(text) {
  const parts = [];
  let at = 0;
  for (const found of text.matchAll(INLINE)) {
    parts.push(text.slice(at, found.index));
    const [whole, , code, strong, em, under, label, url] = found;
    if (code !== undefined) parts.push(h("code", code));
    else if (strong !== undefined) parts.push(h("strong", strong));
    else if (url) parts.push(h("a", { href: url, target: "_blank", rel: "noopener noreferrer" }, label));
    else parts.push(h("em", em ?? under));
    at = found.index + whole.length;
  }
  return [...parts, text.slice(at)].filter((one) => one !== "");
}

export function markdown(text) {
  const made = h("div.markdown");
  let lines = [];
  let kind = "";
  const flush = () => {
    if (!lines.length) return;
    if (kind === "ul" || kind === "ol") made.append(h(kind, lines.map((line) => h("li", inline(line)))));
    else if (kind === "quote") made.append(h("blockquote", h("p", inline(lines.join("\n")))));
    else made.append(h("p", inline(lines.join("\n"))));
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
    const bullet = /^\s*[-*+]\s+(.*)/.exec(line);
    const numbered = /^\s*\d+[.)]\s+(.*)/.exec(line);
    const quoted = /^>\s?(.*)/.exec(line);
    if (!line.trim()) flush();
    else if (heading) {
      flush();
      made.append(h("p", h("strong", inline(heading[1]))));
    } else if (bullet) add("ul", bullet[1]);
    else if (numbered) add("ol", numbered[1]);
    else if (quoted) add("quote", quoted[1]);
    else add("p", line);
  }
  flush();
  return made;
}
