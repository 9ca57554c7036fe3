// A text, or the lines of several speakers, as a file or live, with a voice.
import { hush, player } from "../../audio/player.js";
import { number, t, usd } from "../../i18n.js";
import { limits, on, price } from "../../session.js";
import { setting } from "../../store.js";
import { aside, busy, button, check, download, explained, field, folded, h, jobLink, onEnter, range, select, status, tabs, workButton } from "../../ui.js";
import { refreshCredit } from "../../work.js";
import { wordsView } from "../../words.js";
import { dictionaryChooser } from "./dictionaries.js";
import { explanationCard } from "./explanation.js";
import { nameOf, speechHistory } from "./history.js";
import { isMarkup, markFault, markupButtons, plain } from "./markup.js";
import { scriptEditor } from "./script.js";
import { FORMATS, body, makeFile, messages, priceOf, speakLive, toExplain, way } from "./synthesis.js";
import { voicePicker } from "./voices.js";

export function speech() {
  const place = status();
  const text = h("textarea.big", { name: "text", rows: 4, value: setting("draft") ?? t("speak.first_text"), spellcheck: true });
  const count = h("p.count", { "aria-live": "off" });
  const over = h("p.over", { role: "status" });
  const kind = h("span.badge.good", { hidden: true }, t("markup.kind"));
  const explanation = explanationCard();
  const script = scriptEditor({ onchange: () => recount() });
  const dictionaries = dictionaryChooser({ onchange: () => explanation.clear() });
  const speed = range(t("speak.speed"), { min: 0.5, max: 2, step: 0.05, value: 1, show: (value) => `${number(value, 2)}×`, name: "speed" });
  const pitch = range(t("speak.pitch"), { min: 0.5, max: 2, step: 0.05, value: 1, show: (value) => `${number(value, 2)}×`, name: "pitch" });
  const format = select(FORMATS.map((one) => [one, one.toUpperCase()]), { name: "format" });
  const enhance = check(t("speak.enhance"), { name: "enhance", checked: true });
  const voiceName = h("strong");
  const playing = player({ ontime: (seconds, isPlaying) => words.mark(seconds, isPlaying) });
  const words = wordsView({ label: t("speak.words"), onseek: (seconds) => { playing.seek(seconds); if (!playing.hidden) playing.play(); } });
  const save = button(t("action.download"), () => download(result.blob, nameOf(result)), { icon: "download", kind: "small", hidden: true, id: "save-speech" });
  const explain = button(t("explain.go"), () => run(explain, (wished) => explanation.ask(toExplain(wished))), { icon: "search", kind: "quiet", id: "explain" });
  const file = button(t("speak.file"), () => run(file, asFile), { icon: "download", id: "make-file" });
  const live = workButton(["play", t("speak.live")], ["stop", t("action.stop")], (stopBy) =>
    run(null, (wished) => asLive(wished, stopBy), live.run), { kind: "main", id: "speak-live" });
  const picker = voicePicker({ place, onchange: (voice) => { voiceName.textContent = voice ? voice.name : t("voices.auto"); } });
  const history = speechHistory({ onplay: (item) => { show(item); playing.play(); } });
  let result = null;

  const isScript = () => modes.chosen === "script";
  const lines = () => script.lines.filter((one) => one.text.trim());
  const wish = () => ({
    text: isScript() ? lines().map((one) => one.text).join("\n") : text.value,
    script: isScript() ? lines() : null,
    pronunciations: dictionaries.ids,
    voice: picker.voice, speed: Number(speed.input.value), pitch: Number(pitch.input.value),
    enhance: enhance.box.checked, format: format.value,
  });
  const size = () => [...wish().text].length;
  const costOf = ({ text: spoken, script: all }) => {
    const texts = all ? all.map((one) => one.text) : [spoken];
    return price("tts_character", texts.reduce((sum, one) => sum + [...plain(one)].length, 0));
  };
  const recount = () => {
    const n = size();
    explanation.clear();
    kind.hidden = isScript() || !isMarkup(text.value);
    const parts = [t("text.count", { n, most: limits.file_characters }), t("speak.price", { price: usd(costOf(wish())) })];
    count.textContent = parts.filter(Boolean).join(" · ");
    count.classList.toggle("bad", n > limits.file_characters);
    const key = isScript() ? "script.over" : n > limits.socket_characters ? "speak.over_socket" : "speak.over";
    over.replaceChildren(...(n > limits.file_characters ? [t(key, { n, most: limits.file_characters, socket: limits.socket_characters }), " ", ...(isScript() ? [] : [jobLink("speech")])] : []));
    setting("draft", text.value);
  };
  const show = (item) => {
    result = item;
    save.hidden = false;
    words.show(item.words, item.text, plainOf(item));
    return playing.load(item.blob);
  };
  // Shows and stores finished speech. The price of anything but plain text comes from the service.
  const finish = async (made, wished, first) => {
    const isPlain = !wished.script && !wished.pronunciations.length && !wished.text.includes("<");
    const cost = isPlain ? costOf(wished) : await priceOf(wished).catch(() => costOf(wished));
    const voices = new Set((wished.script || [{}]).map((line) => script.nameOf(line.voice) || wished.voice?.name || t("voices.auto")));
    const item = { text: wished.text, script: wished.script, voice: [...voices].join(", "), cost, ...made };
    const silent = made.unread?.length ? ` ${t("speak.unread", { parts: made.unread.join(", ") })}` : "";
    const warned = (made.warnings || []).map((warning) => ` ${warning}.`).join("");
    place.say(t("speak.done", { length: t("unit.seconds", { n: number(made.seconds, 1) }), first: t("unit.seconds", { n: number(first / 1000, 2) }), price: usd(cost) }) + silent + warned);
    const shown = show(item);
    history.add(item);
    refreshCredit();
    return shown;
  };
  const plainOf = ({ text: whole, script: all }) =>
    ((all || [{ text: whole }]).some((one) => isMarkup(one.text)) ? (part) => plain(part, true) : plain);
  const run = async (pressed, work, again = () => run(pressed, work)) => {
    const wished = wish();
    place.clear();
    try {
      if (!wished.text.trim()) throw explained(t("speak.empty"));
      await busy(pressed, () => work(wished));
    } catch (error) {
      place.fail(error, again);
      const isMarked = isScript() ? script.markFault(error.message) : markFault(text, error.message);
      if (error.isExplained && !isMarked && !isScript()) text.focus();
    }
  };
  const asFile = async (wished) => {
    if (size() > limits.file_characters) throw explained(t(isScript() ? "script.over" : "speak.over", { n: size(), most: limits.file_characters, socket: limits.socket_characters }), { job: !isScript() && "speech" });
    place.say(t("speak.making"));
    const began = performance.now();
    const made = await makeFile(wished);
    await finish(made, wished, performance.now() - began);
    await playing.play();
  };
  const asLive = async (wished, stopBy) => {
    if (!way(wished)) throw explained(t(isScript() ? "script.over" : "speak.live_choose", { most: limits.file_characters }), { job: !isScript() && "speech" });
    hush();
    const control = new AbortController();
    stopBy(() => control.abort());
    playing.clear();
    save.hidden = true;
    words.show([], wished.text, plainOf(wished));
    place.say(t("speak.making"));
    let first = 0;
    const follow = (stream) => {
      if (stream.context.state === "closed") return;
      words.mark(stream.time, true);
      requestAnimationFrame(() => follow(stream));
    };
    const made = await speakLive(wished, {
      signal: control.signal,
      onbegin: follow,
      onwords: (all) => words.show(all, wished.text, plainOf(wished)),
      onfirst: (milliseconds) => { first = milliseconds; place.say(t("speak.live_now")); },
    });
    if (made) await finish(made, wished, first);
    if (control.signal.aborted) place.say(t("speak.stopped"));
  };

  const written = field(t("speak.text"), text);
  written.firstChild.classList.add("offscreen"); // the tab has the same words
  const modes = tabs(t("speak.modes"), [
    ["text", t("speak.text"), h("div.stack", written, markupButtons(text))],
    ["script", t("script.title"), script],
  ], (mode) => {
    setting("mode", mode);
    recount();
  });

  text.addEventListener("input", recount);
  onEnter(text, (event) => (event.ctrlKey || event.metaKey) && live.click());
  modes.choose(setting("mode") || "text");

  const requests = () => {
    const wished = wish();
    if (!wished.text.trim()) wished.text = t("speak.text");
    const json = body(wished);
    const voice = JSON.stringify(wished.voice?.name || "alloy");
    const named = wished.pronunciations.length ? `,\n    extra_body={"pronunciations": ${JSON.stringify(wished.pronunciations)}},` : "";
    const openai = wished.script ? null : [`with client.audio.speech.with_streaming_response.create(`, `    model="tts-1", voice=${voice}, speed=${wished.speed}, input=${JSON.stringify(wished.text)}${named}`, `) as answer:`, `    answer.stream_to_file("speech.mp3")`].join("\n");
    return [
      { title: t("speak.file"), path: "/tts-synthesize", json, openai },
      way(wished) === "stream"
        ? { title: t("speak.live"), path: "/tts-stream", json: { ...json, output_format: "pcm" }, streams: true }
        : { title: t("speak.live"), socket: "/ws/tts", messages: messages(wished) },
      { title: t("explain.go"), path: "/tts/explain", json: toExplain(wished) },
    ];
  };

  const write = h("section.card.write", { "aria-label": t("speak.text") },
    modes, h("div.row", count, kind), over,
    h("p.chosen-voice", h("span", t("voices.title")), voiceName, button(t("voices.change"), () => picker.focus(), { kind: "small" })),
    h("div.actions", live, file, explain), place);
  const options = folded(t("word.options"), h("div.settings", speed, pitch, field(t("speak.format"), format), enhance), dictionaries);
  const made = h("div.columns",
    h("div.column", write, options, explanation, aside(t("speak.result"), h("p.empty.none", t("speak.result_none")), playing, words, h("div.actions", save)), history),
    h("div.column", aside(t("voices.title"), picker)));
  made.requests = requests;
  made.take = async (id) => {
    await picker.ready;
    picker.take(id);
  };
  on("leave", playing.clear);
  return made;
}
