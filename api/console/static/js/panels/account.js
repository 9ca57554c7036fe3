// Account: parts that are made when they are first shown.
import { codeButton } from "../code.js";
import { t } from "../i18n.js";
import { h, panelHead, tabs } from "../ui.js";
import { refreshCredit } from "../work.js";
import { audit } from "./account/audit.js";
import { keys } from "./account/keys.js";
import { overview } from "./account/overview.js";
import { settings } from "./account/settings.js";
import { webhooks } from "./account/webhooks.js";

const PARTS = { overview, keys, webhooks, settings, audit };
const REQUESTS = {
  overview: () => [{ title: t("account.overview"), method: "GET", path: "/billing/usage" }],
  keys: () => [
    { title: t("keys.make"), path: "/developer/api", json: { name: "server", scopes: ["tts"] } },
    { title: t("account.keys"), method: "GET", path: "/developer/api" },
  ],
  webhooks: () => [{ title: t("hooks.new"), path: "/webhooks", json: { url: "https://example.com/hook", events: ["tts.completed"] } }],
  settings: () => [{ title: t("settings.workspace"), method: "PUT", path: "/auth/workspace", json: { retention: "standard" } }],
  audit: () => [{ title: t("account.audit"), method: "GET", path: "/audit" }],
};

export default function makeAccount() {
  const made = new Map();
  const part = (name) => {
    if (!made.has(name)) made.set(name, PARTS[name]());
    return made.get(name);
  };
  let isReady = false;
  const parts = tabs(t("account.parts"), Object.keys(PARTS).map((name) => [name, t(`account.${name}`), () => part(name)]), (name) => {
    if (!isReady) return;
    history.replaceState(null, "", `#/account/${name}`);
    for (const [other, one] of made) if (other !== name) one.hide?.();
    part(name).show();
    if (name !== "overview") refreshCredit(0); // which the overview does with its usage
  });
  isReady = true;
  const element = h("div.panel.account", panelHead(t("nav.account"), t("account.lead"), codeButton(() => REQUESTS[parts.chosen]())), parts);
  // An operator, or another tab, may have changed credit and plan meanwhile.
  const look = () => {
    if (document.hidden || !element.checkVisibility()) return;
    if (parts.chosen === "overview") part("overview").show();
    else refreshCredit(0);
  };
  document.addEventListener("visibilitychange", look);
  return {
    element,
    hide: () => made.forEach((one) => one.hide?.()),
    show: ([name]) => parts.choose(PARTS[name] ? name : parts.chosen || "overview"),
    leave: () => {
      document.removeEventListener("visibilitychange", look);
      made.forEach((one) => one.leave?.());
    },
  };
}
