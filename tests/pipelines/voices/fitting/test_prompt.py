"""Voices of engines that continue a recording: selection of that prompt, and its voice pack."""

import pickle
import random
from collections.abc import Generator, Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from configs.load import load_yaml
from configs.schema.voices import CustomVoicesConfig, PromptConfig
from models.audio import AudioChunk, Pcm
from models.quality.base import QualityEngine
from models.registry import VAD, load
from models.speaker.base import SPEAKER_SAMPLE_RATE, SpeakerEncoder
from models.stt.base import Segment, STTCapabilities, STTEngine, Transcript, TranscriptionRequest
from models.tts.base import SynthesisRequest, TTSCapabilities, TTSEngine
from models.tts.voice_prompt import PROMPT_SAMPLE_RATE, read_prompt
from models.vad.base import VADEngine
from models.weights.store import WeightStore
from pipelines.errors import InvalidAudio
from pipelines.voices.fitting.prompt import (
    PromptFit,
    PromptOutcome,
    PromptTrials,
    best_prompt_segment,
)
from pipelines.voices.fitting.trials import SpeechRaters
from pipelines.voices.report import TOO_UNLIKE, FailedFit, FittedVoice, VoiceReport
from tests.models.speaker.bands import BandsEngine
from tests.pipelines.voices.recordings import clipped, noisy, recording, wav

CONFIG = load_yaml(CustomVoicesConfig, "custom_voices").prompt
SAID = "Nobody had expected the letter."


class FakeSTT(STTEngine):
    """A recogniser that returns the same text and log probability for all audio."""

    capabilities = STTCapabilities(languages=("en",))

    def __init__(self, text: str = SAID, avg_logprob: float = -0.1) -> None:
        self.text = text
        self.avg_logprob = avg_logprob

    def transcribe(self, requests: Sequence[TranscriptionRequest]) -> list[Transcript]:
        segments = (Segment(f" {self.text} ", 0.0, 2.0, self.avg_logprob, 0.0),)
        return [Transcript("en", 1.0, segments if self.text else ()) for _ in requests]


class Rater(QualityEngine):
    def rate(self, pcm: Pcm) -> float:
        return 3.25


class FakeTTS(TTSEngine):
    """Speaks every text as the first two seconds of the recording in the voice pack."""

    capabilities = TTSCapabilities(
        sample_rate=PROMPT_SAMPLE_RATE, languages=("en",), takes_voice_packs=True
    )

    def __init__(self, level: float = 0.5) -> None:
        self.level = level
        self.heard: list[SynthesisRequest] = []

    def synthesize(self, request: SynthesisRequest) -> Generator[AudioChunk, None, None]:
        self.heard.append(request)
        assert request.pack is not None and request.pack.data is not None
        pcm = self.level * read_prompt(request.pack.data).pcm[: 2 * PROMPT_SAMPLE_RATE]
        yield AudioChunk(np.zeros(0, np.float32), PROMPT_SAMPLE_RATE)
        yield AudioChunk(pcm.astype(np.float32), PROMPT_SAMPLE_RATE)


@cache
def tools() -> tuple[VADEngine, SpeakerEncoder]:
    store = WeightStore.__new__(WeightStore)  # neither has weights
    return load(VAD, "vad/webrtc", store), BandsEngine()


def begin(recordings: Sequence[Pcm], config: PromptConfig = CONFIG) -> PromptFit:
    return PromptFit.begin([wav(pcm) for pcm in recordings], "en", config, *tools())


@cache
def shared() -> PromptFit:
    """A fit of three recordings of one speaker; shared by tests, not to be changed."""
    return begin([recording(number, 20) for number in (1, 2, 3)])


def new_fit(config: PromptConfig = CONFIG) -> PromptFit:
    return PromptFit(shared().target, shared().next_trials(), config)


def outcome(number: int, similarity: float = 0.9, **changes: object) -> PromptOutcome:
    plain = PromptOutcome(number, f"Text {number}.", 0.9, similarity, 1.0)
    return replace(plain, **changes)  # type: ignore[arg-type]


