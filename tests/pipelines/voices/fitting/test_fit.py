"""A voice fit from its start to its result, with synthetic outcomes and no engine."""

import random
from dataclasses import dataclass, replace

import numpy as np
import pytest

from models.tts.voice_pack import read_pack
from pipelines.voices.fitting.checkpoint import CheckpointError, read_checkpoint
from pipelines.voices.fitting.fit import Fit, FitProgress
from pipelines.voices.fitting.trials import Trial
from pipelines.voices.report import FailedFit, FittedVoice, VoiceReport
from tests.pipelines.voices.fitting.world import CONFIG, VOICES, fit, outcome_of, prior

SHORT = CONFIG.model_copy(update={"evaluations": 48, "generation": 12})


@dataclass(frozen=True)
class WholeFit:
    """A fit that has ended."""

    trials: list[Trial]
    progress: list[float]  # before and after each generation
    result: FittedVoice | FailedFit


@pytest.fixture(scope="module")
def whole() -> WholeFit:
    """One for the tests that only read it, as it takes seconds."""
    uninterrupted = fit(SHORT)
    trials: list[Trial] = []
    progress = [uninterrupted.progress]
    while generation := uninterrupted.next_trials():
        trials += generation
        uninterrupted.observe([outcome_of(trial) for trial in generation])
        progress.append(uninterrupted.progress)
    return WholeFit(trials, progress, uninterrupted.result())


def run_fit(one: Fit, *, shuffle: bool = False) -> list[Trial]:
    """Runs a fit to its end; returns all trials in order."""
    every: list[Trial] = []
    while trials := one.next_trials():
        every += trials
        outcomes = [outcome_of(trial) for trial in trials]
        if shuffle:
            random.Random(1).shuffle(outcomes)
        one.observe(outcomes)
    return every


def same_trial(one: Trial, other: Trial) -> bool:
    return (
        one.text == other.text
        and one.filters == other.filters
        and np.array_equal(np.array(one.style), np.array(other.style))
    )


def test_a_fit_finds_a_voice_similar_to_the_speaker(whole: WholeFit) -> None:
    voice = whole.result
    assert isinstance(voice, FittedVoice)
    assert voice.similarity > 0.9
    assert voice.report is not None and voice.report.judged is not None
    assert voice.similarity > (voice.report.judged.stock_similarity or 1.0) + 0.1
    assert read_pack(voice.pack).filter is not None


@pytest.mark.slow
def test_target_and_voice_pack_have_the_british_accent() -> None:
    one = fit(SHORT, british=True)
    assert one.target.british
    run_fit(one)
    voice = one.result()
    assert isinstance(voice, FittedVoice) and read_pack(voice.pack).british


def test_the_report_of_a_fit_has_all_that_the_report_page_shows(whole: WholeFit) -> None:
    report = VoiceReport.model_validate(whole.result.report)
    assert report.evaluations == 48
    assert len(report.similarity_curve) == 4
    assert sorted(stock.voice for stock in report.stock) == sorted(VOICES)
    assert report.stock[0].similarity >= report.stock[-1].similarity
    assert report.judged is not None and report.judged.stock_similarity is not None
    assert report.judged.wer == 0.0
    assert report.pitch is not None and report.spectrum is not None and report.samples is not None
    assert len(report.model_dump_json().encode()) < 200_000


@pytest.mark.slow
def test_the_order_of_outcomes_does_not_change_the_trials() -> None:
    plain, shuffled = fit(SHORT), fit(SHORT)
    for one, other in zip(run_fit(plain), run_fit(shuffled, shuffle=True), strict=True):
        assert same_trial(one, other)


def test_another_seed_tries_other_styles() -> None:
    assert not same_trial(fit(SHORT).next_trials()[1], fit(SHORT, seed=2).next_trials()[1])


@pytest.mark.parametrize(
    "asked", [3, *(pytest.param(one, marks=pytest.mark.slow) for one in (1, 4, 5))]
)
def test_a_fit_resumed_from_a_checkpoint_ends_like_an_uninterrupted_one(
    whole: WholeFit, asked: int
) -> None:
    """Stopped after generations, before the selection and before the final rating."""
    every = whole.trials
    first = fit(SHORT)
    done = 0
    for _ in range(asked):
        trials = first.next_trials()
        done += len(trials)
        first.observe([outcome_of(trial) for trial in trials])
    searched, progress = read_checkpoint(first.checkpoint(), FitProgress, prior().space.size)
    second = fit(SHORT, searched=searched, progress=progress)
    assert second.progress == pytest.approx(first.progress)
    rest = run_fit(second)
    assert [trial.text for trial in rest] == [trial.text for trial in every[done:]]
    assert rest[0].number == every[done].number
    styles = [(one.style, other.style) for one, other in zip(rest, every[done:], strict=True)]
    for one, other in styles:
        if one is not None and other is not None:
            np.testing.assert_allclose(one, other, atol=0.05)  # a checkpoint rounds
    resumed, uninterrupted = second.result(), whole.result
    assert isinstance(resumed, FittedVoice) and isinstance(uninterrupted, FittedVoice)
    assert resumed.similarity == pytest.approx(uninterrupted.similarity, abs=0.01)


