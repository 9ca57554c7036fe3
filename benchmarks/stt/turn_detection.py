"""Ends of turns: how often a pause in a sentence cuts its speaker off, and how long a finished
sentence waits, with `semantic_vad` and with plain silences.

`python -m benchmarks.stt.turn_detection [--keep FOLDER]` speaks `turns.yaml` with this service's
voices, without a pause and with one of 0.3 to 2 s (its length drawn) at a mark, over noise at
-60 dBFS. The endpointing, turn detector, recogniser and policy are those of the service; times are
those of the audio, and a text is known `TEXT_MS` after the recogniser was asked. Voices and
sentences of the held-out half are others than those on which the policy may be tuned. `--keep`
stores the speech. A turn that ends where what was said may be a whole sentence is no false cut-off,
but counted apart; so is one in a fluent sentence. After such a one the answers of the models are
still those to the whole sentence. The language is known, as after the first turns of a session.
"""

import argparse
import math
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
from models.registry import STT, TTS, TURN_DETECTION, VAD, load, load_model
from models.stt.base import SPECULATIVE, STT_SAMPLE_RATE, TranscriptionRequest
from models.tts.base import SynthesisRequest, TTSEngine
from models.weights.store import WeightStore
from pipelines.stt.endpointing import (
    LikelyEnd,
    Paused,
    Resumed,
    SemanticTurns,
    SilenceTurns,
    SpeechStarted,
    TurnPolicy,
    UtteranceEnded,
)
from pipelines.stt.turns import end_ms, open_endpointer
from pipelines.text.unfinished import is_unfinished

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
LONGEST_WAITS_MS = (200, 300, 500, 800, 1000, 1500, 2000, 2500, 3000, 4000, 6000, 8000, 12000)
KINDS = {"/": "clause", "|": "whole", "~": "odd", "^": "search"}  # of the pauses, by their marks
RESUMES_S = 0.064
TEXT_MS = 170  # the median of `make bench-stt-socket`, one speaker
MEAN_DELAY_MS = 300.0
CUT_OFFS = 0.05
MARKS = re.compile(r" [/|~^] ")


@dataclass(frozen=True, slots=True)
class Clip:
    """A sentence with the answers of the models to it."""

    kind: str  # finished, or that of the pause that was put in
    language: str
    pause: tuple[float, float] | None  # seconds
    speech_end_s: float
    probabilities: list[float]  # of speech, by frame
    levels: list[float]
    # By the sample where they are asked: the turn detector's answer, the recogniser's text.
    complete: dict[int, tuple[float, str]]


@dataclass(frozen=True, slots=True)
class Outcome:
    kind: str
    cut_off: bool  # in the pause that was put in; of a fluent sentence: anywhere
    delay_ms: float  # from the last sound


@dataclass(frozen=True, slots=True)
class VoiceAlone:
    """Semantic turns without the text: the turn detector alone decides."""

    turns: SemanticTurns


def speech(
    engine: TTSEngine, voice: str, language: str, marked: str
) -> tuple[Pcm, list[str], list[int]]:
    """The sentence, float32 [n] at 16 kHz, and the kinds and samples of its places of pauses."""
    request = SynthesisRequest(
        text=MARKS.sub(" ", marked), voice=voice, language=language, timings=True
    )
    rate = engine.capabilities.sample_rate
    parts, starts, at = [], dict[int, float](), 0.0
    for chunk in engine.synthesize(request):
        parts.append(resample(chunk.pcm, rate, STT_SAMPLE_RATE))
        starts |= {word.text_start: at + word.start_s for word in chunk.words}
        at += chunk.duration_s
    pcm = np.concatenate(parts)
    kinds, places = [], []
    for mark in MARKS.finditer(marked):
        before = MARKS.sub(" ", marked[: mark.start()] + " ")
        start = min(starts, key=lambda offset: abs(offset - len(before)))
        kinds.append(KINDS[mark[0].strip()])
        places.append(quietest(pcm, starts[start]))
    return pcm, kinds, places


