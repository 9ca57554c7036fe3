// A player of one file at a time, with its waveform; `ontime(seconds)` is called during playback.
import { clock, t } from "../i18n.js";
import { announce, h, iconButton, setButton } from "../ui.js";
import { decode, peaks as peaksOf } from "./pcm.js";
import { drawWave } from "./waveform.js";

const players = new Set();

// Silences every player but `except`, so that one is heard at a time.
export function hush(except) {
  for (const one of players) if (one !== except) one.pause();
}

export function player({ ontime = () => {}, small = false, label = t("player.seek") } = {}) {
  const audio = h("audio", { preload: "auto" });
  const canvas = h("canvas.wave");
  const seek = h("input.seek", { type: "range", min: 0, max: 1000, value: 0, step: 1, "aria-label": label });
  const time = h("span.time", "0:00");
  const toggle = iconButton("play", t("player.play"), () => (audio.paused ? start() : audio.pause()), { kind: "round main" });
  const made = h("div.player", { class: small ? "small" : "", hidden: true }, toggle, h("div.track", canvas, seek), time, audio);
  let peaks = [];
  let frame = 0;

  const length = () => (Number.isFinite(audio.duration) ? audio.duration : 0);
  const show = () => {
    const share = length() ? audio.currentTime / length() : 0;
    if (document.activeElement !== seek || !audio.paused) seek.value = share * 1000;
    seek.setAttribute("aria-valuetext", `${clock(audio.currentTime)} / ${clock(length())}`);
    time.textContent = audio.error ? t("error.play") : `${clock(audio.currentTime)} / ${clock(length())}`;
    if (canvas.clientWidth) drawWave(canvas, peaks, share);
    ontime(audio.currentTime, !audio.paused);
  };
  const follow = () => {
    show();
    if (!audio.paused) frame = requestAnimationFrame(follow);
  };
  const start = () => {
    hush(made);
    return audio.play().catch((error) => {
      if (error.name === "NotSupportedError") announce(t("error.play"));
    });
  };
  audio.addEventListener("play", () => {
    setButton(toggle, "pause", "", t("player.pause"));
    cancelAnimationFrame(frame);
    follow();
  });
  audio.addEventListener("pause", () => { // also at the end
    setButton(toggle, "play", "", t("player.play"));
    show();
  });
  for (const event of ["loadedmetadata", "seeked", "error"]) audio.addEventListener(event, show);
  seek.addEventListener("input", () => {
    if (length()) audio.currentTime = (seek.value / 1000) * length();
    show();
  });
  seek.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -2, ArrowDown: -2, ArrowRight: 2, ArrowUp: 2 }[event.key];
    if (!step) return;
    event.preventDefault();
    made.seek(audio.currentTime + step);
  });
  new ResizeObserver(() => !made.hidden && show()).observe(canvas);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => !made.hidden && show());

  made.audio = audio;
  made.play = start;
  made.pause = () => audio.pause();
  made.seek = (seconds) => {
    audio.currentTime = Math.max(0, Math.min(seconds, length() || seconds));
    show();
  };
  // Plays from an address without loading all of it, and without a waveform.
  made.open = (path) => {
    made.clear();
    audio.src = path;
    made.hidden = false;
  };
  made.load = async (blob) => {
    made.open(URL.createObjectURL(blob));
    const mine = audio.src;
    const decoded = await decode(blob);
    if (decoded && mine === audio.src) {
      peaks = peaksOf(decoded.getChannelData(0), 400);
      show();
    }
  };
  made.clear = () => {
    audio.pause();
    URL.revokeObjectURL(audio.src); // an address on the service stays
    audio.removeAttribute("src");
    peaks = [];
    made.hidden = true;
  };
  players.add(made);
  return made;
}

// A short sound without a player of its own, such as the preview of a voice. Resolves at its end.
const voice = new Audio();
let ended = null;
players.add({ pause: () => stopShort() });

export function playShort(blob, onend) {
  stopShort();
  hush();
  const address = URL.createObjectURL(blob);
  voice.src = address;
  ended = () => {
    ended = null;
    voice.pause();
    URL.revokeObjectURL(address);
    onend();
  };
  voice.onended = voice.onerror = () => ended?.();
  return voice.play().catch(() => ended?.());
}

export const stopShort = () => ended?.();
