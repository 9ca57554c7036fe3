// Speak: a text as a file or live, with a voice.
import { hush, player } from "../audio/player.js";
import { codeButton } from "../code.js";
import { number, t, usd } from "../i18n.js";
import { price } from "../session.js";
import { setting } from "../store.js";
import { busy, button, card, check, download, explained, field, h, panelHead, range, select, setButton, status } from "../ui.js";
import { refreshCredit } from "../work.js";
import { wordsView } from "../words.js";
import { nameOf, speechHistory } from "./speak/history.js";
import { FILE_CHARACTERS, SOCKET_CHARACTERS, body, makeFile, messages, speakLive, way } from "./speak/synthesis.js";
import { voicePicker } from "./speak/voices.js";

export default function makeSpeak() {
  const place = status();
  const text = h("textarea.big", { name: "text", rows: 6, value: setting("draft") ?? t("speak.first_text"), spellcheck: true });
  const count = h("p.count", { "aria-live": "off" });
  const over = h("p.over", { role: "status" });
  const speed = range(t("speak.speed"), { min: 0.5, max: 2, step: 0.05, value: 1, show: (value) => `${number(value, 2)}×`, name: "speed" });
  const pitch = range(t("speak.pitch"), { min: 0.5, max: 2, step: 0.05, value: 1, show: (value) => `${number(value, 2)}×`, name: "pitch" });
  const format = select(["mp3", "wav", "ogg", "flac"].map((one) => [one, one.toUpperCase()]), { name: "format" });
  const enhance = check(t("speak.enhance"), { name: "enhance", checked: true });
  const voiceName = h("strong");
  const none = h("p.empty", t("speak.result_none"));
  const playing = player({ ontime: (seconds, isPlaying) => words.mark(seconds, isPlaying) });
  const words = wordsView({ label: t("speak.words"), onseek: (seconds) => { playing.seek(seconds); if (!playing.hidden) playing.play(); } });
  const save = button(t("action.download"), () => download(result.blob, nameOf(result)), { icon: "download", kind: "small", hidden: true, id: "save-speech" });
  const file = button(t("speak.file"), () => run(file, asFile), { icon: "download", id: "make-file" });
  const live = button(t("speak.live"), () => (stopLive ? stopLive() : run(null, asLive)), { icon: "play", kind: "main", id: "speak-live" });
  const picker = voicePicker({ place, onchange: (voice) => { voiceName.textContent = voice ? voice.name : t("voices.auto"); } });
  const history = speechHistory({ onplay: (item) => { show(item); playing.play(); } });
  let result = null;
  let stopLive = null;

  const wish = () => ({
    text: text.value, voice: picker.voice, speed: Number(speed.input.value), pitch: Number(pitch.input.value),
    enhance: enhance.box.checked, format: format.value,
  });
  const size = () => [...text.value].length;
  const recount = () => {
    const n = size();
    count.textContent = `${t("speak.count", { n, most: FILE_CHARACTERS })} · ${t("speak.price", { price: usd(price("tts_character", n)) })}`;
    count.classList.toggle("bad", n > FILE_CHARACTERS);
    const key = n > SOCKET_CHARACTERS ? "speak.over_socket" : "speak.over";
    over.textContent = n > FILE_CHARACTERS ? t(key, { n, most: FILE_CHARACTERS, socket: SOCKET_CHARACTERS }) : "";
    setting("draft", text.value);
  };
  const show = (item) => {
    result = item;
    none.hidden = true;
    save.hidden = false;
    words.show(item.words, item.text);
    return playing.load(item.blob);
  };
  // What was made, shown and kept.
  const finish = (made, wished, first) => {
    const cost = price("tts_character", [...wished.text].length);
    const item = { text: wished.text, voice: wished.voice?.name || t("voices.auto"), cost, ...made };
    place.say(t("speak.done", { length: t("unit.seconds", { n: number(made.seconds, 1) }), first: t("unit.seconds", { n: number(first / 1000, 2) }), price: usd(cost) }));
    const shown = show(item);
    history.add(item);
    refreshCredit();
    return shown;
  };
  const run = async (pressed, work) => {
    const wished = wish();
    place.clear();
    welcome.hidden = true;
    setting("welcomed", true);
    try {
      if (!wished.text.trim()) throw explained(t("speak.empty"));
      await busy(pressed, () => work(wished));
    } catch (error) {
      place.fail(error, () => run(pressed, work));
      if (error.isExplained) text.focus();
    }
  };
  const asFile = async (wished) => {
    if (size() > FILE_CHARACTERS) throw explained(t("speak.over", { n: size(), most: FILE_CHARACTERS, socket: SOCKET_CHARACTERS }));
    place.say(t("speak.making"));
    const began = performance.now();
    const made = await makeFile(wished);
    finish(made, wished, performance.now() - began);
    await playing.play();
  };
  const asLive = async (wished) => {
    if (!way(wished)) throw explained(t("speak.live_choose", { most: FILE_CHARACTERS }));
    hush();
    const control = new AbortController();
    stopLive = () => control.abort();
    setButton(live, "stop", t("speak.stop"));
    none.hidden = true;
    playing.clear();
    save.hidden = true;
    words.show([], wished.text);
    place.say(t("speak.making"));
    let first = 0;
    let stream = null;
    const follow = () => {
      if (!stream || stream.context.state === "closed") return;
      words.mark(stream.time, true);
      requestAnimationFrame(follow);
    };
    try {
      const made = await speakLive(wished, {
        signal: control.signal,
        onbegin: (begun) => { stream = begun; follow(); },
        onwords: (all) => words.show(all, wished.text),
        onfirst: (milliseconds) => { first = milliseconds; place.say(t("speak.live_now")); },
      });
      if (made) await finish(made, wished, first);
      if (control.signal.aborted) place.say(t("speak.stopped"));
    } finally {
      stopLive = null;
      setButton(live, "play", t("speak.live"));
    }
  };

  const welcome = h("section.card.welcome", { "aria-label": t("speak.welcome"), hidden: Boolean(setting("welcomed")) },
    h("div", h("h2", t("speak.welcome")), h("p", t("speak.welcome_about", { price: usd(price("tts_character", size())) }))),
    button(t("speak.welcome_go"), () => { live.focus(); run(null, asLive); }, { icon: "play", kind: "main", id: "first-sentence" }));

  text.addEventListener("input", recount);
  text.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) live.click();
  });
  recount();

  const requests = () => {
    const wished = wish();
    const json = body(wished);
    const voice = JSON.stringify(wished.voice?.name || "alloy");
    const openai = [`with client.audio.speech.with_streaming_response.create(`, `    model="tts-1", voice=${voice}, speed=${wished.speed}, input=${JSON.stringify(wished.text)}`, `) as answer:`, `    answer.stream_to_file("speech.mp3")`].join("\n");
    return [
      { title: t("speak.file"), path: "/tts-synthesize", json, openai },
      way(wished) === "stream"
        ? { title: t("speak.live"), path: "/tts-stream", json: { ...json, output_format: "pcm" }, streams: true }
        : { title: t("speak.live"), socket: "/ws/tts", messages: messages(wished) },
    ];
  };

  const write = h("section.card.write", { "aria-label": t("speak.text") },
    field(t("speak.text"), text), h("div.row", count), over,
    h("p.chosen-voice", t("voices.title"), ": ", voiceName, " ", button(t("voices.change"), () => picker.focus(), { kind: "small" })),
    h("div.settings", speed, pitch, field(t("speak.format"), format), enhance),
    h("div.actions", live, file), place);
  const element = h("div.panel.speak",
    panelHead(t("nav.speak"), t("speak.lead"), codeButton(requests)),
    welcome,
    h("div.columns",
      h("div.column", write, card(t("speak.result"), none, playing, words, h("div.actions", save)), history),
      h("div.column", card(t("voices.title"), picker))));
  return {
    element,
    show: async ([id] = []) => {
      if (!id) return;
      await picker.ready;
      picker.take(id);
    },
    leave: () => {
      stopLive?.();
      playing.clear();
      picker.leave();
    },
  };
}
