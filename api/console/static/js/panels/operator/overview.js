// The running service: deployments, gateways, rates, and problems.
import { askAsOperator, callAsOperator } from "../../api.js";
import { lineChart } from "../../charts.js";
import { number, t } from "../../i18n.js";
import { aside, card, h, status, statusBadge, table } from "../../ui.js";
import { watch } from "../../work.js";

const POLL_MS = 5000; // as often as processes report
const KEPT = 60;
const READ = /^antiphon_(report_age_seconds|replica_load|engine_requests_live|http_requests_live|http_requests_total|sockets_live|overload_refusals_total|attempts_refused_total|limit_decisions_total)\{(.*)\} (\S+)/;

// The samples of `GET /metrics` that are shown, as {name, value, …labels}.
function samplesOf(page) {
  return page.split("\n").map((line) => READ.exec(line)).filter(Boolean).map(([, name, labels, value]) => ({
    ...Object.fromEntries([...labels.matchAll(/(\w+)="([^"]*)"/g)].map(([, key, text]) => [key, text])), name, value: Number(value),
  }));
}

const total = (samples) => samples.reduce((sum, one) => sum + one.value, 0);
const isRefusal = (one) => ["overload_refusals_total", "attempts_refused_total"].includes(one.name) || one.decision === "refused";

// Sums by one label, such as "tts 3, stt 1".
function byLabel(samples, label) {
  const sums = new Map();
  for (const one of samples) sums.set(label(one), (sums.get(label(one)) || 0) + one.value);
  return [...sums].filter(([, sum]) => sum).map(([key, sum]) => `${key} ${number(sum)}`).join(", ") || t("operator.none");
}

// The id of a model, and the canary that gets a share of its requests.
const modelText = (model) => [model?.id || "", model?.canary && h("p.hint", t("operator.canary", { id: model.canary.id, percent: number(100 * model.canary.share, 1) }))];

export function overview() {
  const place = status();
  const wrong = h("div.stack");
  const deployments = h("div");
  const gateways = h("div");
  const rates = h("div.charts");
  const links = h("p.row.start");
  const history = [];

  // A row with the focus is not redrawn while the user works with it.
  const draw = (into, ...content) => into.contains(document.activeElement) || into.replaceChildren(...content);

  const read = () => Promise.all([askAsOperator("overview"), callAsOperator("/metrics").then((answer) => answer.text())]);
  const show = ([about, page]) => {
    const samples = samplesOf(page);
    const of = (name, more = () => true) => samples.filter((one) => one.name === name && more(one));
    const names = new Set([...Object.keys(about.models), ...of("report_age_seconds").map((one) => one.deployment).sort()]);
    draw(deployments, table(t("operator.deployments"), ["operator.deployment", "word.model", "word.status", "operator.replicas", "operator.load", "operator.live"].map((key) => t(key)), [...names].map((name) => {
      const isIts = (one) => one.deployment === name;
      const replicas = of("report_age_seconds", isIts).length;
      const model = about.models[name];
      const state = model === null ? "unavailable" : model?.status;
      return [name, modelText(model), state ? statusBadge(state) : "", number(replicas),
        replicas ? number(total(of("replica_load", isIts)) / replicas, 2) : "", number(total(of("engine_requests_live", isIts)) + total(of("http_requests_live", isIts)))];
    })));
    const counted = new Set(of("http_requests_total").map((one) => one.replica));
    draw(gateways, table(t("operator.gateways"), ["gateway", "sessions", "refusals"].map((one) => t(`operator.${one}`)), [...counted].map((replica) => [
      replica,
      byLabel(of("sockets_live", (one) => one.replica === replica), (one) => one.protocol),
      byLabel(samples.filter((one) => one.replica === replica && isRefusal(one)), (one) => one.kind || "rate"),
    ])));
    const delayed = Object.fromEntries(Object.entries(about.models).map(([name, model]) => [name, model?.coming?.problem]).filter(([, problem]) => problem));
    const notes = { failure: about.failures, delayed, problem: about.problems, differs: about.differences };
    wrong.replaceChildren(...Object.entries(notes).flatMap(([kind, reasons]) =>
      Object.entries(reasons).map(([name, reason]) => h("p.note", t(`operator.${kind}`, { name, reason })))));
    links.replaceChildren(...Object.entries(about.links).map(([name, url]) => h("a", { href: url, target: "_blank", rel: "noopener" }, t(`operator.link.${name}`))));
    elsewhere.hidden = !links.childElementCount;
    history.push({
      at: performance.now() / 1000,
      requests: total(of("http_requests_total")),
      failures: total(of("http_requests_total", (one) => one.status >= "500")),
      refusals: total(samples.filter(isRefusal)),
    });
    history.splice(0, history.length - KEPT);
    rates.replaceChildren(...(history.length < 3 ? [h("p.hint", t("operator.waiting"))] : [
      rate("requests", 1, "kind-tts"), rate("failures", 60, "kind-voice"), rate("refusals", 60, "kind-chat"),
    ]));
    return made.checkVisibility() ? POLL_MS : 0;
  };

  // The change of a counter between two polls; a decrease, after a process has ended, counts as 0.
  const rate = (name, seconds, kind) => {
    const points = history.slice(1).map((one, at) => [one.at, (Math.max(0, one[name] - history[at][name]) / (one.at - history[at].at)) * seconds]);
    return lineChart(t(`operator.${name}_rate`, { n: number(points.at(-1)[1], 1) }), [[kind, points]]);
  };

  const elsewhere = aside(t("operator.links"), links);
  const made = h("div.stack", place, wrong,
    card(t("operator.deployments"), deployments, h("p.hint", t("operator.load_about"))),
    aside(t("operator.gateways"), rates, gateways), elsewhere);
  made.show = watch("operator", place, read, show).show;
  return made;
}
