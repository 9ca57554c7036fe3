// The audit log of the workspace.
import { ask, list } from "../../api.js";
import { moment, t, usd } from "../../i18n.js";
import { micro, session } from "../../session.js";
import { act, button, card, h, shownBy, status, table } from "../../ui.js";

// "plan: pro, billing cycle: monthly"; amounts in USD.
const detail = ([name, value]) => (name === "micro_usd" ? usd(micro(value), 6)
  : `${name.replaceAll("_", " ")}: ${[value].flat().map((one) => (one instanceof Object ? JSON.stringify(one) : one)).join(", ")}`);
// Where to find the names of objects: a path, the field with its list, and the field with the name.
const LISTS = {
  key: ["/developer/api", "keys", "name"],
  webhook: ["/webhooks", "webhooks", "url"],
  voice: ["/voices?limit=100", "data", "name"],
  speaker: ["/speakers?limit=100", "data", "name"],
};
const kindOf = ({ action }) => action.split(".")[0];
const namesOf = async (kind) => {
  const [path, field, name] = LISTS[kind];
  return (await list(path, field)).map((one) => [String(one.voice_id || one.id), one[name]]);
};
// The name to show for an id; for deleted objects, the end of the id.
const nameOf = (id, kind, names) => {
  if (["user", "account", "profile", "password"].includes(kind)) return session.user?.email || t("audit.owner");
  if (["workspace", "sessions"].includes(kind)) return session.workspace.name || t("word.workspace");
  if (names.has(id)) return t("audit.named", { kind, name: names.get(id) });
  return /^[\d-]{12,}$|^[\da-f-]{36}$/.test(id) ? t("audit.gone", { kind, id: id.slice(-4) }) : id;
};
const shortened = (text, whole) => h("span.cut-short", { title: whole }, text);

export function audit() {
  const place = status();
  const rows = h("div.stack");
  const more = button(t("action.more"), act(place, () => load(page + 1)), { kind: "small", hidden: true });
  let page = 1;
  let entries = [];
  const names = new Map(); // by kind

  const load = async (wanted) => {
    const found = await ask(`/audit?limit=50&page=${wanted}`);
    page = wanted;
    entries = page === 1 ? found.data : [...entries, ...found.data];
    const kinds = new Set(entries.flatMap((one) => [kindOf(one), one.actor.split(":")[0]]).filter((kind) => LISTS[kind] && !names.has(kind)));
    for (const kind of kinds) names.set(kind, await namesOf(kind));
    const all = new Map([...names.values()].flat());
    const actorOf = ({ actor }) => (actor.includes(":") ? nameOf(actor.split(":")[1], actor.split(":")[0], all) : actor);
    rows.replaceChildren(table(t("account.audit"), [t("audit.action"), t("audit.time"), t("audit.actor"), t("audit.target"), t("audit.details")],
      entries.map((one) => [one.action, h("span.time", moment(one.created_at)), shortened(actorOf(one), one.actor), shortened(nameOf(one.target, kindOf(one), all), one.target), h("span.breaks", { title: one.digest }, Object.entries(one.details).map(detail).join("; "))])));
    more.hidden = page >= found.pagination.pages;
  };
  return shownBy(() => {
    names.clear();
    return load(1);
  }, place, card(t("account.audit"), h("p.hint", t("audit.about")), place, rows, more));
}
