"""Fits a voice for an engine that continues a prompt in its voice: selects the prompt.

Like `pipelines.voices.fitting.fit.Fit`, but with one round of trials, one for each suitable segment
of the samples. The selected segment, with its transcript if its words are clear, is the voice pack
(`models.tts.voice_prompt`). An engine that reads the words gets only segments with clear ones."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from configs.schema.voices import PromptConfig
from models.audio import Pcm, float_to_pcm16, pcm16_to_float, resample
from models.speaker.base import SPEAKER_SAMPLE_RATE, Embedding, SpeakerEncoder
from models.stt.base import TranscriptionRequest
from models.tts.base import TTSEngine
from models.tts.voice_prompt import MAX_TRANSCRIPT, PROMPT_SAMPLE_RATE, VoicePrompt, write_prompt
from models.vad.base import VAD_SAMPLE_RATE, VADEngine
from pipelines.audio.measures import clipped_share, snr_db
from pipelines.audio.segments import find_spans
from pipelines.errors import InvalidAudio
from pipelines.voices.fitting.features import at_level, decode_all
from pipelines.voices.fitting.trials import SpeechRaters, mean_rating, say, sentences_of
from pipelines.voices.report import (
    FailedFit,
    FittedVoice,
    Judged,
    Preview,
    VoiceReport,
    best_so_far,
    samples_of,
    too_unlike,
)

THRESHOLD = 0.5  # probability of speech
PAUSE_S = 0.2  # a shorter one may be within a word
EDGE_S = 0.15  # part of the pause that is kept on both sides
ENOUGH_SNR_DB = 40.0  # more is inaudible
WEIGHTS = {"snr": 1.0, "speech": 1.0, "length": 0.5, "clipped": 100.0}
PEAK = 0.9  # peak of a prompt
UNCLEAR = "invalid_audio"
CLARITY = 0.2  # weight of intelligibility, relative to similarity
READING_BEAM_SIZE = 5  # a wrong word in the prompt spoils every sentence


@dataclass(frozen=True, slots=True)
class PromptSegment:
    """Samples from `start` up to `end`, at VAD_SAMPLE_RATE."""

    start: int
    end: int
    score: float  # higher is better


@dataclass(frozen=True, slots=True)
class PromptTarget:
    """What all trials of a fit share."""

    language: str  # ISO 639-1 code of the recordings
    texts: tuple[str, ...]  # the sentences that rate the finished voice
    transcribed: bool  # whether the engine reads the words of a recording


@dataclass(frozen=True, slots=True)
class PromptTrial:
    """A trial of one segment of the samples, which is sent between processes."""

    number: int
    recording: NDArray[np.int16]  # recording at PROMPT_SAMPLE_RATE
    held_out: Embedding  # embedding of the speaker's other recordings


@dataclass(frozen=True, slots=True)
class PromptOutcome:
    """The result of the trial of the same number."""

    number: int
    transcript: str  # transcript of the recording; empty if no words are heard
    confidence: float  # 0 to 1, of the recogniser
    similarity: float  # similarity of the engine's speech; without an engine, of the recording
    took_s: float
    error_rate: float | None = None  # word error rate of the engine's speech
    quality: float | None = None  # DNSMOS of the engine's speech
    sound: NDArray[np.int16] | None = None  # the first sentence, at SPEAKER_SAMPLE_RATE

    @property
    def score(self) -> float:
        """Return the similarity, plus a bonus for intelligibility."""
        return self.similarity + CLARITY * (self.confidence - (self.error_rate or 0.0))


@dataclass(eq=False, repr=False)
class PromptFit:
    """A fit, which is deterministic whatever the order of the outcomes."""

    target: PromptTarget
    _trials: list[PromptTrial]
    _config: PromptConfig
    _outcomes: list[PromptOutcome] = field(default_factory=list)
    preview: Preview | None = None  # its one round is short
    replaced: bytes | None = None  # not rated: the recordings of the earlier voice are candidates

    @classmethod
    def begin(
        cls,
        recordings: Sequence[bytes],
        language: str,
        config: PromptConfig,
        vad: VADEngine,
        encoder: SpeakerEncoder,
        *,
        transcribed: bool = True,
    ) -> "PromptFit":
        """Decode and measure; blocking, some seconds. Raises InvalidAudio."""
        signals = decode_all(recordings, PROMPT_SAMPLE_RATE)
        resampled = [resample(pcm, PROMPT_SAMPLE_RATE, SPEAKER_SAMPLE_RATE) for pcm in signals]
        segments = [best_prompt_segment(pcm, vad, config) for pcm in resampled]
        usable = [(index, part) for index, part in enumerate(segments) if part is not None]
        if not usable:
            raise InvalidAudio(
                f"no recording has {config.min_seconds:g} to {config.max_seconds:g} seconds of "
                "speech between two pauses"
            )
        usable.sort(key=lambda pair: -pair[1].score)
        trials = [
            PromptTrial(
                number,
                _excerpt(signals[index], segment),
                _without(resampled, index, segment, encoder),
            )
            for number, (index, segment) in enumerate(usable[: config.candidates])
        ]
        spoken_language, sentences = sentences_of(language)
        texts = sentences.judge[: config.judged_sentences] if spoken_language == language else ()
        return cls(PromptTarget(language, texts, transcribed), trials, config)

    @property
    def progress(self) -> float:
        """Return the progress, 0 or 1."""
        return 1.0 if self._outcomes else 0.0

    def next_trials(self) -> list[PromptTrial]:
        return [] if self._outcomes else self._trials

    def observe(self, outcomes: Sequence[PromptOutcome]) -> None:
        """Take an outcome for each trial, in any order."""
        self._outcomes = sorted(outcomes, key=lambda outcome: outcome.number)

    def checkpoint(self) -> bytes:
        """Return an empty state: a prompt fit is not resumed."""
        return b""

    def result(self) -> FittedVoice | FailedFit:
        """Return the voice or the failure, when there are no more trials."""
        least = self._config.min_confidence
        usable = self._outcomes
        if self.target.transcribed:
            usable = [
                candidate
                for candidate in usable
                if candidate.transcript and candidate.confidence >= least
            ]
        if not usable:
            return FailedFit(UNCLEAR, "the words of the recordings are not clear enough")
        best = max(usable, key=lambda candidate: candidate.score)
        trial = next(trial for trial in self._trials if trial.number == best.number)
        recording = pcm16_to_float(trial.recording.tobytes())
        report = self._report(best, recording)
        if best.similarity < self._config.min_similarity:
            return too_unlike(best.similarity, self._config.min_similarity, report)
        words = best.transcript if best.confidence >= least else ""
        prompt = VoicePrompt(recording, words, self.target.language)
        return FittedVoice(write_prompt(prompt), best.similarity, report)

    def _report(self, best: PromptOutcome, recording: Pcm) -> VoiceReport:
        judged = None
        if best.sound is not None:
            judged = Judged(similarity=best.similarity, wer=best.error_rate, dnsmos=best.quality)
        source = resample(recording, PROMPT_SAMPLE_RATE, SPEAKER_SAMPLE_RATE)
        return VoiceReport(
            evaluations=len(self._outcomes),
            seconds=round(sum(outcome.took_s for outcome in self._outcomes), 1),
            similarity_curve=best_so_far(
                [(count, outcome.similarity) for count, outcome in enumerate(self._outcomes, 1)]
            ),
            stock=[],
            judged=judged,
            samples=samples_of(next(iter(self.target.texts), ""), source, best.sound),
        )


@dataclass(eq=False, repr=False)
class PromptTrials:
    """The engines of a worker process; created once, and used by one thread."""

    _engine: TTSEngine | None  # without one the recordings themselves are compared
    _raters: SpeechRaters
    _encoder: SpeakerEncoder
    _target: PromptTarget

    def run(self, trial: PromptTrial) -> PromptOutcome:
        """Run a trial; blocking, some seconds plus the synthesis. Raises EngineError."""
        began = time.monotonic()
        pcm = pcm16_to_float(trial.recording.tobytes())
        recording = resample(pcm, PROMPT_SAMPLE_RATE, SPEAKER_SAMPLE_RATE)
        transcript, confidence = self._read(recording)
        spoken: list[Pcm] = []
        if self._engine is not None and (transcript or not self._target.transcribed):
            spoken = self._speak(self._engine, VoicePrompt(pcm, transcript, self._target.language))
        voice = self._encoder.embed_signals(at_level(speech) for speech in spoken or [recording])
        similarity = float(voice @ trial.held_out)
        outcome = PromptOutcome(trial.number, transcript, confidence, similarity, 0.0)
        if spoken:
            rated = [
                self._raters.rate(text, self._target.language, speech)
                for text, speech in zip(self._target.texts, spoken, strict=True)
            ]
            error_rate, quality = mean_rating(rated)
            sound = np.frombuffer(float_to_pcm16(spoken[0]), np.int16)
            outcome = replace(outcome, error_rate=error_rate, quality=quality, sound=sound)
        return replace(outcome, took_s=time.monotonic() - began)

    def _read(self, heard: Pcm) -> tuple[str, float]:
        request = TranscriptionRequest(heard, self._target.language, beam_size=READING_BEAM_SIZE)
        segments = self._raters.recogniser.transcribe([request])[0].segments
        if not segments:
            return "", 0.0
        weights = [max(segment.end - segment.start, 0.01) for segment in segments]
        shares = [float(np.exp(segment.avg_logprob)) for segment in segments]
        text = " ".join(segment.text.strip() for segment in segments).strip()
        if len(text) > MAX_TRANSCRIPT:  # more than fits the time: a hallucination
            return "", 0.0
        return text, float(np.average(shares, weights=weights))

    def _speak(self, engine: TTSEngine, prompt: VoicePrompt) -> list[Pcm]:
        """Return speech of the rating sentences, at SPEAKER_SAMPLE_RATE; none if one is silent."""
        pack = write_prompt(prompt)
        spoken = []
        for text in self._target.texts:
            spoken.append(say(engine, text, "custom:trial", prompt.language, pack))
            if not np.any(spoken[-1]):
                return []
        return spoken


def _excerpt(pcm: Pcm, segment: PromptSegment) -> NDArray[np.int16]:
    """Return the segment of a signal at PROMPT_SAMPLE_RATE, normalised to PEAK."""
    scale = PROMPT_SAMPLE_RATE / SPEAKER_SAMPLE_RATE
    cut = pcm[round(segment.start * scale) : round(segment.end * scale)]
    peak = float(np.abs(cut).max(initial=0.0))
    return np.frombuffer(float_to_pcm16(cut * (PEAK / peak) if peak else cut), np.int16)


def _without(
    heard: Sequence[Pcm], index: int, segment: PromptSegment, encoder: SpeakerEncoder
) -> Embedding:
    """Return the speaker's embedding in all other recordings, or else in the rest of this one."""
    others = [pcm for at, pcm in enumerate(heard) if at != index]
    if not others:
        own = heard[index]
        others = [np.concatenate([own[: segment.start], own[segment.end :]])]
        if len(others[0]) < SPEAKER_SAMPLE_RATE:
            others = [own]
    return encoder.embed_signals(at_level(pcm) for pcm in others)


