// Chat and correct.
import { codeButton } from "../code.js";
import { t } from "../i18n.js";
import { h, panelHead, tabs } from "../ui.js";
import { conversation } from "./chat/conversation.js";
import { correction } from "./chat/correction.js";

export default function makeChat() {
  const chat = conversation();
  const correct = correction();
  const modes = tabs(t("chat.modes"), [["chat", t("chat.mode.chat"), chat], ["correct", t("chat.mode.correct"), correct]]);
  modes.choose("chat");
  const element = h("div.panel.chat",
    panelHead(t("nav.chat"), t("chat.lead"), codeButton(() => [(modes.chosen === "chat" ? chat : correct).request()], chat.place)), modes);
  return { element, show: ([mode]) => mode && modes.choose(mode) };
}
