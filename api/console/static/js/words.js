// A text whose words are marked while they are heard, and can be clicked to hear them.
import { h } from "./ui.js";

// `words` are {word, start, end, text_start?, text_end?, speaker?}. With `text`, to which the
// offsets refer, the text between words is shown, too, as `written` formats it.
export function wordsView({ onseek, label }) {
  const made = h("div.words", { role: "group", "aria-label": label });
  let shown = [];
  let current = -1;

  // The button of a word; Tab enters the first.
  made.word = (word, text = word.word.trim()) => {
    const one = h("button.word", { type: "button", tabIndex: shown.length ? -1 : 0, onclick: () => onseek(word.start) }, text);
    shown.push({ one, start: word.start, end: word.end });
    return one;
  };
  // Arrow keys move between the words, Tab enters and leaves them as one.
  made.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 10, ArrowUp: -10 }[event.key];
    const at = shown.findIndex(({ one }) => one === document.activeElement);
    if (!step || at < 0) return;
    const next = shown[Math.max(0, Math.min(shown.length - 1, at + step))].one;
    shown[at].one.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
    event.preventDefault();
  });
  made.clear = () => {
    shown = [];
    current = -1;
    made.replaceChildren();
  };
  made.show = (words, text, written = (part) => part) => {
    made.clear();
    if (text === undefined) words.forEach((word) => made.append(made.word(word), " "));
    else {
      const letters = [...text]; // offsets are code points
      let at = 0;
      for (const word of words) {
        const [gap, said] = [[at, word.text_start], [word.text_start, word.text_end]].map(([from, to]) => written(letters.slice(from, to).join("")));
        made.append(gap, made.word(word, said));
        at = word.text_end;
      }
      made.append(written(letters.slice(at).join("")));
    }
  };
  made.mark = (seconds, isPlaying) => {
    let at = -1;
    if (isPlaying) {
      for (let i = 0; i < shown.length && shown[i].start <= seconds; i += 1) at = i;
      if (at >= 0 && seconds > shown[at].end + 0.4) at = -1;
    }
    if (at === current) return;
    shown[current]?.one.classList.remove("now");
    current = at;
    const now = shown[at]?.one;
    if (!now) return;
    now.classList.add("now");
    const box = made.getBoundingClientRect();
    const place = now.getBoundingClientRect();
    if (place.bottom > box.bottom || place.top < box.top) made.scrollTop += place.top - box.top - 20;
  };
  return made;
}
