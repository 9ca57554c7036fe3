// Recordings for a voice: uploaded or recorded here, with their lengths and problems.
import { player } from "../../audio/player.js";
import { decode } from "../../audio/pcm.js";
import { devicePicker, record } from "../../audio/microphone.js";
import { liveMeter } from "../../audio/waveform.js";
import { number, t } from "../../i18n.js";
import { about, on } from "../../session.js";
import { explained, h, iconButton, keepFromLoss, status, workButton } from "../../ui.js";
import { checkKind, dropZone, lengthOf } from "../listen/queue.js";

const rules = about.recordings || {};
const TEXTS = 4;
const QUIET = 0.08; // the loudest sample of a recording that is probably too quiet
const tenths = (value) => number(Math.floor(value * 10) / 10, 1); // rounds down
const seconds = (value) => t("unit.seconds", { n: tenths(value) });

// The text about a recording, and whether it cannot be used.
function guidance(take) {
  const { length, loudest, clipped, treble } = take;
  if (length === null) return ["", t("own.unknown")];
  const text = { length: seconds(length) };
  if (length < rules.min_seconds) return ["bad", t("own.short", { ...text, n: rules.min_seconds }), true];
  if (length > rules.max_seconds) return ["bad", t("own.long", { ...text, n: rules.max_seconds }), true];
  if (rules.min_treble_db !== null && treble < 10 ** (rules.min_treble_db / 10)) return ["bad", t("own.telephone", text)];
  if (clipped > rules.max_clipped_share) return ["bad", t("own.clipped", text)];
  if (loudest < QUIET) return ["bad", t("own.quiet", text)];
  return ["good", t("own.good", text)];
}

// The share of the power that lies above the band of telephones; the service measures it too.
async function trebleOf(decoded, samples) {
  const power = (of) => of.reduce((sum, one) => sum + one * one, 0);
  const context = new OfflineAudioContext(1, decoded.length, decoded.sampleRate);
  const mono = new AudioBuffer({ length: decoded.length, sampleRate: decoded.sampleRate }); // a mix may cancel out
  mono.copyToChannel(samples, 0);
  const source = new AudioBufferSourceNode(context, { buffer: mono });
  const filters = Array.from({ length: 6 }, () => new BiquadFilterNode(context, { type: "highpass", frequency: 5000 }));
  [...filters, context.destination].reduce((from, to) => from.connect(to), source);
  source.start();
  return power((await context.startRendering()).getChannelData(0)) / power(samples);
}

// Measures what the browser can decode; the service checks the rest.
async function measure(file) {
  const decoded = await decode(file);
  if (!decoded) return { length: await lengthOf(file) };
  const samples = decoded.getChannelData(0);
  const loudest = samples.reduce((most, one) => Math.max(most, Math.abs(one)), 0);
  const high = samples.filter((one) => Math.abs(one) > 0.995);
  return { length: decoded.duration, loudest, clipped: high.length / samples.length, treble: await trebleOf(decoded, samples) };
}

export function recordings() {
  const place = status();
  const list = h("ul.takes", { "aria-label": t("own.recordings") });
  const bar = h("progress", { max: rules.min_total_seconds, value: 0, "aria-label": t("own.recordings") });
  const sum = h("p.hint", { role: "status" });
  const meter = liveMeter(t("mic.level"));
  const device = devicePicker();
  const read = h("p.read-aloud");
  const said = h("p.hint", { "aria-live": "off" });
  const toggle = workButton(["record", t("own.record")], ["stop", t("own.record_stop")], (stopBy) => recordTake(stopBy), { kind: "microphone", id: "record-take" });
  let takes = [];
  let recorded = 0;
  let language = ""; // set if there is no text in this language
  const drop = dropZone(t("own.upload"), t("own.rules", {
    least: rules.min_files, most: rules.max_files, from: rules.min_seconds, to: rules.max_seconds, total: rules.min_total_seconds,
  }), (files) => files.forEach((file) => add(file).catch((error) => place.fail(error))));

  const accepted = () => takes.filter((one) => !one.isWrong);
  const total = () => accepted().reduce((all, one) => all + (one.length || 0), 0);
  const recount = () => {
    bar.value = Math.min(total(), rules.min_total_seconds);
    sum.textContent = t("own.total", { sum: tenths(total()), least: rules.min_total_seconds, n: accepted().length });
  };
  const add = async (file) => {
    checkKind(file);
    const take = { file, length: null, isWrong: true }; // until it is measured
    const note = h("p.guidance", { role: "status" });
    const playing = player({ small: true, label: file.name });
    take.element = h("li.take", h("p", h("strong", file.name)), iconButton("trash", t("action.remove_of", { name: file.name }), () => {
      made.clear([file]);
      toggle.focus();
    }), note, playing);
    take.clear = playing.clear;
    takes.push(take);
    list.append(take.element);
    playing.load(file);
    Object.assign(take, await measure(file));
    const [kind, text, isWrong = false] = guidance(take);
    take.isWrong = isWrong;
    note.textContent = text;
    note.className = `guidance ${kind}`;
    recount();
  };
  const recordTake = async (stopBy) => {
    place.clear();
    try {
      const recorder = await record({
        device: device.value,
        onlost: (error) => { toggle.stop(); place.fail(error); },
        ontick: (length) => {
          said.textContent = t("own.recording_now", { length: seconds(length), most: seconds(rules.max_seconds) });
          if (length >= rules.max_seconds - 0.2) toggle.stop();
        },
      });
      meter.attach(recorder.meter);
      device.fill();
      await new Promise(stopBy);
      meter.detach();
      said.textContent = "";
      const recording = await recorder.stop();
      if (!recording) return;
      recorded += 1;
      made.read();
      await add(new File([recording], `${t("own.take", { n: recorded })}.wav`, { type: "audio/wav" }));
    } catch (error) {
      place.fail(error);
    }
  };
  const recorder = h("div.recorder", h("p.hint", t("own.record_about", { n: rules.max_seconds })), read, device, meter, h("div.row.start", toggle, said));
  const made = h("div.stack", h("div.columns", drop, recorder), place, list, h("div.total", bar, sum));
  recount();
  keepFromLoss(() => takes.length || toggle.classList.contains("running"));

  // Returns the files, or throws an error that explains the problem, before anything is uploaded.
  made.files = () => {
    const n = takes.length;
    if (n > accepted().length) throw explained(t("own.need_good"));
    if (n < rules.min_files || n > rules.max_files) throw explained(t("own.need_files", { least: rules.min_files, most: rules.max_files, n }));
    const isKnown = takes.every((one) => one.length !== null);
    if (isKnown && total() < rules.min_total_seconds) throw explained(t("own.need_total", { sum: tenths(total()), least: rules.min_total_seconds }));
    return takes.map((one) => one.file);
  };
  made.names = () => (takes.length ? takes.map((one) => one.file.name) : ["one.wav", "two.wav", "three.wav"]);
  made.clear = (files = takes.map((one) => one.file)) => {
    for (const take of takes.filter((one) => files.includes(one.file))) {
      take.clear();
      take.element.remove();
    }
    takes = takes.filter((one) => !files.includes(one.file));
    recount();
  };
  // Shows what to read in a language; the name is empty for English.
  made.read = (name = language) => {
    language = name;
    read.textContent = name ? t("own.text.other", { language }) : t(`own.text.${recorded % TEXTS}`);
  };
  made.read();
  on("leave", made.clear);
  return made;
}
