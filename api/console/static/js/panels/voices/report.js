// The report of a voice, as charts.
import { ask } from "../../api.js";
import { player } from "../../audio/player.js";
import { fromBase64 } from "../../audio/pcm.js";
import { chartKey, lineChart, rankChart } from "../../charts.js";
import { number, t } from "../../i18n.js";
import { button, dialog, h, table } from "../../ui.js";

const STOCK = 7; // number of the nearest stock voices shown
const NEUTRAL = "of-source";

const figure = (value, text) => value !== null && value !== undefined && h("p.figure", h("strong", value), h("span", text));
const round = (value, digits = 2) => (value === null || value === undefined ? null : number(value, digits));

function comparison(samples) {
  const make = (data, label) => {
    const made = player({ label });
    made.load(new Blob([fromBase64(data)], { type: "audio/ogg" }));
    return made;
  };
  const source = make(samples.source, t("report.source"));
  const clone = make(samples.clone, t("report.clone"));
  const both = button(t("report.play_both"), () => {
    source.seek(0);
    clone.seek(0);
    source.audio.addEventListener("ended", () => clone.play(), { once: true });
    source.play();
  }, { icon: "play", kind: "small" });
  const made = h("section.stack", h("h3", t("report.compare")), h("p.hint", t("report.source")), source, h("p.hint", t("report.clone")), clone, h("p.hint", t("report.sentence", { sentence: samples.sentence })), both);
  made.stop = () => {
    source.clear();
    clone.clear();
  };
  return made;
}

export async function showReport(voice) {
  const report = await ask(`/voices/${voice.id}/report?format=json`);
  const { judged, pitch, spectrum, samples, stock, similarity_curve: curve } = report;
  const address = new URL(report.page_url);
  const key = chartKey([["of-source", t("report.source")], ["of-clone", t("report.clone")]]);
  const compared = samples && comparison(samples);
  const steps = (shares) => shares.map((share, at) => [Math.sqrt(pitch.hz_bins[at] * pitch.hz_bins[at + 1]), share]);
  const audible = spectrum && spectrum.hz.map((hz, at) => [hz, at]).filter(([hz]) => hz > 0);
  const ranked = stock.length > 0 && [
    ...(voice.similarity !== null ? [[voice.name, voice.similarity, "of-clone"]] : []),
    ...stock.slice(0, STOCK).map((one) => [one.name || one.voice, one.similarity, NEUTRAL]),
  ];
  const made = dialog(t("own.report_of", { name: voice.name }), [
    voice.reason && h("p.failed", voice.reason),
    h("div.figures",
      figure(round(judged?.similarity ?? voice.similarity), t("report.likeness")),
      figure(round(judged?.recordings_similarity), t("report.recordings")),
      figure(round(judged?.stock_similarity), t("report.stock")),
      figure(round(judged?.second_similarity), t("report.second")),
      figure(judged?.wer !== null && judged?.wer !== undefined ? `${number(judged.wer * 100, 1)} %` : null, t("report.words")),
      figure(round(judged?.dnsmos, 1), t("report.quality")),
      figure(`${Math.round(report.seconds / 60)} min`, t("report.time")),
      figure(number(report.evaluations), t("report.tried"))),
    compared,
    (pitch || spectrum) && key,
    pitch && lineChart(t("report.pitch"), [["of-source", steps(pitch.source)], ["of-clone", steps(pitch.clone)]], { ticks: [100, 150, 200, 250, 300, 350].map((hz) => [hz, String(hz)]) }),
    audible && lineChart(t("report.spectrum"), [["of-source", audible.map(([hz, at]) => [Math.log10(hz), spectrum.source_db[at]])], ["of-clone", audible.map(([hz, at]) => [Math.log10(hz), spectrum.clone_db[at]])]],
      { ticks: [100, 200, 500, 1000, 2000, 5000, 10000].map((hz) => [Math.log10(hz), String(hz)]) }),
    ranked && rankChart(t("report.among"), ranked, (value) => number(value, 2)),
    curve.length > 1 && lineChart(t("report.curve"), [["of-clone", curve]], { from: Math.min(...curve.map(([, y]) => y)), ticks: [0, 0.5, 1].map((share) => {
      const at = Math.round(curve[0][0] + share * (curve.at(-1)[0] - curve[0][0]));
      return [at, String(at)];
    }) }),
    report.recordings.length > 0 && h("h3", t("own.recordings")),
    report.recordings.length > 0 && table(t("own.recordings"), ["#", t("report.seconds"), t("report.speech"), t("report.snr"), t("report.level")],
      report.recordings.map((one, at) => [String(at + 1), t("unit.seconds", { n: number(one.seconds, 1) }), `${Math.round(one.speech_share * 100)} %`, `${number(one.snr_db, 0)} dB`, `${number(one.level_dbfs, 0)} dBFS`])),
    h("p", h("a", { href: address.pathname + address.search, target: "_blank", rel: "noopener" }, t("report.page"))),
  ]);
  made.addEventListener("close", () => compared?.stop());
}