def test_a_prompt_starts_and_ends_in_pauses_and_has_a_valid_length() -> None:
    pcm = recording(5, 30)
    found = best_prompt_segment(pcm, tools()[0], CONFIG)
    assert found is not None
    seconds = (found.end - found.start) / SPEAKER_SAMPLE_RATE
    assert CONFIG.min_seconds <= seconds <= CONFIG.max_seconds
    for at in (found.start, found.end):
        edge = pcm[max(0, at - 800) : at + 800]  # 0.05 s on both sides
        assert np.abs(edge).max() < 0.02 * np.abs(pcm).max()


@pytest.mark.parametrize("spoil", [lambda pcm: noisy(pcm, 12), clipped], ids=["noisy", "clipped"])
def test_the_clean_part_of_a_recording_is_selected_as_the_prompt(spoil: object) -> None:
    assert callable(spoil)
    half = 18 * SPEAKER_SAMPLE_RATE
    pcm = recording(6, 36)
    for spoiled, keeps_first in ((slice(half, None), True), (slice(None, half), False)):
        mixed = pcm.copy()
        mixed[spoiled] = spoil(mixed[spoiled])
        found = best_prompt_segment(mixed, tools()[0], CONFIG)
        assert found is not None
        assert (found.start + found.end < 2 * half) == keeps_first


def test_speech_without_two_pauses_far_enough_apart_has_no_prompt() -> None:
    assert best_prompt_segment(recording(7, 5), tools()[0], CONFIG) is None
    with pytest.raises(InvalidAudio, match="between two pauses"):
        begin([recording(number, 5) for number in (1, 2, 3)])


def test_the_best_recordings_become_trials_compared_with_the_others() -> None:
    clean = [recording(number, 20) for number in (1, 2, 3)]
    fit = begin([noisy(clean[0], 15), *clean[1:]], CONFIG.model_copy(update={"candidates": 2}))
    trials = fit.next_trials()
    assert [trial.number for trial in trials] == [0, 1]
    encoder = tools()[1]
    for trial in trials:
        seconds = len(trial.recording) / PROMPT_SAMPLE_RATE
        assert CONFIG.min_seconds <= seconds <= CONFIG.max_seconds
        assert np.abs(trial.recording).max() == pytest.approx(0.9 * 32767, rel=0.01)
        assert np.linalg.norm(trial.held_out) == pytest.approx(1, abs=1e-3)
        assert float(trial.held_out @ encoder.embed(clean[1])) > 0.8
    assert not np.array_equal(trials[0].held_out, trials[1].held_out)
    assert len(pickle.dumps(trials[0])) < 2**20
    assert len(fit.target.texts) == CONFIG.judged_sentences


def test_a_trial_in_a_language_without_sentences_compares_recordings_only() -> None:
    data = [wav(recording(number, 20)) for number in (1, 2, 3)]
    fit = PromptFit.begin(data, "xx", CONFIG, *tools())
    assert fit.target.texts == ()
    trials = PromptTrials(FakeTTS(), SpeechRaters(FakeSTT(), Rater()), tools()[1], fit.target)
    measured = trials.run(fit.next_trials()[0])
    assert measured.sound is None and measured.similarity > 0.8


def test_a_trial_synthesises_sentences_and_measures_the_speech() -> None:
    fit, engine = new_fit(), FakeTTS()
    trials = PromptTrials(engine, SpeechRaters(FakeSTT(), Rater()), tools()[1], fit.target)
    measured = trials.run(fit.next_trials()[0])
    assert [request.text for request in engine.heard] == list(fit.target.texts)
    pack = engine.heard[0].pack
    assert pack is not None and pack.data is not None
    assert read_prompt(pack.data).transcript == measured.transcript == SAID
    assert measured.confidence == pytest.approx(np.exp(-0.1))
    assert 0.8 < measured.similarity <= 1.0 and measured.took_s > 0
    assert measured.error_rate is not None and measured.error_rate > 0.5  # other words were heard
    assert measured.quality == 3.25
    assert measured.sound is not None and len(measured.sound) == 2 * SPEAKER_SAMPLE_RATE


@pytest.mark.parametrize("engine", [None, FakeTTS(level=0.0)], ids=["none", "silent"])
def test_a_trial_without_engine_audio_compares_the_recording(engine: FakeTTS | None) -> None:
    fit = new_fit()
    measured = PromptTrials(engine, SpeechRaters(FakeSTT(), Rater()), tools()[1], fit.target).run(
        fit.next_trials()[0]
    )
    assert measured.similarity > 0.8
    assert measured.sound is None and measured.error_rate is None and measured.quality is None


