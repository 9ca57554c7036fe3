// Drawings of audio: the waveform of a file, and the level of the current sound.
import { h } from "../ui.js";

const BAR = 3; // pixels, with a gap of 2
const STEP = 5;

const color = (element, name) => getComputedStyle(element).getPropertyValue(name).trim();
const calm = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

function prepared(canvas) {
  const ratio = devicePixelRatio || 1;
  const { clientWidth: width, clientHeight: height } = canvas;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  return { pen, width, height };
}

function bar(pen, x, size, height) {
  pen.beginPath();
  pen.roundRect(x, (height - size) / 2, BAR, size, BAR / 2);
  pen.fill();
}

// `peaks` are any number of values from 0 to 1; `share` of the file has been played.
export function drawWave(canvas, peaks, share) {
  const { pen, width, height } = prepared(canvas);
  const count = Math.floor(width / STEP);
  const [played, left] = [color(canvas, "--accent"), color(canvas, "--wave")];
  const most = Math.max(0.05, ...peaks);
  for (let i = 0; i < count; i += 1) {
    const from = Math.floor((i / count) * peaks.length);
    const part = peaks.slice(from, Math.max(from + 1, Math.floor(((i + 1) / count) * peaks.length)));
    pen.fillStyle = (i + 0.5) / count <= share ? played : left;
    bar(pen, i * STEP, Math.max(3, (Math.max(0, ...part) / most) * (height - 4)), height);
  }
}

// A meter that shows the last seconds of an AnalyserNode: `attach(node)`, `detach()`.
export function liveMeter(label) {
  const canvas = h("canvas.meter", { role: "img", "aria-label": label });
  let levels = [];
  let stopped = true;
  let last = 0;
  const draw = () => {
    const { pen, width, height } = prepared(canvas);
    const count = Math.floor(width / STEP);
    levels = levels.slice(-count);
    const [loud, silent] = [color(canvas, "--accent"), color(canvas, "--wave")];
    for (let i = 0; i < count; i += 1) {
      const level = levels[levels.length - count + i] ?? 0;
      pen.fillStyle = level > 0.01 ? loud : silent;
      bar(pen, i * STEP, Math.max(3, Math.min(1, level * 2.2) * (height - 4)), height);
    }
  };
  canvas.attach = (node) => {
    const samples = new Float32Array(node.fftSize);
    stopped = false;
    levels = [];
    const step = (now) => {
      if (stopped) return;
      if (now - last > (calm() ? 400 : 50)) {
        last = now;
        node.getFloatTimeDomainData(samples);
        levels.push(samples.reduce((most, one) => Math.max(most, Math.abs(one)), 0));
        draw();
      }
      requestAnimationFrame(step);
    };
    requestAnimationFrame(step);
  };
  canvas.detach = () => {
    stopped = true;
    levels = [];
    if (canvas.isConnected) draw();
  };
  new ResizeObserver(draw).observe(canvas);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  return canvas;
}
