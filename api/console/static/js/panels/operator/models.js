// The configuration that runs, checked and deployed.
import { askAsOperator } from "../../api.js";
import { t } from "../../i18n.js";
import { act, button, card, confirmed, field, h, status } from "../../ui.js";

export function models() {
  const place = status();
  const text = h("textarea.code", { name: "config", rows: 22, spellcheck: false, autocomplete: "off", wrap: "off" });
  const output = h("pre", { tabIndex: 0, hidden: true, "aria-label": t("operator.outcome") });

  const load = async () => {
    text.value = (await askAsOperator("config")).config;
    output.hidden = true;
    place.clear();
  };
  const send = async (isDry) => {
    output.hidden = true;
    if (!isDry && !(await confirmed(t("operator.deploy"), t("operator.deploy_ask"), t("operator.deploy")))) return;
    place.say(t(isDry ? "operator.checking" : "operator.deploying"));
    const answer = await askAsOperator("deploy", { method: "POST", json: { config: text.value, dry_run: isDry } });
    place.say(t(answer.ok ? (isDry ? "operator.checked" : "operator.ok") : "operator.failed"));
    output.textContent = answer.output;
    output.hidden = false;
  };
  const made = card(t("operator.models"), field(t("operator.config"), text, { hint: t("operator.config_about") }),
    h("div.actions",
      button(t("operator.check"), act(place, () => send(true)), { icon: "check" }),
      button(t("operator.deploy"), act(place, () => send(false)), { kind: "danger", icon: "upload" }),
      button(t("operator.reload"), act(place, load), { kind: "quiet", icon: "refresh" })),
    place, output);
  made.show = () => text.value || load().catch((error) => place.fail(error, made.show));
  return made;
}
