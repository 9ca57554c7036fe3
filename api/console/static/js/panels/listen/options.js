// The options of a transcript, which pages and jobs share.
import { t } from "../../i18n.js";
import { setting } from "../../store.js";
import { check, chosenIn, field, h, select } from "../../ui.js";
import { fillLanguages } from "../../work.js";

const PROFILES = ["general", "phone_call", "meeting", "medical"];

export function transcriptOptions() {
  const language = select([["", t("listen.detect")]], { name: "language" });
  const profile = select(PROFILES.map((one) => [one, t(`listen.model.${one}`)]), { name: "model" });
  const speakers = check(t("listen.speakers"), { name: "speaker_labels" });
  const channels = check(t("listen.channels"), { name: "multichannel" });
  const numerals = check(t("listen.numerals"), { name: "numerals" });
  const masked = check(t("listen.profanity"), { name: "profanity_filter" });
  const punctuate = check(t("listen.punctuate"), { name: "punctuate", checked: true });
  const terms = h("textarea", { name: "keyterms", rows: 2, value: setting("keyterms") || "", spellcheck: false });
  terms.addEventListener("input", () => setting("keyterms", terms.value));
  fillLanguages(language);
  // How a transcript is written; default values are left out.
  const style = () => {
    const keyterms = terms.value.split(/[,\n]/).map((one) => one.trim()).filter(Boolean);
    return { ...(keyterms.length && { keyterms }), ...chosenIn(numerals.box, masked.box), ...(!punctuate.box.checked && { punctuate: false }) };
  };
  return {
    language, speakers, channels, style,
    controls: [language, profile, terms, numerals.box, masked.box, punctuate.box, speakers.box, channels.box],
    chosen: () => ({ ...chosenIn(profile, language, speakers.box, channels.box), ...style() }),
    fields: [field(t("listen.model"), profile), field(t("listen.terms"), terms, { hint: t("listen.terms_hint") })],
    checks: h("div.checks", numerals, masked, punctuate),
  };
}
