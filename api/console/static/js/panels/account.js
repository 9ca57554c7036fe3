// Account: parts that are created when they are first shown.
import { codeButton } from "../code.js";
import { t } from "../i18n.js";
import { on } from "../session.js";
import { h, panelHead, panelParts } from "../ui.js";
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
  settings: () => [{ title: t("word.workspace"), method: "PUT", path: "/auth/workspace", json: { retention: "standard" } }],
  audit: () => [{ title: t("account.audit"), method: "GET", path: "/audit" }],
};

export default function makeAccount() {
  const parts = panelParts("account", PARTS, (name) => {
    if (name !== "overview") refreshCredit(0); // the overview does this with its usage
  });
  const code = codeButton(() => REQUESTS[parts.element.chosen]());
  const element = h("div.panel.account", panelHead(t("nav.account"), t("account.lead"), code), parts.element);
  // An operator or another tab may have changed the credit and the plan.
  on("visible", () => {
    if (!element.checkVisibility()) return;
    if (parts.element.chosen === "overview") parts.part("overview").show();
    else refreshCredit(0);
  });
  return { ...parts, element };
}