def best_prompt_segment(pcm: Pcm, vad: VADEngine, config: PromptConfig) -> PromptSegment | None:
    """Return the best segment of a signal, float32 [n] at VAD_SAMPLE_RATE; None without pauses that
    fit. The best segment is long, with little silence, little noise and no clipping."""
    probabilities = vad.probabilities(pcm)
    frame_samples = vad.capabilities.frame_samples
    frames_a_second = VAD_SAMPLE_RATE / frame_samples
    spans = find_spans(probabilities, THRESHOLD, max(1, round(PAUSE_S * frames_a_second)))
    shortest = round(config.min_seconds * frames_a_second)
    longest = round((config.max_seconds - 2 * EDGE_S) * frames_a_second)

    def scored(first: int, last: int) -> PromptSegment:
        inside = probabilities[first:last]
        is_speech = inside >= THRESHOLD
        cut = pcm[first * frame_samples : last * frame_samples]
        score = (
            WEIGHTS["snr"] * min(snr_db(cut, inside, is_speech, frame_samples) / ENOUGH_SNR_DB, 1.0)
            + WEIGHTS["speech"] * float(np.mean(is_speech))
            + WEIGHTS["length"] * len(cut) / VAD_SAMPLE_RATE / config.max_seconds
            - WEIGHTS["clipped"] * clipped_share(cut)
        )
        edge = round(EDGE_S * VAD_SAMPLE_RATE)
        start = max(0, first * frame_samples - edge)
        return PromptSegment(start, min(len(pcm), last * frame_samples + edge), score)

    candidates = (scored(*run) for run in _between_pauses(spans, shortest, longest))
    return max(candidates, key=lambda segment: segment.score, default=None)


def _between_pauses(
    spans: list[tuple[int, int]], shortest: int, longest: int
) -> Iterator[tuple[int, int]]:
    """Yield every run of spans whose length is within bounds, as frames."""
    for index, (first, _) in enumerate(spans):
        for _, last in spans[index:]:
            if last - first > longest:
                break
            if last - first >= shortest:
                yield first, last
