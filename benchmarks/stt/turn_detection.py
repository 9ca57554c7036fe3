"""Ends of turns: how often a pause in a sentence cuts its speaker off, and how long a finished
sentence waits, with `semantic_vad` and with plain silences.

`python -m benchmarks.stt.turn_detection [--keep FOLDER]` speaks `turns.yaml` with this service's
voices, without a pause and with one of 0.3 to 2 s (its length drawn) at a clause border or at an
odd place, over noise at -60 dBFS. The endpointing, turn detector and policy are those of the
service; times are those of the audio, without computation. Voices and sentences of the held-out
half are others than those on which the policy may be tuned. `--keep` stores the speech. After a
cut-off in a natural pause of a sentence the detector's answer is still that to the whole sentence.
"""

import argparse
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import yaml
from pydantic import TypeAdapter

from benchmarks.hardware import hardware
from configs.load import load_yaml
from configs.schema.transcription import EndpointingConfig, ListeningConfig
from configs.settings import weights_dir
from models.audio import Pcm, resample
from models.registry import TTS, TURN_DETECTION, VAD, load, load_model
from models.stt.base import STT_SAMPLE_RATE
from models.tts.base import SynthesisRequest, TTSEngine
from models.weights.store import WeightStore
from pipelines.stt.endpointing import LikelyEnd, UtteranceEnded
from pipelines.stt.turns import SemanticTurns, SilenceTurns, TurnPolicy, end_ms, open_endpointer

SENTENCES = Path(__file__).with_name("turns.yaml")
VOICES = {  # engine and voice
    "tuned": {
        "en": (("kokoro", "af_heart"), ("kokoro", "am_michael"), ("hibari", "heart")),
        "es": (("kokoro", "ef_dora"),),
        "fr": (("kokoro", "ff_siwis"),),
        "de": (("kokoro", "de:ff_siwis"),),
    },
    "held_out": {
        "en": (("kokoro", "bf_emma"), ("kokoro", "am_puck")),
        "es": (("kokoro", "em_alex"),),
        "fr": (("kokoro", "fr:im_nicola"),),
        "de": (("kokoro", "de:im_nicola"),),
    },
}
PAUSES_S = (0.3, 2.0)
TAIL_S = 9.0  # of silence, longer than the longest wait
NOISE = 0.001  # RMS
VOICED = 0.01  # of full scale
EDGE_S = 0.06  # a word begins within this time of its estimate; the cut is at the quietest place
SILENCES_MS = (200, 300, 400, 500, 600, 700, 800, 1000, 1200, 1500, 1800, 2000)
WAITS_S = {"low": 8.0, "medium": 4.0, "high": 2.0}
MEAN_DELAY_MS = 300.0
CUT_OFFS = 0.05


@dataclass(frozen=True, slots=True)
class Clip:
    """A sentence with the answers of the models to it."""

    kind: str  # finished, clause, odd
    language: str
    has_pause: bool  # one that was put in
    speech_end_s: float
    probabilities: list[float]  # of speech, by frame
    levels: list[float]
    complete: dict[int, float]  # of the turn detector, by the sample where it is asked


@dataclass(frozen=True, slots=True)
class Outcome:
    cut_off: bool | None  # None: there is no pause
    delay_ms: float | None  # from the last sound; None: there is a pause


def speech(engine: TTSEngine, voice: str, language: str, marked: str) -> tuple[Pcm, list[int]]:
    """The sentence, float32 [n] at 16 kHz, and the samples of its clause border and odd place."""
    text = re.sub(r" [/~] ", " ", marked)
    request = SynthesisRequest(text=text, voice=voice, language=language, timings=True)
    rate = engine.capabilities.sample_rate
    parts, starts, at = [], dict[int, float](), 0.0
    for chunk in engine.synthesize(request):
        parts.append(resample(chunk.pcm, rate, STT_SAMPLE_RATE))
        starts |= {word.text_start: at + word.start_s for word in chunk.words}
        at += chunk.duration_s
    pcm = np.concatenate(parts)
    places = []
    for mark in "/~":
        before = re.sub(r" [/~] ", " ", marked[: marked.index(f" {mark} ")] + " ")
        start = min(starts, key=lambda offset: abs(offset - len(before)))
        places.append(quietest(pcm, starts[start]))
    return pcm, places


