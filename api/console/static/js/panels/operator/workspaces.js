// The workspaces of all users, with their credit and plan.
import { askAsOperator } from "../../api.js";
import { day, t, usd } from "../../i18n.js";
import { about } from "../../session.js";
import { act, button, card, field, form, formDialog, h, select, shownBy, status, submitButton, table } from "../../ui.js";

export function workspaces() {
  const place = status();
  const rows = h("div");
  const text = h("input", { type: "search", name: "q", maxLength: 254, autocomplete: "off" });
  const more = button(t("action.more"), act(place, () => load(next)), { kind: "small", hidden: true });
  let [shown, next] = [[], null];

  const load = async (after) => {
    const found = await askAsOperator(`workspaces?after=${after || 0}&q=${encodeURIComponent(text.value.trim())}`);
    shown = after ? [...shown, ...found.workspaces] : found.workspaces;
    next = found.next;
    more.hidden = !next;
    draw();
  };
  const heads = ["word.workspace", "operator.email", "operator.plan", "operator.credit", "word.created"].map((key) => t(key));
  const draw = () => rows.replaceChildren(table(t("operator.workspaces"), [...heads, ""], shown.map((one) => [
    h("span", { title: one.id }, one.name), one.email, one.plan, h("span.number", usd(one.credit, 6)), day(one.created_at),
    h("div.actions",
      button(t("operator.credit"), () => credit(one), { kind: "small", label: t("operator.change_credit_of", one) }),
      button(t("operator.plan"), () => plan(one), { kind: "small", label: t("operator.change_plan_of", one) })),
  ]), t("operator.no_workspace")));

  // A dialog whose `send` returns the outcome as text.
  const change = (title, send, ...fields) => formDialog(title, async (close) => {
    place.say(await send());
    draw();
    close();
  }, fields, t("action.save"), { kind: "narrow" });
  const post = (one, part, json) => askAsOperator(`workspaces/${one.id}/${part}`, { method: "POST", json });
  const credit = (one) => {
    const amount = h("input", { type: "number", name: "usd", step: "0.000001", required: true });
    const reference = h("input", { name: "reference", maxLength: 50, autocomplete: "off" });
    change(t("operator.change_credit_of", one), async () => {
      const json = { usd: Number(amount.value), reference: reference.value.trim() || null };
      const answer = await post(one, "credit", json);
      one.credit = answer.credit;
      return t(answer.changed ? "operator.credited" : "operator.booked", { name: one.name, credit: usd(one.credit, 6) });
    }, field(t("operator.usd"), amount, { hint: t("operator.usd_hint") }), field(t("operator.reference"), reference, { hint: t("operator.reference_hint") }));
  };
  const plan = (one) => {
    const chosen = select(about.plans.map((id) => [id, id]), { name: "plan", value: one.plan });
    const cycle = select(["monthly", "annual"].map((each) => [each, t(`cycle.${each}`)]), { name: "cycle" });
    change(t("operator.change_plan_of", one), async () => {
      const answer = await post(one, "plan", { plan_id: chosen.value, billing_cycle: cycle.value });
      one.plan = answer.plan.id;
      return t("operator.planned", { name: one.name, plan: answer.plan.name });
    }, field(t("operator.plan"), chosen), field(t("operator.cycle"), cycle));
  };

  const search = form(place, () => load(), h("div.fields", field(t("operator.search"), text)), submitButton(t("operator.find"), { icon: "search" }));
  return shownBy(load, place, card(t("operator.workspaces"), search, place, rows, more));
}
