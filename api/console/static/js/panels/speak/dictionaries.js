// Which pronunciation dictionaries a request names.
import { t } from "../../i18n.js";
import { limits } from "../../session.js";
import { setting } from "../../store.js";
import { check, h } from "../../ui.js";
import { follow } from "../../work.js";

export function dictionaryChooser({ onchange = () => {} } = {}) {
  const boxes = h("div.checks");
  const made = h("fieldset.stack.dictionaries", h("legend", t("speak.pronunciations")), h("p.hint.none", t("dictionaries.none")), boxes,
    h("p.hint", h("a", { href: "#/speak/pronunciations" }, t("dictionaries.manage"))));
  const checked = () => [...boxes.querySelectorAll("input:checked")].map((box) => box.value);
  const keep = () => {
    setting("dictionaries", checked());
    const isFull = checked().length >= limits.dictionaries;
    for (const box of boxes.querySelectorAll("input")) box.disabled = isFull && !box.checked;
    onchange();
  };
  const fill = (all) => {
    boxes.replaceChildren(...all.map((one) => check(one.name, { value: one.id, checked: setting("dictionaries")?.includes(one.id), onchange: keep })));
    if (all.length) keep();
  };
  Object.defineProperty(made, "ids", { get: checked });
  follow("dictionaries", fill);
  return made;
}