def quietest(pcm: Pcm, at_s: float) -> int:
    """The sample near a time around which 20 ms are the quietest."""
    width = STT_SAMPLE_RATE // 50
    low = max(round((at_s - EDGE_S) * STT_SAMPLE_RATE), width)
    steps = range(low, round((at_s + EDGE_S) * STT_SAMPLE_RATE), width // 4)
    return min(steps, key=lambda at: float(np.abs(pcm[at - width // 2 : at + width // 2]).sum()))


def spoken(half: str, keep: Path) -> Iterator[tuple[str, Pcm, dict[str, int]]]:
    """Language, sound and places of pauses of each sentence by each voice of its language."""
    weights, engines = WeightStore(weights_dir()), dict[str, TTSEngine]()
    sentences = load_sentences()[half]
    for language, voices in VOICES[half].items():
        for name, voice in voices:
            for number, marked in enumerate(sentences[language]):
                path = keep / f"{half}-{language}-{name}-{voice.replace(':', '_')}-{number}.npz"
                if not path.exists():
                    if name not in engines:
                        engines[name], _ = load_model(TTS, f"tts/{name}", weights)
                    pcm, kinds, places = speech(engines[name], voice, language, marked)
                    np.savez(path, pcm=pcm, kinds=np.array(kinds, str), places=places)
                with np.load(path) as stored:
                    kinds, places = stored["kinds"].tolist(), stored["places"].tolist()
                    yield language, stored["pcm"], dict(zip(kinds, places, strict=True))


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
        self._recogniser, _ = load_model(STT, "stt/whisper_base", weights)
        self._known = dict[bytes, tuple[float, str]]()

    def clip(
        self, kind: str, language: str, pcm: Pcm, pause: tuple[float, float] | None, seed: int
    ) -> Clip:
        voiced = np.flatnonzero(np.abs(pcm) > VOICED)
        lead = np.zeros(STT_SAMPLE_RATE // 2, np.float32)
        tail = np.zeros(round(TAIL_S * STT_SAMPLE_RATE), np.float32)
        whole = np.concatenate([lead, pcm, tail])
        whole += np.random.default_rng(seed).normal(0, NOISE, len(whole)).astype(np.float32)
        whole = whole[: len(whole) // self.frame * self.frame]
        probabilities = self._vad.probabilities(whole).tolist()
        levels = np.abs(whole.reshape(-1, self.frame)).mean(axis=1).tolist()
        complete, paused = {}, whole[:0]
        endpointer = open_endpointer(self.config, self.frame, SemanticTurns(60_000), 0)
        for probability, level in zip(probabilities, levels, strict=True):
            for event in endpointer.accept_frame(probability, level):
                match event:
                    case Paused():
                        paused = whole[event.start : event.end]
                    case LikelyEnd():
                        said = whole[event.start : event.end]
                        complete[event.end] = self._ask(paused, said, language)
        lead_s = len(lead) / STT_SAMPLE_RATE
        return Clip(
            kind,
            language,
            pause and (lead_s + pause[0], lead_s + pause[1]),
            lead_s + int(voiced[-1]) / STT_SAMPLE_RATE,
            probabilities,
            levels,
            complete,
        )

    def _ask(self, paused: Pcm, said: Pcm, language: str) -> tuple[float, str]:
        """The turn detector hears the shorter silence."""
        key = said.tobytes()  # several clips begin in the same way
        if key not in self._known:
            request = TranscriptionRequest(said, language, urgency=SPECULATIVE, is_live=True)
            segments = self._recogniser.transcribe([request])[0].segments
            text = " ".join(segment.text for segment in segments)
            self._known[key] = self._detector.completeness(paused), text
        return self._known[key]

    def outcome(self, clip: Clip, turns: TurnPolicy | VoiceAlone) -> Outcome:
        text_ms = 0 if isinstance(turns, VoiceAlone) else TEXT_MS
        policy = turns.turns if isinstance(turns, VoiceAlone) else turns
        endpointer = open_endpointer(self.config, self.frame, policy, 0)
        position, cut_off = 0, False
        ended_s = math.nan
        judged: tuple[int, float] | None = None  # from when, and the silence that ends the turn
        for probability, level in zip(clip.probabilities, clip.levels, strict=True):
            position += self.frame
            if judged is not None and position >= judged[0]:
                endpointer.end_after(judged[1])
            for event in endpointer.accept_frame(probability, level):
                match event:
                    case LikelyEnd() if isinstance(policy, SemanticTurns):
                        complete, text = clip.complete[event.end]
                        unfinished = text_ms > 0 and is_unfinished(text, clip.language)
                        known_at = position + text_ms * STT_SAMPLE_RATE // 1000
                        judged = known_at, end_ms(complete, policy, unfinished=unfinished)
                    case Resumed():
                        judged = None
                    case UtteranceEnded():
                        judged, ended_s = None, position / STT_SAMPLE_RATE
                    case SpeechStarted() if ended_s < clip.speech_end_s:
                        cut_off |= clip.pause is None or clip.pause[0] < ended_s <= clip.pause[1]
        assert not math.isnan(ended_s), "a turn did not end"
        return Outcome(clip.kind, cut_off, (ended_s - clip.speech_end_s) * 1000)


def clips_of(half: str, keep: Path, listener: Listener) -> list[Clip]:
    drawn = random.Random(half)
    clips = []
    for number, (language, pcm, places) in enumerate(spoken(half, keep)):
        clips.append(listener.clip("finished", language, pcm, None, number))
        for kind, at in places.items():
            at_s, pause_s = at / STT_SAMPLE_RATE, drawn.uniform(*PAUSES_S)
            # The first frames of the speech that goes on are not yet known to be speech.
            pause = (at_s, at_s + pause_s + RESUMES_S)
            clips.append(listener.clip(kind, language, with_pause(pcm, at, pause_s), pause, number))
    return clips


@dataclass(frozen=True, slots=True)
class Rates:
    """Shares of turns that are cut off, and the mean delay of sentences without a pause: the same
    for every policy, so that cut-offs do not take slow ones out."""

    unfinished: float  # in a pause after which the sentence must go on
    whole: float  # in one after what may be a whole sentence
    fluent: float  # without a pause of ours
    delays_ms: list[float]

    @property
    def delay_ms(self) -> float:
        return float(np.mean(self.delays_ms))

    def __str__(self) -> str:
        p50, p95 = np.percentile(self.delays_ms, [50, 95])
        return (
            f"cut off {self.unfinished:6.1%}, after whole sentences {self.whole:6.1%}, fluent"
            f" {self.fluent:5.1%}; delay {self.delay_ms:5.0f} ms, p50 {p50:.0f}, p95 {p95:.0f}"
        )


def rates(outcomes: Iterable[Outcome]) -> Rates:
    some = list(outcomes)

    def cut_off(*kinds: str) -> float:
        return float(np.mean([one.cut_off for one in some if one.kind in kinds]))

    return Rates(
        cut_off("clause", "odd", "search"),
        cut_off("whole"),
        cut_off("finished"),
        [one.delay_ms for one in some if one.kind == "finished"],
    )


def at_delay(curve: Sequence[Rates], delay_ms: float) -> float:
    """Cut-offs at a mean delay, between the policies that were measured; NaN before the first."""
    delays = [one.delay_ms for one in curve]
    return float(np.interp(delay_ms, delays, [one.unfinished for one in curve], left=np.nan))


def at_cut_offs(curve: Sequence[Rates], share: float) -> float:
    """The mean delay with that share of cut-offs; infinite if no policy has so few."""
    cut_offs = [-one.unfinished for one in curve]
    if share < -cut_offs[-1]:
        return float("inf")
    return float(np.interp(-share, cut_offs, [one.delay_ms for one in curve]))


def report(half: str, clips: Sequence[Clip], listener: Listener) -> None:
    pauses = sum(clip.kind not in ("finished", "whole") for clip in clips)
    finished = sum(clip.kind == "finished" for clip in clips)
    whole = len(clips) - pauses - finished
    print(f"\n{half}: {pauses} pauses in sentences, {whole} after whole ones, {finished} fluent")

    def found(turns: TurnPolicy | VoiceAlone) -> Rates:
        return rates(listener.outcome(clip, turns) for clip in clips)

    curves = {
        "silence": [found(SilenceTurns(silence_ms=ms)) for ms in SILENCES_MS],
        "voice alone": [found(VoiceAlone(SemanticTurns(ms))) for ms in LONGEST_WAITS_MS],
        "voice and text": [found(SemanticTurns(ms)) for ms in LONGEST_WAITS_MS],
    }
    for name, curve in curves.items():
        for ms, one in zip(
            SILENCES_MS if name == "silence" else LONGEST_WAITS_MS, curve, strict=True
        ):
            print(f"{name:14} {ms:5} ms: {one}")
        print(
            f"{name}: {at_delay(curve, MEAN_DELAY_MS):.1%} cut off at {MEAN_DELAY_MS:.0f} ms,"
            f" {at_cut_offs(curve, CUT_OFFS):.0f} ms at {CUT_OFFS:.0%} cut-offs"
        )
    plain = curves["silence"][SILENCES_MS.index(500)]
    print(f"silence of 500 ms: {plain}")
    for name in ("voice alone", "voice and text"):
        print(f"{name} at that delay: {at_delay(curves[name], plain.delay_ms):.1%} cut off")
    for eagerness, wait_s in WAITS_S.items():
        one = found(SemanticTurns(round(wait_s * 1000)))
        silent = at_delay(curves["silence"], one.delay_ms)
        print(f"semantic_vad {eagerness:6}: {one}; silence with that delay {silent:.1%}")
    for kind in ("finished", *KINDS.values()):
        few = [clip for clip in clips if clip.kind == kind]
        lasts = [list(clip.complete.values())[-1][0] for clip in few if clip.complete]
        print(f"completeness at the end, {kind}: {np.percentile(lasts, [5, 10, 50]).round(3)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--half", nargs="*", default=list(VOICES), choices=list(VOICES))
    parser.add_argument("--keep", type=Path, default=Path("/tmp/turn_detection"))
    options = parser.parse_args()
    options.keep.mkdir(parents=True, exist_ok=True)
    listener = Listener()
    for half in options.half:
        report(half, clips_of(half, options.keep, listener), listener)
    print(hardware())


if __name__ == "__main__":
    main()
