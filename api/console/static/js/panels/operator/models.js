// The running configuration: edit, check, deploy.
import { askAsOperator } from "../../api.js";
import { t } from "../../i18n.js";
import { act, button, card, confirmed, explained, field, h, shownBy, status } from "../../ui.js";

export function models() {
  const place = status();
  const text = h("textarea.code", { name: "config", rows: 22, spellcheck: false, autocomplete: "off", wrap: "off" });
  const output = h("pre", { tabIndex: 0, hidden: true, "aria-label": t("operator.outcome") });

  const load = async () => {
    text.value = (await askAsOperator("config")).config;
    output.hidden = true;
    place.clear();
  };
  const send = (isDry) => act(place, async () => {
    output.hidden = true;
    if (!isDry && !(await confirmed(t("operator.deploy"), t("operator.deploy_ask"), t("operator.deploy")))) return;
    place.say(t(isDry ? "operator.checking" : "operator.deploying"));
    const answer = await askAsOperator("deploy", { method: "POST", json: { config: text.value, dry_run: isDry } });
    output.textContent = answer.output;
    output.hidden = false;
    if (!answer.ok) throw explained(t(isDry ? "operator.unchecked" : "operator.failed"));
    place.say(t(isDry ? "operator.checked" : "operator.ok"));
  });
  // The outcome is shown above the configuration, beside the buttons, so that it is always visible.
  const outcome = h("div.stack", place, output);
  const seen = (work) => async (...pressed) => {
    await work(...pressed);
    outcome.scrollIntoView({ block: "nearest" });
  };
  const made = card(t("operator.models"), h("p.hint", t("operator.config_about")),
    h("div.actions",
      button(t("operator.check"), seen(send(true)), { icon: "check" }),
      button(t("operator.deploy"), seen(send(false)), { kind: "danger", icon: "upload" }),
      button(t("operator.reload"), act(place, load), { kind: "quiet", icon: "refresh" })),
    outcome, field(t("operator.config"), text));
  return shownBy(() => text.value || load(), place, made);
}
