// Credit, usage and the plan.
import { ask, list } from "../../api.js";
import { barChart, chartKey } from "../../charts.js";
import { day, number, t, usd } from "../../i18n.js";
import { isOwner, noteCredit, on, session } from "../../session.js";
import { act, aside, button, card, confirmed, download, field, h, select, shownBy, stacked, status, table } from "../../ui.js";

const KINDS = ["tts", "stt", "chat", "voice", "embedding"];
const DAY_MS = 86_400_000;
const COLOURS = KINDS.map((kind) => `kind-${kind}`);
const kindName = (kind) => (KINDS.includes(kind) ? t(`usage.kind.${kind}`) : kind);
const gigabytes = (bytes, digits = 0) => `${number(bytes / 1e9, digits)} GB`;
const date = (time) => new Date(time).toISOString().slice(0, 10);

function usageCard() {
  const place = status();
  const period = select(["7", "30", "90"].map((one) => [one, t(`usage.period.${one}`)]), { value: "30" });
  const group = select(["kind", "key"].map((one) => [one, t(`usage.by.${one}`)]), { value: "kind" });
  const credit = h("strong", { id: "credit" }, "–");
  const spent = h("strong", { id: "spent" }, "–");
  const spentText = h("span");
  const requests = h("strong", "–");
  const left = h("strong", { id: "requests-left" }, "–");
  const leftText = h("span");
  const storage = h("strong", { id: "storage" }, "–");
  const storageText = h("span");
  const drawing = h("div.stack");
  const measure = isOwner() ? "requests" : "cost"; // shown in the chart
  let shown = [];

  const showLimits = () => {
    if (!session.limits) return;
    left.textContent = number(session.limits.remaining);
    leftText.textContent = t("usage.left", { limit: session.limits.limit });
  };
  const load = async () => {
    const days = Number(period.value);
    const to = date(Date.now());
    const from = date(Date.now() - (days - 1) * DAY_MS);
    const usage = await ask(`/billing/usage?from=${from}&to=${to}&by=key`);
    const isByKey = group.value === "key";
    const names = new Map(isByKey ? (await list("/developer/api", "keys")).map((key) => [key.id, key.name]) : []);
    const groupOf = (one) => (isByKey ? one.key_id || "" : one.kind);
    const nameOf = (of) => (isByKey ? names.get(of) || (of ? t("usage.deleted_key", { id: of }) : t("usage.no_key")) : kindName(of));
    noteCredit(usage.credit_balance);
    shown = usage.usage;
    storage.textContent = gigabytes(usage.storage.used, 3);
    storageText.textContent = t("usage.storage", { limit: gigabytes(usage.storage.limit) });
    spent.textContent = usd(usage.total_cost, 5);
    spentText.textContent = t("usage.spent", { n: days });
    requests.textContent = number(shown.reduce((sum, one) => sum + one.requests, 0));
    const sums = new Map();
    for (const one of shown) {
      const sum = sums.get(groupOf(one)) || { units: {}, requests: 0, cost: 0 };
      sum.units[one.unit] = (sum.units[one.unit] || 0) + one.units;
      for (const name of ["requests", "cost"]) sum[name] += one[name];
      sums.set(groupOf(one), sum);
    }
    const order = isByKey ? [...sums.keys()].sort((a, b) => sums.get(b)[measure] - sums.get(a)[measure]) : [...sums.keys()];
    const isRest = (of) => isByKey && order.length > COLOURS.length && order.indexOf(of) >= COLOURS.length - 1;
    const colourOf = (of) => (isByKey ? COLOURS[Math.min(order.indexOf(of), COLOURS.length - 1)] : `kind-${of}`);
    const byDay = Array.from({ length: days }, (_, at) => {
      const when = date(Date.parse(from) + at * DAY_MS);
      const of = shown.filter((one) => one.date === when);
      return {
        label: new Date(`${when}T12:00:00Z`).toLocaleDateString(undefined, { day: "numeric", month: "short", timeZone: "UTC" }),
        parts: of.map((one) => [colourOf(groupOf(one)), one[measure]]).sort(),
      };
    });
    const keys = new Map(order.map((of) => [colourOf(of), isRest(of) ? t("usage.others") : nameOf(of)]));
    const amounts = (units) => Object.entries(units).map(([unit, n]) => `${number(n)} ${unit}`).join(", ");
    drawing.replaceChildren(...(shown.length ? [
      barChart(t("usage.chart"), byDay, (value) => number(value, 4)),
      chartKey([...keys]),
      table(t(`usage.table.${group.value}`), [t(`usage.of.${group.value}`), t("usage.amount"), t("usage.requests"), ...(isOwner() ? [] : [t("usage.cost")])],
        order.map((of) => [nameOf(of), amounts(sums.get(of).units), number(sums.get(of).requests), ...(isOwner() ? [] : [usd(sums.get(of).cost, 5)])])),
    ] : [h("p.empty", t("usage.none"))]));
  };
  const csv = () => {
    const lines = ["date,kind,key_id,units,unit,requests,cost_usd", ...shown.map((one) => [one.date, one.kind, one.key_id || "", one.units, one.unit, one.requests, one.cost].join(","))];
    download(new Blob([`${lines.join("\n")}\n`], { type: "text/csv" }), "usage.csv");
  };
  for (const control of [period, group]) control.addEventListener("change", () => made.show());
  on("credit", (value) => { credit.textContent = value === null ? "–" : usd(value, 5); });
  on("limits", showLimits);
  const made = card(t("usage.title"),
    h("div.figures",
      !isOwner() && [h("p.figure", credit, h("span", t("nav.credit"))), h("p.figure", spent, spentText)],
      h("p.figure", requests, h("span", t("usage.requests"))), h("p.figure", left, leftText),
      h("p.figure", storage, storageText)),
    h("div.row", h("div.row.start", field(t("usage.period"), period), field(t("usage.by"), group)), h("div.actions",
      button(t("usage.export"), csv, { icon: "download", kind: "small" }),
      button(t("action.refresh"), act(place, load), { icon: "refresh", kind: "small", id: "refresh-usage" }))),
    place, drawing, h("p.hint", t("usage.utc")));
  return shownBy(load, place, made);
}

