// The operator's page, which needs the operator's token instead of a workspace.
import { t } from "../i18n.js";
import { h, panelHead, panelParts } from "../ui.js";
import { models } from "./operator/models.js";
import { overview } from "./operator/overview.js";
import { workspaces } from "./operator/workspaces.js";

export default function makeOperator() {
  const parts = panelParts("operator", { overview, workspaces, models });
  return { ...parts, element: h("div.panel.operator", panelHead(t("nav.operator"), t("operator.lead")), parts.element) };
}
