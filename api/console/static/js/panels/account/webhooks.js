// Webhooks: make, edit, test, deliveries, secrets.
import { ask } from "../../api.js";
import { toBase64 } from "../../audio/pcm.js";
import { moment, number, t } from "../../i18n.js";
import { about } from "../../session.js";
import { act, button, card, check, copyButton, dialog, explained, field, folded, formDialog, h, iconButton, removed, shownBy, status, statusBadge, table } from "../../ui.js";

const DELIVERIES = 20; // the last ones are shown
const newSecret = () => `whsec_${toBase64(crypto.getRandomValues(new Uint8Array(24)))}`;

// The fields of a new or an existing webhook.
function hookFields(hook) {
  const url = h("input", { type: "url", name: "url", value: hook?.url || "", placeholder: "https://example.com/hook", required: true, maxLength: 2048, autocomplete: "off" });
  // Includes events that the page does not know, which an edit would otherwise remove.
  const names = new Set([...about.events, ...(hook?.events || [])]);
  const events = [...names].map((one) => check(one, { value: one, checked: hook ? hook.events.includes(one) : one === "tts.completed" }));
  const secret = h("input", { name: "secret", autocomplete: "off", spellcheck: false, minLength: 8, maxLength: 256, value: hook ? "" : newSecret() });
  const isActive = check(t("hooks.active"), { checked: hook?.status !== "inactive" });
  const made = h("div.stack",
    field(t("hooks.url"), url),
    h("fieldset.stack", h("legend", t("hooks.events")), h("div.checks", events)),
    field(t("hooks.secret"), secret, { hint: t(hook ? "hooks.secret_keep" : "hooks.secret_hint") }),
    h("div.actions", button(t("hooks.generate"), () => { secret.value = newSecret(); }, { icon: "refresh", kind: "small" }), copyButton(() => secret.value)),
    hook && isActive);
  made.read = () => {
    const json = { url: url.value.trim(), events: events.filter((one) => one.box.checked).map((one) => one.box.value) };
    if (!json.events.length) throw explained(t("hooks.events_none"));
    if (secret.value) json.secret = secret.value;
    if (hook) json.status = isActive.box.checked ? "active" : "inactive";
    return json;
  };
  return made;
}

export function webhooks() {
  const place = status();
  const list = h("div.stack", { id: "hooks" });

  const load = async () => {
    const { webhooks: found } = await ask("/webhooks");
    list.replaceChildren(...(found.length ? found.map(row) : [h("p.empty", t("hooks.none"))]));
  };
  const row = (hook) => h("article.hook", { data: { id: hook.id } },
    h("div.row", h("h3", hook.url), statusBadge(hook.status)),
    h("p.hint", hook.events.join(", ")),
    h("div.actions",
      button(t("hooks.deliveries"), act(place, () => deliveries(hook)), { kind: "small", label: t("hooks.deliveries_of", { url: hook.url }) }),
      button(t("hooks.test"), act(place, () => test(hook)), { kind: "small", label: t("hooks.test_of", { url: hook.url }) }),
      button(t("action.edit"), () => change(hook), { kind: "small", label: t("hooks.edit", { url: hook.url }) }),
      button(t("hooks.rotate"), () => rotate(hook), { kind: "small", label: t("hooks.rotate_of", { url: hook.url }) }),
      iconButton("trash", t("hooks.delete", { url: hook.url }), act(place, () => remove(hook)))));

  // Changes the webhook, or creates one.
  const change = (hook) => {
    const fields = hookFields(hook);
    formDialog(hook ? t("hooks.edit", { url: hook.url }) : t("hooks.new"), async (close) => {
      await ask(hook ? `/webhooks/${hook.id}` : "/webhooks", { method: hook ? "PATCH" : "POST", json: fields.read() });
      await load();
      close();
      place.say(t(hook ? "hooks.saved" : "hooks.added"));
    }, [fields], t(hook ? "action.save" : "hooks.add"));
  };
  const rotate = (hook) => {
    const secret = newSecret();
    formDialog(t("hooks.rotate_of", { url: hook.url }), async (close) => {
      await ask(`/webhooks/${hook.id}`, { method: "PATCH", json: { secret } });
      close();
      place.say(t("hooks.rotated"));
    }, [h("p", t("hooks.rotate_ask")), h("div.secret", h("code", secret), copyButton(secret))], t("hooks.rotate_go"));
  };
  const remove = async (hook) => {
    if (!(await removed(`/webhooks/${hook.id}`, t("hooks.delete", hook), t("hooks.delete_ask", hook)))) return;
    await load();
    place.say(t("hooks.deleted"));
    add.focus();
  };
  const test = async (hook) => {
    const sent = await ask(`/webhooks/${hook.id}/test`, { method: "POST" });
    place.say(t("hooks.tested", { event: sent.event }));
  };
  const deliveries = async (hook) => {
    const said = status();
    const body = h("div.stack");
    const draw = async () => {
      const { data } = await ask(`/webhooks/${hook.id}/deliveries?limit=${DELIVERIES}`);
      const heads = ["word.created", "hooks.event", "word.status", "hooks.attempts", "hooks.last", "hooks.next"].map((key) => t(key));
      body.replaceChildren(table(t("hooks.deliveries_of", { url: hook.url }), [...heads, ""], data.map((one) => {
        const last = one.attempts.at(-1);
        return [
          moment(one.created_at), one.event, statusBadge(one.status), number(one.attempts.length),
          last ? t("hooks.answer", { code: String(last.status_code ?? last.error), n: last.milliseconds }) : "", moment(one.next_attempt_at),
          button(t("hooks.again"), act(said, async () => {
            await ask(`/webhooks/${hook.id}/deliveries/${one.id}/redeliver`, { method: "POST" });
            await draw();
            said.say(t("hooks.resent", { event: one.event }));
          }), { kind: "small", label: t("hooks.again_of", { event: one.event, time: moment(one.created_at) }) }),
        ];
      }), t("hooks.deliveries_none", { url: hook.url })));
    };
    await draw();
    const made = dialog(t("hooks.deliveries_of", { url: hook.url }), [h("div.actions", button(t("action.refresh"), act(said, draw), { icon: "refresh", kind: "small" })), said, body], { kind: "drawer" });
    made.id = "deliveries";
  };

  const add = button(t("hooks.new"), () => change(null), { icon: "plus", id: "add-hook" });
  const made = h("div.stack",
    card(t("account.webhooks"), h("p.hint", t("hooks.about")), h("div.actions", add), place, list),
    folded(t("hooks.verify"), h("p.hint", t("hooks.verify_about"), " ", h("a", { href: "/guide/tasks/webhooks.html", target: "_blank", rel: "noopener" }, t("hooks.verify_guide")))));
  return shownBy(load, place, made);
}