def test_a_recording_without_a_transcript_is_not_used_as_a_prompt() -> None:
    fit, engine = new_fit(), FakeTTS()
    trials = PromptTrials(engine, SpeechRaters(FakeSTT(""), Rater()), tools()[1], fit.target)
    measured = [trials.run(trial) for trial in fit.next_trials()]
    assert not engine.heard and not any(one.transcript for one in measured)
    fit.observe(measured)
    assert isinstance(fit.result(), FailedFit)


def test_an_engine_without_a_transcript_uses_recordings_whose_words_are_unclear() -> None:
    target = replace(shared().target, transcribed=False)
    fit, engine = PromptFit(target, shared().next_trials(), CONFIG), FakeTTS()
    for heard, trial in zip(("", SAID), fit.next_trials(), strict=False):
        judges = SpeechRaters(FakeSTT(heard, avg_logprob=-3.0), Rater())
        measured = PromptTrials(engine, judges, tools()[1], target).run(trial)
        assert measured.sound is not None
        fit.observe([measured])
        voice = fit.result()
        assert isinstance(voice, FittedVoice) and read_prompt(voice.pack).transcript == ""


def test_a_transcript_with_implausibly_many_words_is_discarded() -> None:
    judges = SpeechRaters(FakeSTT("and again " * 200), Rater())
    found = PromptTrials(None, judges, tools()[1], shared().target).run(shared().next_trials()[0])
    assert (found.transcript, found.confidence) == ("", 0.0)


def test_the_most_similar_prompt_is_selected_in_any_order_of_outcomes() -> None:
    packs = set()
    for seed in range(3):
        fit = new_fit()
        assert fit.progress == 0.0
        measured = [outcome(0, 0.8), outcome(1, 0.9), outcome(2, 0.7)]
        random.Random(seed).shuffle(measured)
        fit.observe(measured)
        assert fit.progress == 1.0 and fit.next_trials() == [] and fit.checkpoint() == b""
        voice = fit.result()
        assert isinstance(voice, FittedVoice) and voice.similarity == 0.9
        prompt = read_prompt(voice.pack)
        assert (prompt.transcript, prompt.language) == ("Text 1.", "en")
        assert len(prompt.pcm) == len(shared().next_trials()[1].recording)
        packs.add(voice.pack)
        assert VoiceReport.model_validate(voice.report).judged is None  # nothing was spoken
    assert len(packs) == 1


def test_the_report_has_the_measurements_of_the_selected_prompt() -> None:
    fit = new_fit()
    sound = np.zeros(2 * SPEAKER_SAMPLE_RATE, np.int16)
    heard = {"sound": sound, "error_rate": 0.1, "quality": 3.1}
    fit.observe([outcome(0, 0.8), outcome(1, 0.9, **heard), outcome(2, 0.7)])
    report = VoiceReport.model_validate(fit.result().report)
    assert report.evaluations == 3 and report.seconds == 3.0
    assert report.similarity_curve == [(1, 0.8), (2, 0.9), (3, 0.9)]
    assert report.judged is not None and report.samples is not None
    assert (report.judged.similarity, report.judged.wer, report.judged.dnsmos) == (0.9, 0.1, 3.1)
    assert report.samples.sentence == fit.target.texts[0]


def test_the_clearest_of_equally_similar_prompts_is_selected() -> None:
    fit = new_fit()
    fit.observe(
        [outcome(0, 0.9), outcome(1, 0.89, confidence=1.0), outcome(2, 0.9, error_rate=0.3)]
    )
    voice = fit.result()
    assert isinstance(voice, FittedVoice) and voice.similarity == 0.89


def test_prompts_with_an_unclear_or_empty_transcript_are_not_selected() -> None:
    fit = new_fit()
    fit.observe(
        [outcome(0, 0.8), outcome(1, 0.95, confidence=0.2), outcome(2, 0.94, transcript="")]
    )
    voice = fit.result()
    assert isinstance(voice, FittedVoice) and voice.similarity == 0.8


def test_a_prompt_below_the_similarity_threshold_fails_with_a_report() -> None:
    fit = new_fit()
    fit.observe([outcome(number, 0.4) for number in range(3)])
    failed = fit.result()
    assert isinstance(failed, FailedFit) and failed.code == TOO_UNLIKE
    assert "0.40" in failed.reason and failed.report is not None
