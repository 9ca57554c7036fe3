// Talk: a voice agent; shows what it hears, says and calls.
import { hush } from "../audio/player.js";
import { devicePicker } from "../audio/microphone.js";
import { liveMeter } from "../audio/waveform.js";
import { codeButton } from "../code.js";
import { t, usd } from "../i18n.js";
import { voiceSelect } from "../previews.js";
import { price } from "../session.js";
import { aside, button, field, form, h, jsonField, panelHead, readTools, select, status, toolCall, toolResult, workButton } from "../ui.js";
import { fillLanguages, fillModels, refreshCredit } from "../work.js";
import { sessionOf, talk } from "./talk/agent.js";

const SAMPLE = [{
  type: "function", name: "weather", description: "The weather of a city now",
  parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
}];

const sumOf = (stages) => stages.reduce((sum, one) => sum + one, 0);

// The milliseconds of a turn: hearing, thinking, speaking.
function latency(stages) {
  const bar = h("div.latency-bar", { "aria-hidden": "true" }, stages.map((part, at) => {
    const made = h("span", { class: `stage-${at}` });
    made.style.setProperty("--part", String(part));
    return made;
  }));
  return h("div.latency", bar, h("div.latency-key", h("strong", t("talk.latency", { total: sumOf(stages) })), stages.map((n, at) => h("span", { class: `stage-${at}` }, t(`talk.stage.${at}`, { n })))));
}

export default function makeTalk() {
  const place = status();
  const instructions = h("textarea", { rows: 3, maxLength: 20000, name: "instructions", value: t("talk.instructions_default") });
  const voice = voiceSelect(["alloy", t("talk.voice_auto")], place, { name: "voice" });
  const model = select([["gpt-realtime-mini", t("chat.model_default")]], { name: "model" }); // with Fast voices
  const turns = select([["semantic", t("talk.turns.semantic")], ["server", t("talk.turns.server")]], { name: "turns" });
  const language = select([["", t("listen.detect")]]);
  const tools = h("textarea.code", { rows: 6, name: "tools", spellcheck: false, placeholder: "[ ]" });
  const device = devicePicker();
  const ours = liveMeter(t("talk.your_level"));
  const theirs = liveMeter(t("talk.their_level"));
  const delay = h("p.delay", { title: t("talk.delay_about") });
  const log = h("div.turns", { role: "log", "aria-live": "polite", "aria-label": t("talk.conversation"), tabIndex: 0 });
  const start = workButton(["talk", t("talk.start")], ["hangup", t("talk.stop")], (stopBy) => converse(stopBy), { kind: "main microphone", id: "talk-start" });
  let lines = new Map(); // by item

  const toolsOf = () => readTools(tools).map((one) => ({ type: "function", ...one }));
  const wish = () => ({ model: model.value, instructions: instructions.value, voice: voice.value, turns: turns.value, language: language.value, tools: toolsOf() });
  const end = () => { log.scrollTop = log.scrollHeight; };
  const lineOf = (item, who) => {
    if (!lines.has(item)) {
      const text = h("p.said-text");
      const made = h("div.turn", { class: who, data: { who } }, h("span.offscreen", t(who === "user" ? "word.you" : "talk.agent")), text);
      lines.set(item, { made, text });
      log.append(made);
    }
    return lines.get(item);
  };
  const view = {
    onready: () => place.say(t("talk.speak")),
    fail: (error) => place.fail(error),
    meters: (input, output) => {
      ours.attach(input);
      theirs.attach(output);
      device.fill();
    },
    write: (item, who, text, isWhole) => {
      const line = lineOf(item, who);
      if (line.isCut && !isWhole) return;
      line.text.textContent = isWhole ? text : line.text.textContent + text;
      end();
    },
    cut: (item) => {
      const line = lineOf(item, "assistant");
      if (!line.isCut) line.made.append(h("span.cut", t("talk.cut")));
      line.isCut = true;
    },
    timed: (item, stages) => {
      lineOf(item, "assistant").made.append(latency(stages));
      delay.textContent = t("unit.delay", { n: sumOf(stages) });
      end();
    },
    call: (name, given, answer) => {
      const result = toolResult();
      const made = h("div.turn.tool", toolCall(name, given));
      const ask = form(place, () => {
        answer(result.value);
        ask.replaceWith(h("p", t("talk.sent", { result: result.value })));
        start.focus();
      }, field(t("tool.result", { name }), result), button(t("talk.send"), null, { type: "submit", kind: "small" }));
      made.append(ask);
      log.append(made);
      end();
    },
  };
  const converse = async (stopBy) => {
    place.clear();
    hush();
    try {
      const wished = wish();
      lines = new Map();
      log.replaceChildren();
      delay.textContent = "";
      place.say(t("word.connecting"));
      const call = talk(wished, device.value, view);
      stopBy(call.hangUp);
      await call.done;
      place.say(t("talk.ended"));
    } catch (error) {
      place.fail(error, start.run);
    } finally {
      ours.detach();
      theirs.detach();
      refreshCredit();
    }
  };

  fillLanguages(language);
  fillModels(model);

  const requests = () => {
    const session = sessionOf(wish());
    return [
      { title: t("talk.agent"), path: "/openai/v1/realtime/client_secrets", json: { session, expires_after: { seconds: 60 } } },
      { title: t("talk.conversation"), socket: "/openai/v1/realtime", messages: [{ type: "session.update", session }, { type: "input_audio_buffer.append", audio: "<base64>" }] },
    ];
  };
  const element = h("div.panel.talk",
    panelHead(t("nav.talk"), t("talk.lead"), codeButton(requests, place)),
    h("div.columns",
      h("section.card", { "aria-label": t("talk.conversation") },
        h("div.row", start, delay), place,
        h("div.call-meters",
          h("figure", h("figcaption", t("word.you")), ours),
          h("figure", h("figcaption", t("talk.agent")), theirs)),
        h("p.empty.none", t("talk.none")), log),
      aside(t("talk.agent"),
        field(t("talk.instructions"), instructions), h("div.with-preview", field(t("voices.title"), voice), voice.preview),
        h("details", h("summary", t("word.options")), h("div.stack",
          field(t("word.model"), model), field(t("talk.turns"), turns), field(t("talk.language"), language), device)),
        jsonField(t("tool.list"), tools, t("talk.tools_hint"), SAMPLE),
        h("p.hint", t("talk.price", { stt: usd(price("stt_second", 60)), tts: usd(price("tts_character", 1)), chat: usd(price("chat_token", 1)) })),
        h("p.hint", t("talk.headphones")))));
  return { element };
}