def test_an_interrupted_generation_is_repeated_after_resuming() -> None:
    one = fit(SHORT)
    one.observe([outcome_of(trial) for trial in one.next_trials()])
    asked = one.next_trials()
    searched, progress = read_checkpoint(one.checkpoint(), FitProgress, prior().space.size)
    again = fit(SHORT, searched=searched, progress=progress).next_trials()
    assert len(asked) == len(again)
    assert [trial.text for trial in asked] == [trial.text for trial in again]


@pytest.mark.slow
def test_a_checkpoint_of_the_longest_fit_is_smaller_than_a_megabyte() -> None:
    one = fit(CONFIG.model_copy(update={"evaluations": 60}))
    run_fit(one)
    per_evaluation = len(one.checkpoint()) / 60
    assert per_evaluation * CONFIG.evaluations < 1_000_000


def test_reading_a_corrupted_checkpoint_raises_only_checkpoint_errors() -> None:
    one = fit(SHORT)
    one.observe([outcome_of(trial) for trial in one.next_trials()])
    state, draw = one.checkpoint(), random.Random(3)
    for _ in range(200):
        spoiled = bytearray(state)
        spoiled[draw.randrange(len(spoiled))] ^= 1 << draw.randrange(8)
        try:
            read_checkpoint(bytes(spoiled), FitProgress, prior().space.size)
        except CheckpointError:
            continue


@pytest.mark.slow
def test_a_search_without_further_improvement_ends_early() -> None:
    one = fit(CONFIG.model_copy(update={"evaluations": 10_000, "generation": 12}))
    trials = run_fit(one)
    assert len(trials) < 1000
    assert one.progress == 1.0


def test_the_progress_of_a_fit_never_decreases(whole: WholeFit) -> None:
    seen = whole.progress
    assert seen == sorted(seen) and seen[0] == 0.0 and seen[-1] == 1.0


def test_a_voice_below_the_similarity_threshold_fails_with_a_report() -> None:
    one = fit(SHORT.model_copy(update={"min_similarity": 1.0}))
    run_fit(one)
    failed = one.result()
    assert isinstance(failed, FailedFit)
    assert failed.code == "similarity_too_low"
    assert "only 0." in failed.reason
    assert failed.report is not None and failed.report.judged is not None
    assert failed.report.judged.similarity < 1.0


def test_a_voice_that_the_recogniser_does_not_understand_fails() -> None:
    one = fit(SHORT)
    while trials := one.next_trials():
        outcomes = [outcome_of(trial) for trial in trials]
        if len(one._progress.choice):  # the final rating: stock voices are understood
            judged = [trial for trial in trials if trial.filters]
            for outcome in outcomes:
                if outcome.number in {trial.number for trial in judged}:
                    object.__setattr__(outcome.rating, "errors", outcome.rating.words)
        one.observe(outcomes)
    failed = one.result()
    assert isinstance(failed, FailedFit)
    assert (failed.code, failed.reason[:12]) == ("speech_not_understood", "100% of the ")


@pytest.mark.slow
def test_a_fit_succeeds_when_some_trials_have_no_speech() -> None:
    one = fit(SHORT)
    while trials := one.next_trials():
        outcomes = [outcome_of(trial) for trial in trials]
        for outcome in outcomes[:6]:
            object.__setattr__(outcome, "duration_s", 0.0)
            object.__setattr__(outcome, "embeddings", np.zeros_like(outcome.embeddings))
        one.observe(outcomes)
    assert isinstance(one.result(), FittedVoice)


@pytest.mark.slow
def test_a_preview_follows_each_generation_and_becomes_more_similar() -> None:
    one = fit(SHORT)
    assert one.preview is None
    likeness: list[float] = []
    while trials := one.next_trials():
        one.observe([outcome_of(trial) for trial in trials])
        assert one.preview is not None
        sound, similarity = one.preview
        assert sound.startswith(b"OggS")
        likeness.append(similarity)
    assert max(likeness[:1]) < likeness[-1] <= 1


def test_a_silent_first_sentence_keeps_the_former_preview() -> None:
    one = fit(SHORT)
    one.observe([outcome_of(trial) for trial in one.next_trials()])
    before = one.preview
    outcomes = [outcome_of(trial) for trial in one.next_trials()]
    outcomes[0] = replace(outcomes[0], sound=None, duration_s=0.0)
    one.observe(outcomes)
    assert one.preview is before is not None


@pytest.mark.slow
def test_old_and_new_voice_are_rated_alike() -> None:
    first = fit(SHORT)
    run_fit(first)
    voice = first.result()
    assert isinstance(voice, FittedVoice) and voice.report is not None
    assert voice.report.judged is not None and voice.report.judged.replaced_similarity is None
    second = fit(SHORT)
    second.replaced = voice.pack
    trials = run_fit(second)
    rated = [one for one in trials if one.pack is not None]
    assert len(rated) == SHORT.judge_sentences and {one.pack for one in rated} == {voice.pack}
    assert all(one.style is None and one.rate for one in rated)
    made = second.result()
    assert isinstance(made, FittedVoice) and made.report is not None
    assert made.report.judged is not None
    assert made.report.judged.replaced_similarity == pytest.approx(made.similarity, abs=0.02)
    assert made.similarity == voice.similarity  # it is rated only, and changes nothing