function planCard() {
  const place = status();
  const now = h("p", { id: "plan" });
  const all = h("div.plans");
  const load = async () => {
    const current = await ask("/billing/current-plan");
    const { plans } = await ask("/plans");
    now.textContent = t("plan.now", {
      name: current.plan.name, price: usd(current.plan.price),
      cycle: t(`cycle.${current.billing_cycle}`), date: day(current.next_billing_date),
    });
    all.replaceChildren(...plans.map((plan) => {
      const isMine = plan.id === current.plan.id;
      return h("article.plan", { class: isMine ? "current" : "" },
        h("h3", plan.name), h("p", t("plan.month", { price: usd(plan.price) })),
        h("ul", plan.features.map((one) => h("li", one))),
        isMine ? h("p.badge.good", t("plan.current")) : button(t("plan.choose", { name: plan.name }), act(place, () => choose(plan)), { kind: "small" }));
    }));
  };
  const choose = async (plan) => {
    if (!(await confirmed(plan.name, t("plan.ask", { name: plan.name }), t("plan.choose", { name: plan.name })))) return;
    const answer = await ask("/billing/subscribe", { method: "POST", json: { plan_id: plan.id, billing_cycle: "monthly" } });
    if (answer.subscription.status === "pending") {
      place.say(t("plan.pending"));
      const to = answer.checkout_url;
      if (to && /^https?:/.test(to)) all.before(h("p", h("a", { href: to, rel: "noopener" }, t("plan.pay"))));
      return;
    }
    place.say(t("plan.changed", { name: answer.subscription.plan.name }));
    await load();
  };
  return shownBy(load, place, aside(t("plan.title"), now, place, all));
}

export const overview = () => stacked(usageCard(), !isOwner() && planCard());
