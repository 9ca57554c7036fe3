// Profile, workspace, password, sessions, and deletion of the account.
import { ask } from "../../api.js";
import { day, moment, t } from "../../i18n.js";
import { credential, emit, isKey, limits, session } from "../../session.js";
import { act, aside, button, card, confirmed, field, form, h, select, shownBy, stacked, status, submitButton, table } from "../../ui.js";

function profileCard() {
  const place = status();
  const name = h("input", { name: "name", maxLength: 200, autocomplete: "name" });
  const company = h("input", { name: "company", maxLength: 200, autocomplete: "organization" });
  const fill = (saved) => {
    for (const one of [name, company]) one.value = one.defaultValue = saved[one.name];
  };
  const save = form(place, async () => {
    const json = Object.fromEntries([name, company].filter((one) => one.value !== one.defaultValue).map((one) => [one.name, one.value.trim()]));
    const saved = await ask("/auth/profile", { method: "PUT", json });
    fill(saved);
    place.say(t("settings.profile_saved", { name: saved.name || "–", company: saved.company || "–" }));
  }, h("div.fields", field(t("word.name"), name), field(t("settings.company"), company)), submitButton(t("action.save")), place);
  ask("/auth/profile").then(fill).catch((error) => place.fail(error));
  return card(t("settings.profile"), save);
}

function workspaceCard() {
  const place = status();
  const name = h("input", { name: "workspace", maxLength: 200, required: true, autocomplete: "off" });
  const retention = select(["standard", "zero"].map((one) => [one, t(`settings.retention.${one}`)]), { name: "retention" });
  const days = h("input", { type: "number", name: "speech_history_days", min: 0, max: limits.history_days, step: 1, required: true });
  const since = h("p.hint");
  const fill = (workspace) => {
    name.value = workspace.name;
    retention.value = workspace.retention;
    days.value = workspace.speech_history_days;
    since.textContent = t("settings.since", { id: String(workspace.id), date: day(workspace.created_at) });
  };
  const save = form(place, async () => {
    const json = { name: name.value.trim(), retention: retention.value, speech_history_days: Number(days.value) };
    const saved = await ask("/auth/workspace", { method: "PUT", json });
    Object.assign(session.workspace, saved);
    fill(saved);
    place.say(t("settings.workspace_saved"));
  }, field(t("settings.workspace_name"), name), field(t("settings.retention"), retention, { hint: t("settings.retention_about") }), field(t("settings.history"), days, { hint: t("settings.history_hint", { n: limits.history_days }) }), since, submitButton(t("action.save")), place);
  return shownBy(() => ask("/auth/workspace").then(fill), place, card(t("word.workspace"), save));
}

function passwordCard(onchange) {
  const place = status();
  const current = h("input", { type: "password", name: "current_password", autocomplete: "current-password", required: true, maxLength: 256 });
  const fresh = h("input", { type: "password", name: "new_password", autocomplete: "new-password", required: true, minLength: limits.password_characters, maxLength: 256 });
  const change = form(place, async () => {
    await ask("/auth/password", { method: "PUT", json: { current_password: current.value, new_password: fresh.value } });
    change.reset();
    place.say(t("settings.password_done"));
    await onchange();
  }, h("div.fields", field(t("settings.password_current"), current), field(t("settings.password_new"), fresh, { hint: t("enter.password_hint", { n: limits.password_characters }) })), submitButton(t("settings.password_go"), { id: "change-password" }), place);
  return aside(t("enter.password"), h("p.hint", t("settings.password_about")), change);
}

function sessionsCard() {
  const place = status();
  const rows = h("div", { id: "sessions" });
  const load = async () => {
    const { sessions } = await ask("/auth/sessions");
    rows.replaceChildren(table(t("settings.sessions"), [t("settings.program"), t("settings.address"), t("settings.began"), t("word.used"), ""],
      sessions.map((one) => [
        programOf(one.user_agent), one.address, moment(one.created_at), moment(one.last_used_at),
        one.current ? h("span.badge.good", t("settings.this")) : button(t("settings.end"), act(place, () => end(`/${one.id}`, "settings.ended")), { kind: "small", label: t("settings.end_of", { address: one.address }) }),
      ])));
    others.hidden = sessions.length < 2;
    made.hidden = !sessions.length;
  };
  const end = async (which, said) => {
    await ask(`/auth/sessions${which}`, { method: "DELETE" });
    await load();
    place.say(t(said));
    if (!rows.contains(document.activeElement)) made.querySelector("h2").focus();
  };
  const others = button(t("settings.end_others"), act(place, () => end("", "settings.ended_others")), { kind: "small", id: "end-others" });
  const made = aside(t("settings.sessions"), h("p.hint", t("settings.sessions_about")), place, rows, h("div.actions", others));
  made.querySelector("h2").tabIndex = -1;
  made.show = () => load().catch((error) => (error.status === 403 ? made.remove() : place.fail(error, made.show)));
  return made;
}

const BROWSERS = [["Edg/", "Edge"], ["OPR/", "Opera"], ["Firefox/", "Firefox"], ["Chrome/", "Chrome"], ["Safari/", "Safari"]];
const SYSTEMS = [["Windows", "Windows"], ["Android", "Android"], ["iPhone", "iPhone"], ["Mac OS", "macOS"], ["Linux", "Linux"]];

// "Firefox, Linux" for a browser; the names that other programs give themselves.
function programOf(agent) {
  const find = (all) => all.find(([mark]) => agent.includes(mark))?.[1];
  const named = agent.startsWith("Mozilla/") && [find(BROWSERS), find(SYSTEMS)].filter(Boolean).join(", ");
  return h("span", { title: agent }, named || agent || "–");
}

function eraseCard() {
  const place = status();
  const erase = button(t("settings.erase_go"), act(place, async () => {
    if (!(await confirmed(t("settings.erase"), t("settings.erase_ask"), t("settings.erase"), t("settings.erase_word")))) return;
    await ask("/auth/account", { method: "DELETE" });
    emit("sign-out");
  }), { icon: "trash", kind: "danger" });
  return h("section.card.aside.danger-zone", { "aria-label": t("settings.erase") }, h("h2", t("settings.erase")), h("p", t("settings.erase_about")), h("div.actions", erase), place);
}

export function settings() {
  if (isKey(credential())) return stacked(workspaceCard(), eraseCard());
  const sessions = sessionsCard();
  return stacked(profileCard(), workspaceCard(), passwordCard(() => sessions.show()), sessions, eraseCard());
}
