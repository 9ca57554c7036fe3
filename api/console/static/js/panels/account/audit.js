// The audit log of the workspace.
import { ask } from "../../api.js";
import { moment, t, usd } from "../../i18n.js";
import { micro } from "../../session.js";
import { act, button, card, h, status, table } from "../../ui.js";

// "plan: pro, billing cycle: monthly"; amounts in USD.
const detail = ([name, value]) => (name === "micro_usd" ? usd(micro(value), 6)
  : `${name.replaceAll("_", " ")}: ${[value].flat().map((one) => (one instanceof Object ? JSON.stringify(one) : one)).join(", ")}`);
const shortened = (text) => h("span.cut-short", { title: text }, text);

export function audit() {
  const place = status();
  const rows = h("div.stack");
  const more = button(t("action.more"), act(place, () => load(page + 1)), { kind: "small", hidden: true });
  let page = 1;
  let entries = [];

  const load = async (wanted) => {
    const found = await ask(`/audit?limit=50&page=${wanted}`);
    page = wanted;
    entries = page === 1 ? found.data : [...entries, ...found.data];
    rows.replaceChildren(table(t("account.audit"), [t("audit.action"), t("audit.time"), t("audit.actor"), t("audit.target"), t("audit.details")],
      entries.map((one) => [one.action, h("span.time", moment(one.created_at)), shortened(one.actor), shortened(one.target), h("span", { title: one.digest }, Object.entries(one.details).map(detail).join("; "))])));
    more.hidden = page >= found.pagination.pages;
  };
  const made = card(t("account.audit"), h("p.hint", t("audit.about")), place, rows, more);
  made.show = () => load(1).catch((error) => place.fail(error, made.show));
  return made;
}
