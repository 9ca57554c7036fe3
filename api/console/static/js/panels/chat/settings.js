// The options that a chat sends with its messages.
import { t, number } from "../../i18n.js";
import { check, chosenIn, field, folded, h, jsonField, range, readJson, readTools, select } from "../../ui.js";
import { fillModels, tellModel } from "../../work.js";

const TOOLS = [{ name: "weather", description: "The weather of a city", parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] } }];
const SCHEMA = { type: "object", properties: { name: { type: "string", maxLength: 40 }, reason: { type: "string", maxLength: 120 } }, required: ["name", "reason"] };

export function chatSettings({ saves }) {
  const model = select([["", t("chat.model_default")]], { name: "model" });
  const system = h("textarea", { rows: 3, name: "system" });
  const temperature = range(t("chat.temperature"), { min: -0.05, max: 2, step: 0.05, value: -0.05, show: (value) => (value < 0 ? t("chat.temperature_default") : number(value, 2)) });
  const most = h("input", { type: "number", min: 1, max: 4096, step: 1, value: 400, inputMode: "numeric" });
  const tools = h("textarea.code", { rows: 10, spellcheck: false, name: "tools" });
  const schema = h("textarea.code", { rows: 10, spellcheck: false, name: "schema" });
  const save = check(t("chat.save"), { checked: saves, disabled: !saves });
  const chooser = field(t("word.model"), model);
  const about = h("span", { id: "chat-model-about" });
  const tell = () => tellModel(about, model);
  model.addEventListener("change", tell);
  fillModels(model, () => {
    chooser.hidden = model.options.length < 3; // the default and others
    tell();
  });

  const made = folded(t("word.options"),
    field(t("chat.system"), system, { hint: t("chat.system_hint") }),
    temperature,
    field(t("chat.most"), most),
    jsonField(t("tool.list"), tools, t("chat.tools_hint"), TOOLS),
    jsonField(t("chat.schema"), schema, t("chat.schema_hint"), SCHEMA),
    save, saves ? null : h("p.hint", t("chat.saved_zero")));
  made.answers = h("div.answers", chooser, h("p.hint", about, " ", h("a", { href: "/guide/tasks/chat-model.html", target: "_blank", rel: "noopener" }, t("model.change"))));
  // The fields of a request; throws if a box is not JSON, before anything is sent.
  made.fields = () => {
    const fields = { save_chat: save.box.checked, ...chosenIn(model) };
    const chosen = Number(temperature.input.value);
    if (chosen >= 0) fields.temperature = Number(chosen.toFixed(2));
    if (Number(most.value) > 0) fields.max_tokens = Number(most.value);
    const functions = readTools(tools);
    if (functions.length) fields.tools = functions.map((one) => ({ type: "function", function: one }));
    const shape = readJson(schema, t("chat.schema"));
    if (shape) fields.response_format = { type: "json_schema", json_schema: { name: "answer", schema: shape } };
    return fields;
  };
  Object.defineProperty(made, "system", { get: () => system.value.trim() });
  return made;
}
