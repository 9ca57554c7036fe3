// The microphone with live text.
import { ApiError, ask } from "../../api.js";
import { devicePicker, openMicrophone } from "../../audio/microphone.js";
import { RATE, toBase64 } from "../../audio/pcm.js";
import { converse, openSocket } from "../../audio/socket.js";
import { liveMeter } from "../../audio/waveform.js";
import { number, t, usd } from "../../i18n.js";
import { noteCredit, price } from "../../session.js";
import { aside, copyButton, h, status, workButton } from "../../ui.js";
import { refreshCredit } from "../../work.js";
import { exportButtons } from "./transcript.js";

export const startMessage = (language, style) => ({
  type: "start",
  languages: language ? [language] : null,
  config: { encoding: "linear", sample_rate: RATE, continuous_mode: true, interim_results_frequency: 400, ...style },
});

export function liveListening({ language, style }) {
  const place = status();
  const meter = liveMeter(t("mic.level"));
  const device = devicePicker();
  const text = h("div.live-text", { "aria-live": "polite", "aria-label": t("listen.live"), tabIndex: 0, role: "log" });
  const delay = h("p.delay", { title: t("listen.delay_about") });
  const start = workButton(["listen", t("listen.start")], ["stop", t("action.stop")], (stopBy) => run(stopBy), { kind: "main microphone", id: "listen-live" });
  const finals = new Map();

  const result = () => {
    const all = [...finals.values()];
    const duration = Math.max(0, ...all.map((one) => one.timestamp + one.duration));
    return { text: all.map((one) => one.text).join(" "), language: all[0]?.language || "", confidence: 1, duration, words: all.flatMap((one) => one.words || []) };
  };
  const after = h("div.actions",
    copyButton(() => [...finals.values()].map((one) => one.text).join("\n")),
    exportButtons(() => ({ name: "microphone", result: result(), nameOf: (one) => one })));
  after.hidden = true;

  async function listen(stopBy) {
    const microphone = await openMicrophone({ device: device.value });
    meter.attach(microphone.meter);
    device.fill();
    const socket = openSocket("/ws/stt");
    const send = (message) => socket.readyState === WebSocket.OPEN && socket.send(JSON.stringify(message));
    let spoken = 0; // seconds of audio that were sent
    const hear = (bytes) => {
      spoken += bytes.length / 2 / RATE;
      send({ type: "audio", audio: toBase64(bytes), encoding: "linear", sample_rate: RATE });
    };
    const end = () => (socket.readyState === WebSocket.OPEN ? send({ type: "stop" }) : socket.close());
    stopBy(end);
    const lines = new Map();
    let isConnected = false;
    let lost = null; // why the microphone failed
    try {
      await converse(socket, (message) => {
        if (message.connection_established) {
          noteCredit(message.connection_established.credit_balance);
          send(startMessage(language(), style()));
        } else if (message.type === "connected") {
          isConnected = true;
          microphone.begin(hear).catch((error) => { lost = error; }).then(end);
          place.say(t("listen.listening"));
        } else if (message.type === "error") { // after the start, the session continues despite errors
          if (!isConnected) throw new ApiError(message.error);
          place.fail(new ApiError(message.error));
        } else if (message.type === "session_stopped") {
          const { total_duration_seconds: seconds, total_cost: cost } = message.billing_summary;
          place.say(t("listen.session", { length: t("unit.seconds", { n: number(seconds, 1) }), price: usd(cost) }));
        } else if (message.type === "transcription") {
          const end = message.words.at(-1)?.end ?? message.timestamp + message.duration;
          if (message.text) delay.textContent = t("unit.delay", { n: Math.max(0, Math.round((spoken - end) * 1000)) });
          show(lines, message);
        }
      }, () => ask("/stt/languages"));
      if (lost) throw lost;
    } finally {
      meter.detach();
      await microphone.close();
      // A final always follows an interim, but not when the connection was lost.
      text.querySelectorAll(".interim").forEach((one) => one.classList.remove("interim"));
    }
  }
  const show = (lines, message) => {
    let line = lines.get(message.sentence_id);
    if (!line) {
      line = h("p");
      lines.set(message.sentence_id, line);
      text.append(line);
    }
    // Committed text stays; the rest may still change.
    line.replaceChildren(message.committed, message.tentative && h("span.interim", message.tentative));
    line.title = `${number(message.timestamp, 1)} s`;
    if (message.is_final && message.text) finals.set(message.sentence_id, message);
    if (message.is_final && !message.text) line.remove();
    text.scrollTop = text.scrollHeight;
  };
  const run = async (stopBy) => {
    place.say(t("word.connecting"));
    text.replaceChildren();
    delay.textContent = "";
    finals.clear();
    after.hidden = true;
    try {
      await listen(stopBy);
    } catch (error) {
      place.fail(error, start.run);
    } finally {
      after.hidden = !finals.size;
      refreshCredit();
    }
  };
  const made = h("section.card", { "aria-label": t("listen.microphone") }, h("div.row", start, delay), place, meter, device,
    h("p.hint", t("listen.live_price", { price: usd(price("stt_second", 60)) })));
  made.transcript = aside(t("listen.live"), h("p.empty.none", t("listen.live_none")), text, after);
  return made;
}
