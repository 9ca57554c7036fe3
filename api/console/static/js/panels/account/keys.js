// API keys with their scopes and expiry dates.
import { ask } from "../../api.js";
import { ago, day, t } from "../../i18n.js";
import { about } from "../../session.js";
import { act, card, check, copyButton, explained, field, form, h, iconButton, removed, select, shownBy, status, submitButton, table } from "../../ui.js";

const DAYS = ["", "1", "7", "30", "90", "365"];

export function keys() {
  const place = status();
  const listed = status();
  const name = h("input", { name: "name", maxLength: 100, required: true, autocomplete: "off" });
  const all = check(t("keys.scopes_all"), { checked: true });
  const scopes = about.scopes.map((scope) => check(t(`keys.scope.${scope}`), { value: scope }));
  const some = h("div.checks", { hidden: true }, scopes);
  const expires = select(DAYS.map((one) => [one, t(`keys.expires.${one}`)]), { name: "expires_at" });
  const fresh = h("div", { "aria-live": "polite", id: "created" });
  const rows = h("div", { id: "keys" });
  all.box.addEventListener("change", () => { some.hidden = all.box.checked; });

  let asked = 0;
  const load = async () => {
    const number = (asked += 1);
    const { keys: found } = await ask("/developer/api");
    if (number !== asked) return; // a late answer to an older request
    const heads = ["keys.key", "keys.scopes", "word.created", "word.used", "keys.expires"].map((key) => t(key));
    rows.replaceChildren(table(t("account.keys"), [t("word.name"), ...heads, ""], found.map((key) => [
      key.name, h("code", `${key.prefix}…`), key.scopes.length === about.scopes.length ? t("keys.all") : key.scopes.join(", "),
      day(key.created_at), key.last_used_at ? ago(key.last_used_at) : t("keys.never"), key.expires_at ? day(key.expires_at) : t("keys.expires."),
      iconButton("trash", t("keys.delete", { name: key.name }), act(listed, () => remove(key))),
    ]), t("keys.none")));
  };
  const remove = async (key) => {
    if (!(await removed(`/developer/api/${key.id}`, t("keys.delete", key), t("keys.delete_ask", key)))) return;
    await load();
    listed.say(t("keys.deleted", { name: key.name }));
    rows.querySelector("button")?.focus();
  };
  const make = form(place, async () => {
    const json = { name: name.value.trim() };
    if (!all.box.checked) {
      json.scopes = scopes.filter((one) => one.box.checked).map((one) => one.box.value);
      if (!json.scopes.length) throw explained(t("keys.scopes_none"));
    }
    if (expires.value) json.expires_at = new Date(Date.now() + Number(expires.value) * 86_400_000).toISOString();
    const made = await ask("/developer/api", { method: "POST", json });
    make.reset();
    some.hidden = true;
    fresh.replaceChildren(h("div.stack", h("p", t("keys.made")), h("div.secret", h("code", made.key), copyButton(made.key, { of: t("keys.copy") }))));
    await load();
  },
  h("div.fields", field(t("word.name"), name), field(t("keys.expires"), expires)),
  h("fieldset.stack", h("legend", t("keys.scopes")), all, some),
  submitButton(t("keys.go"), { id: "create-key" }), place, fresh);

  const made = h("div.stack", card(t("keys.make"), h("p.hint", t("keys.about")), make), card(t("account.keys"), listed, rows));
  made.hide = () => fresh.replaceChildren(); // shown once
  return shownBy(load, listed, made);
}
