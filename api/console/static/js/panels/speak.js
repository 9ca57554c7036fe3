// Speak: speech of a text, and dictionaries of pronunciations.
import { codeButton } from "../code.js";
import { t } from "../i18n.js";
import { h, panelHead, panelParts } from "../ui.js";
import { pronunciations } from "./speak/pronunciations.js";
import { speech } from "./speak/speech.js";

const PARTS = { speech, pronunciations };

export default function makeSpeak() {
  const parts = panelParts("speak", PARTS);
  const code = codeButton(() => parts.part(parts.element.chosen).requests());
  const element = h("div.panel.speak", panelHead(t("nav.speak"), t("speak.lead"), code), parts.element);
  return {
    ...parts,
    element,
    // A voice chosen elsewhere, such as under Voices, is in the address.
    show: ([name]) => {
      parts.show([!name || PARTS[name] ? name : "speech"]);
      if (name && !PARTS[name]) parts.part("speech").take(name);
    },
  };
}
