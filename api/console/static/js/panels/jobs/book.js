// A text as audio: a preview of what a job would read, chapter by chapter.
import { formOf, upload } from "../../api.js";
import { number, t, usd } from "../../i18n.js";
import { voiceSelect } from "../../previews.js";
import { limits, price } from "../../session.js";
import { act, button, check, chosenIn, explained, field, form, h, select, sentence, status, submitButton } from "../../ui.js";
import { told } from "../../work.js";
import { dictionaryChooser } from "../speak/dictionaries.js";
import { chooser } from "./upload.js";

const TEXTS = ".txt,.md,.markdown,.epub,.ssml,.xml";
const TYPED_MS = 800; // pause after the last keystroke before a typed or pasted text is analysed
const MARKDOWN = /^ {0,3}#{1,2}\s/m; // a heading

function lengthOf(seconds) {
  if (seconds < 59.5) return t("unit.about_seconds", { n: Math.round(seconds) });
  return seconds < 5400 ? t("jobs.minutes", { n: Math.round(seconds / 60) }) : t("jobs.hours", { n: number(seconds / 3600, 1) });
}
const sumOf = (chapters, name) => chapters.reduce((sum, chapter) => sum + chapter[name], 0);

// Numbers as the API takes them: "1-3,5".
function ranges(numbers) {
  const spans = [];
  for (const n of numbers) {
    if (spans.at(-1)?.[1] === n - 1) spans.at(-1)[1] = n;
    else spans.push([n, n]);
  }
  return spans.map(([first, last]) => (first === last ? first : `${first}-${last}`)).join();
}

// The chapters of a document, each with a box, not ticked if listeners usually leave it out.
function chapterPlan() {
  const title = h("h3");
  const list = h("ul.chapter-plan");
  const leftOut = h("p.hint");
  const warnings = h("div.note", { role: "status", hidden: true });
  const sum = h("p.hint", { role: "status" });
  let chapters = [];
  let boxes = [];
  const read = () => chapters.filter((_, at) => boxes[at].checked);
  const tell = () => {
    const chosen = read();
    sum.textContent = chapters.length ? t("jobs.about.speech", {
      chosen: chosen.length, all: chapters.length, length: lengthOf(sumOf(chosen, "estimated_seconds")),
      characters: sumOf(chosen, "characters"), price: usd(sumOf(chosen, "price")),
    }) : t("jobs.price.speech", { price: usd(price("tts_character", 1000)) });
  };
  const tickAll = (isTicked) => button(t(isTicked ? "jobs.all_chapters" : "jobs.no_chapters"), () => {
    for (const box of boxes) box.checked = isTicked;
    tell();
  }, { kind: "small" });
  const plan = h("fieldset.stack", { hidden: true }, h("legend", t("jobs.chapters")), title, list, h("div.actions", tickAll(true), tickAll(false)), leftOut, warnings);
  const made = h("div.stack", plan, sum);
  made.show = (estimate) => {
    chapters = estimate?.chapters || [];
    const rows = chapters.map((chapter) => {
      const facts = t("jobs.chapter", { language: chapter.language_name, length: lengthOf(chapter.estimated_seconds), price: usd(chapter.price) });
      return check([chapter.title, " ", h("small.hint", facts)], { checked: chapter.chosen, onchange: tell });
    });
    boxes = rows.map((row) => row.box);
    list.replaceChildren(...rows.map((row) => h("li", row)));
    plan.hidden = !chapters.length;
    if (estimate) {
      const parts = Object.entries(estimate.left_out).filter(([, n]) => n).map(([part, n]) => t(`jobs.left.${part}`, { n }));
      title.textContent = [estimate.title, estimate.author].filter(Boolean).join(" · ");
      leftOut.textContent = parts.length ? t("jobs.left", { parts: parts.join(", ") }) : "";
    }
    made.warn(estimate);
    tell();
  };
  made.warn = (estimate) => {
    warnings.replaceChildren(...(estimate?.warnings || []).map((warning) => h("p", sentence(warning))));
    warnings.hidden = !warnings.childElementCount;
  };
  // The job's field `chapters`, absent for the usual chapters. Throws if no chapter is chosen.
  made.chosen = () => {
    const numbers = read().map((chapter) => chapter.number);
    if (chapters.length && !numbers.length) throw explained(t("jobs.chapters_none"));
    const isUsual = chapters.every((chapter, at) => chapter.chosen === boxes[at].checked);
    return isUsual ? {} : { chapters: ranges(numbers) };
  };
  return made;
}

export function bookForm({ onbegun }) {
  const place = status();
  const voice = voiceSelect(["", t("jobs.voice_auto")], place, { name: "voice_id" });
  const format = select([["m4b", "M4B"], ["mp3", "MP3"]], { name: "output_format" });
  const dictionaries = dictionaryChooser();
  const plan = chapterPlan();
  const send = (path, fields, file) => upload(path, formOf(fields, ["document", file]), told(place));
  const book = chooser("speech", TEXTS, place, async (file) => {
    const { name, size } = file;
    if (!TEXTS.split(",").some((end) => name.toLowerCase().endsWith(end))) throw explained(t("jobs.kind_of_text", { name }));
    if (size > limits.document_mb * 2 ** 20) throw explained(t("jobs.document_too_large", { name, mb: limits.document_mb }));
    const estimate = await send("/jobs/speech/estimate", chosenIn(voice), file);
    place.clear();
    return estimate;
  }, plan.show);
  voice.addEventListener("change", act(place, async () => {
    const { file } = book;
    if (!file || !book.result) return;
    const estimate = await send("/jobs/speech/estimate", chosenIn(voice), file);
    place.clear();
    if (book.file === file) plan.warn(estimate);
  }));
  const pasted = h("textarea", { rows: 4, name: "pasted", spellcheck: false, oninput: () => {
    if (pasted.value.trim()) book.takeSoon(new File([pasted.value], t(MARKDOWN.test(pasted.value) ? "jobs.pasted.markdown" : "jobs.pasted")), TYPED_MS);
    else book.clear();
  } });
  const options = () => ({ ...chosenIn(format, voice), pronunciations: dictionaries.ids, ...plan.chosen() });
  const made = form(place, async () => {
    const file = await book.wanted();
    await send("/jobs/speech", options(), file);
    if (book.sent(file)) pasted.value = "";
    place.say(t("jobs.begun", { name: file.name }));
    await onbegun();
  }, book, h("details", h("summary", t("jobs.paste")), field(t("speak.text"), pasted, { hint: t("jobs.paste_about") })), plan,
  h("div.fields", h("div.with-preview", field(t("voices.title"), voice), voice.preview), field(t("speak.format"), format)),
  h("details", h("summary", t("word.options")), dictionaries),
  submitButton(t("jobs.go.speech")), place);
  made.request = () => ({ title: t("jobs.kind.speech"), path: "/jobs/speech", form: options(), files: [["document", book.file?.name || "book.epub"]] });
  return made;
}
