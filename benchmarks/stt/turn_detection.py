"""Ends of turns: how often a pause in a sentence cuts its speaker off, and how long a finished
sentence waits, with `semantic_vad` and with a plain silence.

`python -m benchmarks.stt.turn_detection [--keep FOLDER]` speaks `turns.yaml` with this service's
voices, without a pause and with one of 0.3 to 2 s (its length drawn) at a mark, over noise at -60
dBFS. The endpointing, turn detector, recogniser and policy are those of the service; times are
those of the audio, and a text is known `TEXT_MS` after the recogniser was asked. Voices and
sentences of the held-out half differ from those on which the policy may be tuned. `--keep`
stores the speech. Two kinds of turns are no false cut-offs, and are counted apart: those that
end in a pause after what may be a whole sentence, and those that end within a sentence without a
pause. After the latter, the models' answers are still those for the whole sentence. The language is
known, as after the first turns of a session.
"""

import math
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import yaml
from pydantic import TypeAdapter

from benchmarks.harness.recognition import bare_engine, voice_activity
from benchmarks.harness.report import begin, parser, percentile
from benchmarks.harness.speech import HALVES, noise, silence, store, voices
from configs.load import load_yaml
from configs.schema.transcription import EndpointingConfig, ListeningConfig
from models.audio import Pcm, resample
from models.registry import TURN_DETECTION, load
from models.stt.base import SPECULATIVE, STT_SAMPLE_RATE, TranscriptionRequest
from models.tts.base import SynthesisRequest
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
from pipelines.stt.turns import UNFINISHED, end_ms, open_endpointer
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
KINDS = {"/": "clause", "|": "whole", "~": "odd", "^": "search"}  # of the pauses, by their marks
RESUMES_S = 0.064
TEXT_MS = 170  # the median of `make bench-stt-socket`, one speaker
MARKS = re.compile(r" [/|~^] ")
POLICIES: dict[str, TurnPolicy] = {
    "silence of 500 ms": SilenceTurns(silence_ms=500),
    "semantic_vad medium": SemanticTurns(4000),
    "semantic_vad low": SemanticTurns(8000),
    "semantic_vad high": SemanticTurns(2000),
}


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


def load_sentences() -> dict[str, dict[str, list[str]]]:
    return TypeAdapter(dict[str, dict[str, list[str]]]).validate_python(
        yaml.safe_load(SENTENCES.read_text(encoding="utf-8"))
    )


def speech(config: str, voice: str, language: str, marked: str) -> tuple[Pcm, dict[str, int]]:
    """The sentence, float32 [n] at 16 kHz, and the sample of each kind of pause."""
    engine, _ = voices(f"tts/{config}")
    request = SynthesisRequest(
        text=MARKS.sub(" ", marked), voice=voice, language=language, timings=True
    )
    pieces = []
    starts: dict[int, float] = {}
    at_s = 0.0
    for chunk in engine.synthesize(request):
        pieces.append(resample(chunk.pcm, engine.capabilities.sample_rate, STT_SAMPLE_RATE))
        starts |= {word.text_start: at_s + word.start_s for word in chunk.words}
        at_s += chunk.duration_s
    pcm = np.concatenate(pieces)
    places = {}
    for mark in MARKS.finditer(marked):
        before = len(MARKS.sub(" ", marked[: mark.start()] + " "))
        start = min(starts, key=lambda offset: abs(offset - before))
        places[KINDS[mark[0].strip()]] = quietest(pcm, starts[start])
    return pcm, places


