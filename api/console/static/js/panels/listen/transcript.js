// A transcript with its words, speakers and exports.
import { player } from "../../audio/player.js";
import { clock, number, t } from "../../i18n.js";
import { aside, button, download, field, fileName, h } from "../../ui.js";
import { wordsView } from "../../words.js";

const HUES = [190, 25, 265, 330, 95, 220, 50, 0];
const CUE_S = 5; // the longest cue of subtitles
const CUE_WORDS = 12;

// A letter is an unknown speaker; enrolled speakers have their own names.
const usualName = (speaker) => (/^[A-Z]{1,2}$/.test(speaker) ? t("listen.speaker", { name: speaker }) : speaker);

// Words by turns of speakers; without speakers, one turn.
function turnsOf(words) {
  const turns = [];
  for (const word of words) {
    if (!turns.length || turns.at(-1).speaker !== word.speaker) turns.push({ speaker: word.speaker, words: [] });
    turns.at(-1).words.push(word);
  }
  return turns;
}

const spaced = (words) => words.map((one) => one.word.trim()).join(" ");

// Cues of subtitles, which end with a sentence, or earlier if they would be too long to read.
function cuesOf(words, nameOf) {
  const cues = [];
  for (const turn of turnsOf(words)) {
    let cue = [];
    const end = () => {
      if (cue.length) cues.push({ start: cue[0].start, end: cue.at(-1).end, text: spaced(cue), speaker: turn.speaker && nameOf(turn.speaker) });
      cue = [];
    };
    for (const word of turn.words) {
      if (cue.length && (cue.length >= CUE_WORDS || word.end - cue[0].start > CUE_S)) end();
      cue.push(word);
      if (/[.!?…。！？]$/.test(word.word.trim())) end();
    }
    end();
  }
  return cues;
}

// "01:02:03,456", of less than a day.
const stamp = (seconds, mark) => new Date(Math.round(seconds * 1000)).toISOString().slice(11, 23).replace(".", mark);

const WRITERS = {
  srt: (result, nameOf) => cuesOf(result.words, nameOf).map((cue, at) =>
    `${at + 1}\n${stamp(cue.start, ",")} --> ${stamp(cue.end, ",")}\n${cue.speaker ? `${cue.speaker}: ` : ""}${cue.text}\n`).join("\n"),
  vtt: (result, nameOf) => `WEBVTT\n\n${cuesOf(result.words, nameOf).map((cue) =>
    `${stamp(cue.start, ".")} --> ${stamp(cue.end, ".")}\n${cue.speaker ? `<v ${cue.speaker.replace(/[<>&]/g, "")}>` : ""}${cue.text.replace(/&/g, "&amp;").replace(/</g, "&lt;")}\n`).join("\n")}`,
  json: (result, nameOf) => {
    const named = (one) => (one.speaker ? { ...one, speaker: nameOf(one.speaker) } : one);
    const shown = { ...result, words: result.words.map(named) };
    if (result.utterances) shown.utterances = result.utterances.map(named);
    return `${JSON.stringify(shown, null, 2)}\n`;
  },
  txt: (result, nameOf) => (result.utterances
    ? result.utterances.map((one) => `${nameOf(one.speaker)}: ${one.text}`).join("\n\n")
    : result.text) + "\n",
};
const TYPES = { srt: "application/x-subrip", vtt: "text/vtt", json: "application/json", txt: "text/plain" };

// Buttons that save a transcript; `current()` gives {name, result, nameOf}.
export const exportButtons = (current) => h("div.actions.of-content", Object.keys(WRITERS).map((format) =>
  button(format.toUpperCase(), () => {
    const { name, result, nameOf } = current();
    download(new Blob([WRITERS[format](result, nameOf)], { type: TYPES[format] }), fileName(name.replace(/\.\w+$/, ""), format));
  }, { icon: "download", kind: "small", label: t("listen.export", { format: format.toUpperCase() }) })));

export function transcriptCard() {
  const facts = h("p.hint");
  const playing = player({ ontime: (seconds, isPlaying) => words.mark(seconds, isPlaying) });
  const words = wordsView({ label: t("listen.words"), onseek: (seconds) => { playing.seek(seconds); playing.play(); } });
  const speakers = h("div.speakers");
  const names = new Map();
  const nameOf = (speaker) => names.get(speaker) || usualName(speaker);
  const hues = new Map(); // of the speakers, in the order in which they speak
  let shown = null;
  const exports = exportButtons(() => ({ ...shown, nameOf }));
  const made = aside(t("listen.transcript"), h("p.empty.none", t("listen.none")), facts, playing, exports, speakers, words);
  made.actions = exports;

  const drawWords = () => {
    const { result } = shown;
    words.clear();
    if (!result.words.length) return words.append(result.text || t("listen.silent"));
    if (!result.utterances) return words.show(result.words);
    words.append(...turnsOf(result.words).map((turn) => {
      const row = h("div.speech-turn",
        h("span.speaker-name", nameOf(turn.speaker), h("small", clock(turn.words[0].start))),
        h("p", turn.words.map((word) => [words.word(word), " "])));
      row.style.setProperty("--hue", String(hues.get(turn.speaker)));
      row.dataset.speaker = turn.speaker;
      return row;
    }));
  };
  const drawSpeakers = () => {
    const all = [...new Set((shown.result.utterances || []).map((one) => one.speaker))];
    speakers.replaceChildren(...all.map((speaker, at) => {
      hues.set(speaker, HUES[at % HUES.length]);
      const input = h("input", { value: names.get(speaker) || "", placeholder: usualName(speaker), maxLength: 60, autocomplete: "off" });
      input.addEventListener("input", () => {
        names.set(speaker, input.value.trim());
        for (const row of words.querySelectorAll(`[data-speaker="${speaker}"] .speaker-name`)) row.firstChild.data = nameOf(speaker);
      });
      const labelled = field(usualName(speaker), input);
      labelled.style.setProperty("--hue", String(hues.get(speaker)));
      return labelled;
    }));
  };
  made.show = ({ name, result, blob }) => {
    names.clear();
    shown = { name, result: { ...result, words: result.words || [] } };
    facts.textContent = t(result.confidence === undefined ? "listen.facts_short" : "listen.facts", { language: result.language, length: t("unit.seconds", { n: number(result.duration, 1) }), confidence: Math.round(result.confidence * 100) });
    drawSpeakers();
    drawWords();
    if (blob) playing.load(blob);
    else playing.clear();
  };
  made.clear = () => {
    playing.clear();
    words.clear();
    shown = null;
    facts.textContent = "";
    speakers.replaceChildren();
  };
  return made;
}
