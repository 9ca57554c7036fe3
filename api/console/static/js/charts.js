// Charts as SVG, each with its numbers as text for users who cannot see it.
import { h } from "./ui.js";
import { svg } from "./icons.js";

const narrow = matchMedia("(max-width: 639px)");
const width = () => (narrow.matches ? 340 : 640); // units; text keeps its size on phones
narrow.addEventListener("change", () => document.querySelectorAll(".chart").forEach((one) => one.replaceWith(one.draw())));

// A chart that `content` draws for a width; `draw` draws it again.
function chart(title, height, content) {
  const picture = svg("svg", { viewBox: `0 0 ${width()} ${height}`, role: "img", "aria-label": title }, ...content(width()));
  return Object.assign(h("figure.chart", h("figcaption.hint", title), picture), { draw: () => chart(title, height, content) });
}

const label = (x, y, text, anchor = "start") => {
  const made = svg("text", { x, y, "text-anchor": anchor });
  made.textContent = text;
  return made;
};

// Bars by day; each day is {label, parts: [[class, value]]}.
export const barChart = (name, days, show) => chart(name, 200, (WIDTH) => {
  const [height, left, bottom, top] = [200, 62, 24, 12];
  const sums = days.map((one) => one.parts.reduce((sum, [, value]) => sum + value, 0));
  const most = Math.max(...sums, 1e-9);
  const step = (WIDTH - left) / days.length;
  const scale = (height - bottom - top) / most;
  const drawn = [];
  for (const share of [0, 0.5, 1]) {
    const y = height - bottom - share * most * scale;
    drawn.push(svg("line", { x1: left, x2: WIDTH, y1: y, y2: y, class: "axis" }), label(left - 8, y + 4, show(share * most), "end"));
  }
  days.forEach((one, at) => {
    let y = height - bottom;
    const group = svg("g");
    const title = svg("title");
    title.textContent = `${one.label}: ${show(sums[at])}`;
    group.append(title);
    for (const [kind, value] of one.parts) {
      const size = value * scale;
      y -= size;
      group.append(svg("rect", { x: left + at * step + step * 0.15, y, width: step * 0.7, height: Math.max(size, value ? 1 : 0), rx: Math.min(2, step * 0.1), class: `bar-part ${kind}` }));
    }
    drawn.push(group);
    const every = Math.ceil(days.length / (WIDTH / 90));
    if (at % every === 0) drawn.push(label(left + (at + 0.5) * step, height - 6, one.label, "middle"));
  });
  return drawn;
});

// Lines over one axis. `lines` are [class, [[x, y], …]], `ticks` [[x, text], …].
export const lineChart = (title, lines, { ticks = [], from = 0 } = {}) => chart(title, 180, (WIDTH) => {
  const [height, left, bottom, top] = [180, 8, 24, 8];
  const points = lines.flatMap(([, all]) => all);
  const xs = points.map(([x]) => x);
  const ys = points.map(([, y]) => y);
  const [least, most] = [Math.min(...xs), Math.max(...xs)];
  const [low, high] = [Math.min(from, ...ys), Math.max(...ys)];
  const atX = (x) => left + ((x - least) / (most - least || 1)) * (WIDTH - 2 * left);
  const atY = (y) => height - bottom - ((y - low) / (high - low || 1)) * (height - bottom - top);
  const drawn = [svg("line", { x1: left, x2: WIDTH - left, y1: height - bottom, y2: height - bottom, class: "axis" })];
  for (const [x, text] of ticks) {
    if (x < least || x > most) continue;
    drawn.push(svg("line", { x1: atX(x), x2: atX(x), y1: top, y2: height - bottom, class: "axis" }), label(atX(x), height - 6, text, x === least ? "start" : x === most ? "end" : "middle"));
  }
  for (const [kind, all] of lines) {
    drawn.push(svg("path", { class: `line ${kind}`, d: all.map(([x, y], at) => `${at ? "L" : "M"}${atX(x).toFixed(1)} ${atY(y).toFixed(1)}`).join("") }));
  }
  return drawn;
});

// Similarities as bars from 0 to 1: [name, value, class].
const RANK = 24; // units of height

export const rankChart = (title, rows, show) => chart(title, rows.length * RANK, (WIDTH) => {
  const left = WIDTH / 4;
  return rows.flatMap(([name, value, kind], at) => {
    const y = at * RANK;
    const width = Math.max(0, value) * (WIDTH - left - 60);
    return [label(left - 8, y + 15, name.length > left / 7 ? `${name.slice(0, left / 7 - 1)}…` : name, "end"), svg("rect", { x: left, y: y + 4, width, height: 15, rx: 3, class: `bar-part ${kind}` }), label(left + width + 6, y + 15, show(value))];
  });
});

export const chartKey = (items) => h("p.chart-key", items.map(([kind, text]) => h("span.key-item", { class: kind }, text)));