def quietest(pcm: Pcm, at_s: float) -> int:
    """The sample near a time around which 20 ms are the quietest."""
    width = STT_SAMPLE_RATE // 50
    low = max(round((at_s - EDGE_S) * STT_SAMPLE_RATE), width)
    steps = range(low, round((at_s + EDGE_S) * STT_SAMPLE_RATE), width // 4)
    return min(steps, key=lambda at: float(np.abs(pcm[at - width // 2 : at + width // 2]).sum()))


def spoken(half: str, keep: Path) -> Iterator[tuple[str, Pcm, list[int]]]:
    """Language, sound and places of each sentence by each voice of its language."""
    weights, engines = WeightStore(weights_dir()), dict[str, TTSEngine]()
    sentences = load_sentences()[half]
    for language, voices in VOICES[half].items():
        for name, voice in voices:
            for number, marked in enumerate(sentences[language]):
                path = keep / f"{half}-{language}-{name}-{voice.replace(':', '_')}-{number}.npz"
                if not path.exists():
                    if name not in engines:
                        engines[name], _ = load_model(TTS, f"tts/{name}", weights)
                    pcm, places = speech(engines[name], voice, language, marked)
                    np.savez(path, pcm=pcm, places=places)
                with np.load(path) as stored:
                    yield language, stored["pcm"], stored["places"].tolist()


def load_sentences() -> dict[str, dict[str, list[str]]]:
    return TypeAdapter(dict[str, dict[str, list[str]]]).validate_python(
        yaml.safe_load(SENTENCES.read_text(encoding="utf-8"))
    )


def with_pause(pcm: Pcm, at: int, pause_s: float) -> Pcm:
    """Silence at a place, with short fades around it."""
    fade = np.linspace(1, 0, STT_SAMPLE_RATE // 100, dtype=np.float32)
    first, second = pcm[:at].copy(), pcm[at:].copy()
    first[-len(fade) :] *= fade
    second[: len(fade)] *= fade[::-1]
    return np.concatenate([first, np.zeros(round(pause_s * STT_SAMPLE_RATE), np.float32), second])


class Listener:
    """Asks the models about each clip once, so that many policies can be compared."""

    def __init__(self) -> None:
        weights = WeightStore(weights_dir())
        self.config: EndpointingConfig = load_yaml(ListeningConfig, "listening").endpointing
        self._vad = load(VAD, "vad/silero", weights)
        self.frame = self._vad.capabilities.frame_samples
        self._detector = load(TURN_DETECTION, "turn_detection/smart_turn", weights)

    def clip(self, kind: str, language: str, pcm: Pcm, seed: int) -> Clip:
        voiced = np.flatnonzero(np.abs(pcm) > VOICED)
        lead = np.zeros(STT_SAMPLE_RATE // 2, np.float32)
        tail = np.zeros(round(TAIL_S * STT_SAMPLE_RATE), np.float32)
        whole = np.concatenate([lead, pcm, tail])
        whole += np.random.default_rng(seed).normal(0, NOISE, len(whole)).astype(np.float32)
        whole = whole[: len(whole) // self.frame * self.frame]
        probabilities = self._vad.probabilities(whole).tolist()
        levels = np.abs(whole.reshape(-1, self.frame)).mean(axis=1).tolist()
        complete = {}
        endpointer = open_endpointer(self.config, self.frame, SemanticTurns(60_000), 0)
        for probability, level in zip(probabilities, levels, strict=True):
            for event in endpointer.accept_frame(probability, level):
                if isinstance(event, LikelyEnd):
                    heard = whole[event.start : event.end]
                    complete[event.end] = self._detector.completeness(heard)
        return Clip(
            kind,
            language,
            kind != "finished",
            (len(lead) + int(voiced[-1])) / STT_SAMPLE_RATE,
            probabilities,
            levels,
            complete,
        )

    def outcome(self, clip: Clip, turns: TurnPolicy) -> Outcome:
        endpointer = open_endpointer(self.config, self.frame, turns, 0)
        position = 0
        for probability, level in zip(clip.probabilities, clip.levels, strict=True):
            position += self.frame
            now_s = position / STT_SAMPLE_RATE
            for event in endpointer.accept_frame(probability, level):
                match event:
                    case LikelyEnd() if isinstance(turns, SemanticTurns):
                        complete = clip.complete[event.end]
                        endpointer.end_after(end_ms(complete, turns))
                    case UtteranceEnded() if clip.has_pause:
                        return Outcome(now_s <= clip.speech_end_s, None)
                    case UtteranceEnded() if now_s > clip.speech_end_s:
                        return Outcome(None, (now_s - clip.speech_end_s) * 1000)
        raise AssertionError("a turn did not end")


def clips_of(half: str, keep: Path, listener: Listener) -> list[Clip]:
    drawn = random.Random(half)
    clips = []
    for number, (language, pcm, places) in enumerate(spoken(half, keep)):
        clips.append(listener.clip("finished", language, pcm, number))
        for kind, at in zip(("clause", "odd"), places, strict=True):
            pause_s = drawn.uniform(*PAUSES_S)
            clips.append(listener.clip(kind, language, with_pause(pcm, at, pause_s), number))
    return clips


def rates(outcomes: Iterable[Outcome]) -> tuple[float, float]:
    """The share of pauses that cut the speaker off, and the mean delay of sentences
    without one, the same for every policy, so that cut-offs do not take slow ones out."""
    some = list(outcomes)
    pauses = [one.cut_off for one in some if one.cut_off is not None]
    delays = [one.delay_ms for one in some if one.delay_ms is not None]
    return float(np.mean(pauses)), float(np.mean(delays))


def at_delay(curve: Sequence[tuple[float, float]], delay_ms: float) -> float:
    """Cut-offs of plain silence at a mean delay, between the silences that were measured."""
    return float(np.interp(delay_ms, [d for _, d in curve], [c for c, _ in curve]))


def at_cut_offs(curve: Sequence[tuple[float, float]], share: float) -> float:
    """The mean delay with that share of cut-offs; infinite if no silence has so few."""
    if share < min(c for c, _ in curve):
        return float("inf")
    return float(np.interp(-share, [-c for c, _ in curve], [d for _, d in curve]))


def report(half: str, clips: Sequence[Clip], listener: Listener) -> None:
    pauses = sum(bool(clip.has_pause) for clip in clips)
    print(f"\n{half}: {pauses} pauses, {len(clips) - pauses} sentences without one")
    curve = []
    for silence_ms in SILENCES_MS:
        policy = SilenceTurns(silence_ms=silence_ms)
        found = rates(listener.outcome(clip, policy) for clip in clips)
        curve.append(found)
        print(f"silence {silence_ms:5} ms: {found[0]:6.1%} cut off, mean delay {found[1]:5.0f} ms")
    print(f"silence at {MEAN_DELAY_MS:.0f} ms: {at_delay(curve, MEAN_DELAY_MS):.1%} cut off")
    print(f"silence at {CUT_OFFS:.0%} cut-offs: {at_cut_offs(curve, CUT_OFFS):.0f} ms")
    for eagerness, wait_s in WAITS_S.items():
        semantic = SemanticTurns(round(wait_s * 1000))
        outcomes = [listener.outcome(clip, semantic) for clip in clips]
        cut_offs, delay_ms = rates(outcomes)
        delays = [one.delay_ms for one in outcomes if one.delay_ms is not None]
        print(
            f"semantic_vad {eagerness:6}: {cut_offs:6.1%} cut off, mean delay {delay_ms:5.0f} ms,"
            f" p50 {np.percentile(delays, 50):.0f}, p95 {np.percentile(delays, 95):.0f};"
            f" silence with that delay {at_delay(curve, delay_ms):.1%} cut off,"
            f" with those cut-offs {at_cut_offs(curve, cut_offs):.0f} ms"
        )
    for kind in ("finished", "clause", "odd"):
        few = [clip for clip in clips if clip.kind == kind]
        firsts = [next(iter(clip.complete.values())) for clip in few if clip.complete]
        lasts = [list(clip.complete.values())[-1] for clip in few if clip.complete]
        print(
            f"completeness {kind}: first {np.percentile(firsts, [10, 50, 90]).round(3).tolist()},"
            f" last {np.percentile(lasts, [5, 10, 50]).round(3).tolist()}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", type=Path, default=Path("/tmp/turn_detection"))
    options = parser.parse_args()
    options.keep.mkdir(parents=True, exist_ok=True)
    listener = Listener()
    for half in VOICES:
        report(half, clips_of(half, options.keep, listener), listener)
    print(hardware())


if __name__ == "__main__":
    main()
