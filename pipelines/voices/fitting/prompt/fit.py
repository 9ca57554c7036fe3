"""Makes a voice for an engine that continues in the voice of a recording: selects the recording.

It is driven as `pipelines.voices.fitting.fit.Fit` is: one round of trials, one for each segment of
the samples that may serve. The selected one and its transcript are the voice pack
(`models.tts.csm.voice_prompt`).
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from configs.schema.custom_voices import PromptConfig
from models.audio import Pcm, float_to_pcm16, pcm16_to_float, resample
from models.speaker.base import SPEAKER_SAMPLE_RATE, Embedding, SpeakerEncoder
from models.speaker.windows import mean_embedding
from models.stt.base import DecodingOptions, TranscriptionRequest
from models.tts.base import PackRef, SynthesisRequest, TTSEngine
from models.tts.csm.voice_prompt import (
    MAX_TRANSCRIPT,
    PROMPT_SAMPLE_RATE,
    VoicePrompt,
    write_prompt,
)
from models.tts.voice_pack import pack_digest
from models.vad.base import VADEngine
from pipelines.errors import InvalidAudio
from pipelines.voices.fitting.features import at_level
from pipelines.voices.fitting.fit import TOO_UNLIKE, FailedFit, FittedVoice
from pipelines.voices.fitting.metrics import SpeechRaters
from pipelines.voices.fitting.prompt.segments import PromptSegment, best_prompt_segment
from pipelines.voices.fitting.recordings import SHOWN_S, decode_all
from pipelines.voices.fitting.report import best_so_far, samples_of
from pipelines.voices.fitting.sentences import sentences_of
from pipelines.voices.report import Judged, VoiceReport

PEAK = 0.9  # of a prompt
UNCLEAR = "invalid_audio"
CLARITY = 0.2  # weight of being understood, next to similarity
READING = DecodingOptions(beam_size=5)  # a wrong word in the prompt spoils every sentence


@dataclass(frozen=True, slots=True)
class PromptTarget:
    """Common to all trials."""

    language: str  # ISO 639-1 code of the recordings
    texts: tuple[str, ...]  # that rate the finished voice


@dataclass(frozen=True, slots=True)
class PromptTrial:
    """One segment of the samples. Crosses processes."""

    number: int
    recording: NDArray[np.int16]  # at PROMPT_SAMPLE_RATE
    held_out: Embedding  # of the speaker's other recordings


@dataclass(frozen=True, slots=True)
class PromptOutcome:
    """The result of the trial of the same number."""

    number: int
    transcript: str  # of the recording; empty when no words are heard
    confidence: float  # 0 to 1, of the recogniser
    similarity: float  # of what the engine says with it, or else of the recording itself
    took_s: float
    error_rate: float | None = None  # of words, in what the engine says
    quality: float | None = None  # DNSMOS of that
    sound: NDArray[np.int16] | None = None  # the first sentence, at SPEAKER_SAMPLE_RATE

    @property
    def score(self) -> float:
        """Similarity, and a bonus for being understood."""
        return self.similarity + CLARITY * (self.confidence - (self.error_rate or 0.0))


class PromptFit:
    """Deterministic, whatever the order of the outcomes."""

    def __init__(
        self, target: PromptTarget, trials: list[PromptTrial], config: PromptConfig
    ) -> None:
        self.target = target
        self._trials = trials
        self._config = config
        self._outcomes: list[PromptOutcome] = []

    @classmethod
    def begin(
        cls,
        recordings: Sequence[bytes],
        language: str,
        config: PromptConfig,
        vad: VADEngine,
        encoder: SpeakerEncoder,
    ) -> "PromptFit":
        """Decodes and measures; blocking, some seconds. Raises InvalidAudio.

        It is so quick that a new attempt starts from the beginning.
        """
        signals = decode_all(recordings, PROMPT_SAMPLE_RATE)
        heard = [resample(pcm, PROMPT_SAMPLE_RATE, SPEAKER_SAMPLE_RATE) for pcm in signals]
        segments = [best_prompt_segment(pcm, vad, config) for pcm in heard]
        found = [(index, one) for index, one in enumerate(segments) if one is not None]
        if not found:
            raise InvalidAudio(
                f"no recording has {config.min_seconds:g} to {config.max_seconds:g} seconds of "
                "speech between two pauses"
            )
        found.sort(key=lambda pair: -pair[1].score)
        trials = [
            PromptTrial(
                number,
                _excerpt(signals[index], segment),
                _without(heard, index, segment, encoder),
            )
            for number, (index, segment) in enumerate(found[: config.candidates])
        ]
        known, sentences = sentences_of(language)
        texts = sentences.judge[: config.judged_sentences] if known == language else ()
        return cls(PromptTarget(language, texts), trials, config)

    @property
    def progress(self) -> float:
        """0 or 1."""
        return 1.0 if self._outcomes else 0.0

    def next_trials(self) -> list[PromptTrial]:
        """All trials, the first time."""
        return [] if self._outcomes else self._trials

    def observe(self, outcomes: Sequence[PromptOutcome]) -> None:
        """One for each trial, in any order."""
        self._outcomes = sorted(outcomes, key=lambda outcome: outcome.number)

    def checkpoint(self) -> bytes:
        """Empty: a prompt fit is not resumed."""
        return b""

    def result(self) -> FittedVoice | FailedFit:
        """When there are no more trials."""
        read = [
            one
            for one in self._outcomes
            if one.transcript and one.confidence >= self._config.min_confidence
        ]
        if not read:
            return FailedFit(UNCLEAR, "the words of the recordings are not clear enough", {})
        best = max(read, key=lambda one: one.score)
        trial = next(one for one in self._trials if one.number == best.number)
        recording = pcm16_to_float(trial.recording.tobytes())
        report = self._report(best, recording).model_dump(mode="json")
        floor = self._config.min_similarity
        if best.similarity < floor:
            reason = (
                f"the voice became only {best.similarity:.2f} like its recordings, and "
                f"{floor:g} is needed; longer and cleaner recordings may help"
            )
            return FailedFit(TOO_UNLIKE, reason, report)
        prompt = VoicePrompt(recording, best.transcript, self.target.language)
        return FittedVoice(write_prompt(prompt), best.similarity, report)

    def _report(self, best: PromptOutcome, recording: Pcm) -> VoiceReport:
        judged = samples = None
        if best.sound is not None:
            judged = Judged(similarity=best.similarity, wer=best.error_rate, dnsmos=best.quality)
            source = resample(recording, PROMPT_SAMPLE_RATE, SPEAKER_SAMPLE_RATE)
            samples = samples_of(
                self.target.texts[0],
                source[: int(SHOWN_S * SPEAKER_SAMPLE_RATE)],
                pcm16_to_float(best.sound.tobytes()),
            )
        return VoiceReport(
            evaluations=len(self._outcomes),
            seconds=round(sum(one.took_s for one in self._outcomes), 1),
            similarity_curve=best_so_far(
                [(count, one.similarity) for count, one in enumerate(self._outcomes, 1)]
            ),
            stock=[],
            judged=judged,
            samples=samples,
        )


class PromptTrials:
    """What a worker process holds; made once, and used by one thread."""

    def __init__(
        self,
        engine: TTSEngine | None,
        raters: SpeechRaters,
        encoder: SpeakerEncoder,
        target: PromptTarget,
    ) -> None:
        """Without an engine the recordings themselves are compared."""
        self._engine = engine
        self._raters = raters
        self._encoder = encoder
        self._target = target

    def run(self, trial: PromptTrial) -> PromptOutcome:
        """Blocking: some seconds, and as long as the engine takes to say the sentences.

        Raises EngineError.
        """
        began = time.monotonic()
        pcm = pcm16_to_float(trial.recording.tobytes())
        heard = resample(pcm, PROMPT_SAMPLE_RATE, SPEAKER_SAMPLE_RATE)
        transcript, confidence = self._read(heard)
        said: list[Pcm] = []
        if self._engine is not None and transcript:
            said = self._speak(self._engine, VoicePrompt(pcm, transcript, self._target.language))
        voice = mean_embedding(
            np.stack([self._encoder.embed(at_level(one)) for one in said or [heard]])
        )
        outcome = PromptOutcome(
            trial.number, transcript, confidence, float(voice @ trial.held_out), 0.0
        )
        if said:
            outcome = replace(outcome, **self._judged(said))
        return replace(outcome, took_s=time.monotonic() - began)

    def _read(self, heard: Pcm) -> tuple[str, float]:
        """The transcript, and the confidence of the recogniser."""
        request = TranscriptionRequest(heard, self._target.language, options=READING)
        segments = self._raters.recogniser.transcribe([request])[0].segments
        if not segments:
            return "", 0.0
        weights = [max(one.end - one.start, 0.01) for one in segments]
        shares = [float(np.exp(one.avg_logprob)) for one in segments]
        text = " ".join(one.text.strip() for one in segments).strip()
        if len(text) > MAX_TRANSCRIPT:  # more than can be said in that time: a hallucination
            return "", 0.0
        return text, float(np.average(shares, weights=weights))

    def _speak(self, engine: TTSEngine, prompt: VoicePrompt) -> list[Pcm]:
        """The sentences that judge, at SPEAKER_SAMPLE_RATE; none when one came out silent."""
        data = write_prompt(prompt)
        pack = PackRef(pack_digest(data), data)
        said = []
        for text in self._target.texts:
            request = SynthesisRequest(text, "custom:trial", prompt.language, pack=pack)
            chunks = [chunk.pcm for chunk in engine.synthesize(request)]
            pcm = np.concatenate([np.zeros(0, np.float32), *chunks])
            if not np.any(pcm):
                return []
            said.append(resample(pcm, engine.capabilities.sample_rate, SPEAKER_SAMPLE_RATE))
        return said

    def _judged(self, said: Sequence[Pcm]) -> dict[str, Any]:
        """The fields of an outcome that rate the sentences."""
        ratings = [
            self._raters.rate(text, self._target.language, pcm)
            for text, pcm in zip(self._target.texts, said, strict=True)
        ]
        words = sum(one.words for one in ratings)
        scores = [one.quality for one in ratings if one.quality is not None]
        return {
            "error_rate": sum(one.errors for one in ratings) / words if words else None,
            "quality": float(np.mean(scores)) if scores else None,
            "sound": np.frombuffer(float_to_pcm16(said[0]), np.int16),
        }


def _excerpt(pcm: Pcm, segment: PromptSegment) -> NDArray[np.int16]:
    """The segment of a signal at PROMPT_SAMPLE_RATE, normalised to PEAK."""
    scale = PROMPT_SAMPLE_RATE / SPEAKER_SAMPLE_RATE
    cut = pcm[round(segment.start * scale) : round(segment.end * scale)]
    peak = float(np.abs(cut).max(initial=0.0))
    return np.frombuffer(float_to_pcm16(cut * (PEAK / peak) if peak else cut), np.int16)


def _without(
    heard: Sequence[Pcm], index: int, segment: PromptSegment, encoder: SpeakerEncoder
) -> Embedding:
    """The speaker in all recordings but that one; in the rest of it when there is no other."""
    others = [pcm for at, pcm in enumerate(heard) if at != index]
    if not others:
        own = heard[index]
        others = [np.concatenate([own[: segment.start], own[segment.end :]])]
        if len(others[0]) < SPEAKER_SAMPLE_RATE:
            others = [own]
    return mean_embedding(np.stack([encoder.embed(at_level(pcm)) for pcm in others]))
