// The lines of several speakers.
import { t } from "../../i18n.js";
import { limits } from "../../session.js";
import { setting } from "../../store.js";
import { button, h, iconButton, onEnter, select } from "../../ui.js";
import { follow } from "../../work.js";
import { markFault } from "./markup.js";

const TEXT = "input:not([type=number])";
const FIRST = [{ text: "" }, { text: "" }];

export function scriptEditor({ onchange }) {
  const list = h("ol.script");
  let all = [];
  const keep = () => {
    setting("script", made.lines);
    add.disabled = list.childElementCount >= limits.script_lines;
    onchange();
  };
  const fill = (box, chosen) => {
    box.replaceChildren(new Option(t("script.usual"), ""), ...all.map((one) => new Option(`${one.name} · ${one.labels.language_name}`, one.voice_id)));
    box.value = all.some((one) => one.voice_id === chosen) ? chosen : "";
  };
  const row = ({ text = "", voice = "", pause = "" }) => {
    const who = select([], { "aria-label": t("script.voice"), onchange: keep });
    const said = h("input", { value: text, "aria-label": t("script.text"), placeholder: t("script.text"), autocomplete: "off", oninput: keep });
    const wait = h("input", { type: "number", min: 0, max: 10, step: 0.05, value: pause, "aria-label": t("script.pause"), placeholder: "0.45", title: t("script.pause"), oninput: keep });
    const one = h("li.script-line", who, wait, iconButton("trash", t("script.remove"), () => {
      const next = one.nextElementSibling || one.previousElementSibling;
      one.remove();
      keep();
      (next?.querySelector(TEXT) || add).focus();
    }), said);
    fill(who, voice);
    who.dataset.wanted = voice; // until the voices are loaded
    onEnter(said, (event) => !event.ctrlKey && add.click());
    return one;
  };
  const add = button(t("script.add"), () => {
    const last = list.lastElementChild?.previousElementSibling?.querySelector("select").value;
    list.append(row({ voice: last })); // two speakers take turns
    keep();
    list.lastElementChild.querySelector(TEXT).focus();
  }, { icon: "plus", kind: "small" });
  const made = h("div.stack", h("p.hint", t("script.about")), list, add);
  Object.defineProperty(made, "lines", { get: () => [...list.children].map((one) => {
    const [who, wait, said] = one.querySelectorAll("select, input");
    const line = { text: said.value };
    if (who.value || who.dataset.wanted) line.voice = who.value || who.dataset.wanted;
    if (wait.value !== "" && wait.validity.valid) line.pause = Number(wait.value);
    return line;
  }) });
  // The place of an error in the lines, which are joined by line feeds.
  made.markFault = (message) => {
    const line = /: line (\d+)/.exec(message || "")?.[1];
    const spoken = [...list.querySelectorAll(TEXT)].filter((one) => one.value.trim());
    return Boolean(line && spoken[line - 1]) && markFault(spoken[line - 1], message);
  };
  made.nameOf = (id) => all.find((one) => one.voice_id === id)?.name;
  list.append(...(setting("script") || FIRST).map(row));
  follow("voices", (found) => {
    all = found;
    for (const box of list.querySelectorAll("select")) {
      fill(box, box.value || box.dataset.wanted);
      delete box.dataset.wanted;
    }
  });
  return made;
}
