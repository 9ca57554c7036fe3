// The operator's page: made for a token of the service, not for a workspace.
import { t } from "../i18n.js";
import { h, panelHead, tabs } from "../ui.js";
import { models } from "./operator/models.js";
import { overview } from "./operator/overview.js";
import { workspaces } from "./operator/workspaces.js";

const PARTS = { overview, workspaces, models };

export default function makeOperator() {
  const made = new Map();
  const part = (name) => {
    if (!made.has(name)) made.set(name, PARTS[name]());
    return made.get(name);
  };
  let isReady = false;
  const parts = tabs(t("operator.parts"), Object.keys(PARTS).map((name) => [name, t(`operator.${name}`), () => part(name)]), (name) => {
    if (!isReady) return;
    history.replaceState(null, "", `#/operator/${name}`);
    part(name).show();
  });
  isReady = true;
  return {
    element: h("div.panel.operator", panelHead(t("nav.operator"), t("operator.lead")), parts),
    show: ([name]) => parts.choose(PARTS[name] ? name : parts.chosen || "overview"),
    leave: () => made.forEach((one) => one.leave?.()),
  };
}