def quietest(pcm: Pcm, at_s: float) -> int:
    """The sample near a time around which 20 ms are the quietest."""
    width = STT_SAMPLE_RATE // 50
    low = max(round((at_s - EDGE_S) * STT_SAMPLE_RATE), width)
    steps = range(low, round((at_s + EDGE_S) * STT_SAMPLE_RATE), width // 4)
    return min(steps, key=lambda at: float(np.abs(pcm[at - width // 2 : at + width // 2]).sum()))


def spoken(half: str, keep: Path) -> Iterator[tuple[str, Pcm, dict[str, int]]]:
    """Language, sound and places of pauses of each sentence by each voice of its language."""
    sentences = load_sentences()[half]
    for language, pairs in VOICES[half].items():
        for config, voice in pairs:
            for number, marked in enumerate(sentences[language]):
                path = keep / f"{half}-{language}-{config}-{voice.replace(':', '_')}-{number}.npz"
                if not path.exists():
                    pcm, places = speech(config, voice, language, marked)
                    kinds = np.array(list(places), str)
                    np.savez(path, pcm=pcm, kinds=kinds, places=list(places.values()))
                with np.load(path) as stored:
                    kinds = stored["kinds"].tolist()
                    samples = stored["places"].tolist()
                    yield language, stored["pcm"], dict(zip(kinds, samples, strict=True))


def with_pause(pcm: Pcm, at: int, pause_s: float) -> Pcm:
    """Silence at a place, with short fades around it."""
    fade = np.linspace(1, 0, STT_SAMPLE_RATE // 100, dtype=np.float32)
    first = pcm[:at].copy()
    second = pcm[at:].copy()
    first[-len(fade) :] *= fade
    second[: len(fade)] *= fade[::-1]
    return np.concatenate([first, silence(pause_s), second])


class Listener:
    """Asks the models about each clip once, so that policies can be compared."""

    def __init__(self) -> None:
        self.config: EndpointingConfig = load_yaml(ListeningConfig, "listening").endpointing
        self.frame = voice_activity().capabilities.frame_samples
        self._detector = load(TURN_DETECTION, "turn_detection/smart_turn", store())
        self._answers: dict[bytes, tuple[float, str]] = {}

    def clip(
        self, kind: str, language: str, pcm: Pcm, pause: tuple[float, float] | None, seed: int
    ) -> Clip:
        lead = silence(0.5)
        whole = np.concatenate([lead, pcm, silence(TAIL_S)])
        whole += noise(len(whole), seed, NOISE)
        whole = whole[: len(whole) // self.frame * self.frame]
        probabilities = voice_activity().probabilities(whole).tolist()
        levels = np.abs(whole.reshape(-1, self.frame)).mean(axis=1).tolist()
        complete = {}
        paused = whole[:0]
        endpointer = open_endpointer(self.config, self.frame, SemanticTurns(60_000), 0)
        for probability, level in zip(probabilities, levels, strict=True):
            for event in endpointer.accept_frame(probability, level):
                match event:
                    case Paused():
                        paused = whole[event.start : event.end]
                    case LikelyEnd():
                        utterance = whole[event.start : event.end]
                        complete[event.end] = self._ask(paused, utterance, language)
        lead_s = len(lead) / STT_SAMPLE_RATE
        voiced = np.flatnonzero(np.abs(pcm) > VOICED)
        return Clip(
            kind=kind,
            language=language,
            pause=pause and (lead_s + pause[0], lead_s + pause[1]),
            speech_end_s=lead_s + int(voiced[-1]) / STT_SAMPLE_RATE,
            probabilities=probabilities,
            levels=levels,
            complete=complete,
        )

    def _ask(self, paused: Pcm, utterance: Pcm, language: str) -> tuple[float, str]:
        """The turn detector's answer to `paused`, which ends in less silence, and the text of
        `utterance`."""
        key = utterance.tobytes()  # several clips begin in the same way
        if key not in self._answers:
            request = TranscriptionRequest(utterance, language, urgency=SPECULATIVE, is_live=True)
            segments = bare_engine().transcribe([request])[0].segments
            text = " ".join(segment.text for segment in segments)
            self._answers[key] = self._detector.completeness(paused), text
        return self._answers[key]

    def outcome(self, clip: Clip, policy: TurnPolicy) -> Outcome:
        endpointer = open_endpointer(self.config, self.frame, policy, 0)
        position = 0
        cut_off = False
        ended_s = math.nan
        judged: tuple[int, float] | None = None  # sample of the verdict, silence (ms)
        for probability, level in zip(clip.probabilities, clip.levels, strict=True):
            position += self.frame
            if judged is not None and position >= judged[0]:
                endpointer.end_after(judged[1])
            for event in endpointer.accept_frame(probability, level):
                match event:
                    case LikelyEnd() if isinstance(policy, SemanticTurns):
                        complete, text = clip.complete[event.end]
                        if is_unfinished(text, clip.language):
                            complete = min(complete, UNFINISHED)
                        text_at = position + TEXT_MS * STT_SAMPLE_RATE // 1000
                        judged = text_at, end_ms(complete, policy)
                    case Resumed():
                        judged = None
                    case UtteranceEnded():
                        judged = None
                        ended_s = position / STT_SAMPLE_RATE
                    case SpeechStarted() if ended_s < clip.speech_end_s:
                        cut_off |= clip.pause is None or clip.pause[0] < ended_s <= clip.pause[1]
        assert not math.isnan(ended_s), "a turn did not end"
        return Outcome(clip.kind, cut_off, (ended_s - clip.speech_end_s) * 1000)


def clips_of(half: str, keep: Path, listener: Listener) -> list[Clip]:
    draw = random.Random(half)
    clips = []
    for number, (language, pcm, places) in enumerate(spoken(half, keep)):
        clips.append(listener.clip("finished", language, pcm, None, number))
        for kind, at in places.items():
            at_s = at / STT_SAMPLE_RATE
            pause_s = draw.uniform(*PAUSES_S)
            # The first frames of the speech that goes on are not yet known to be speech.
            pause = (at_s, at_s + pause_s + RESUMES_S)
            clips.append(listener.clip(kind, language, with_pause(pcm, at, pause_s), pause, number))
    return clips


def report(half: str, clips: Sequence[Clip], listener: Listener) -> None:
    """Print the shares of turns that are cut off, and the delay after sentences without a pause,
    which shows whether a policy cuts off less only because it waits longer."""
    kinds = [clip.kind for clip in clips]
    whole = kinds.count("whole")
    fluent = kinds.count("finished")
    pauses = len(clips) - whole - fluent
    print(f"\n{half}: {pauses} pauses in sentences, {whole} after whole ones, {fluent} fluent")
    for name, policy in POLICIES.items():
        outcomes = [listener.outcome(clip, policy) for clip in clips]
        delays_ms = [outcome.delay_ms for outcome in outcomes if outcome.kind == "finished"]
        shares = {
            title: float(np.mean([outcome.cut_off for outcome in outcomes if outcome.kind in some]))
            for title, some in (
                ("cut off", ("clause", "odd", "search")),
                ("after whole sentences", ("whole",)),
                ("both", tuple(KINDS.values())),
                ("fluent", ("finished",)),
            )
        }
        parts = ", ".join(f"{title} {share:.1%}" for title, share in shares.items())
        print(
            f"{name}: {parts}; delay {np.mean(delays_ms):.0f} ms, "
            f"p50 {percentile(delays_ms, 50):.0f}, p95 {percentile(delays_ms, 95):.0f}"
        )


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--half", nargs="*", default=HALVES, choices=HALVES)
    options.add_argument("--keep", type=Path, default=Path("/tmp/turn_detection"))
    arguments = begin(options)
    arguments.keep.mkdir(parents=True, exist_ok=True)
    listener = Listener()
    for half in arguments.half:
        report(half, clips_of(half, arguments.keep, listener), listener)


if __name__ == "__main__":
    main()
