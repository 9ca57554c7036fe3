"""Whether a voice gets other formants."""

import io
import json
from dataclasses import replace

import numpy as np
import pytest

from models.tts.voice_pack import read_pack
from pipelines.voices.fitting.checkpoint import read_checkpoint
from pipelines.voices.fitting.fit import Fit, FitProgress, FittedVoice
from pipelines.voices.fitting.formants import QUALITY_SLACK, WARPS, WORTH, better, warped
from pipelines.voices.fitting.selection import Candidate, SelectionResult
from pipelines.voices.fitting.trials import Trial
from tests.pipelines.voices.fitting.world import CONFIG, fit, knowledge, outcome_of

SHORT = CONFIG.model_copy(update={"evaluations": 24, "generation": 12})
PLAIN = SelectionResult(
    similarity=0.88, held_out=0.86, error_rate=0.0, quality=3.2, spectrum=(), pitches=()
)
STOCK = replace(PLAIN, similarity=0.6)
CHILD = 1.1


def goes_on(one: Fit) -> list[Trial]:
    """To the end; all trials in order."""
    every: list[Trial] = []
    while trials := one.ask():
        every += trials
        one.tell([outcome_of(trial) for trial in trials])
    return every


def after(state: bytes) -> Fit:
    searched, progress = read_checkpoint(state, FitProgress, knowledge().space.size)
    return fit(SHORT, warp=CHILD, searched=searched, progress=progress)


@pytest.fixture(scope="module")
def chosen() -> bytes:
    """A child's voice that was told all but what other formants would give."""
    one = fit(SHORT, warp=CHILD)
    while not one._progress.choice:
        one.tell([outcome_of(trial) for trial in one.ask()])
    return one.state()


def test_a_child_gets_formants_that_no_style_has(chosen: bytes) -> None:
    one = after(chosen)
    goes_on(one)
    voice = one.result()
    assert isinstance(voice, FittedVoice)
    assert voice.report["formants"] == pytest.approx(CHILD, abs=0.05)
    assert read_pack(voice.pack).warp == pytest.approx(voice.report["formants"])
    assert one.final_trial().warp == voice.report["formants"]
    plain = one._progress.choice[one._plain().name]
    assert one._progress.judgement[one._chosen().name].similarity > plain.similarity + WORTH


def test_who_is_within_reach_of_the_styles_keeps_their_formants() -> None:
    one = fit(SHORT)
    trials = goes_on(one)
    voice = one.result()
    assert isinstance(voice, FittedVoice)
    assert voice.report["formants"] == read_pack(voice.pack).warp == 1.0
    assert sum(bool(trial.warps) for trial in trials) == SHORT.choice_sentences
    assert all(trial.warp == 1.0 for trial in trials)


@pytest.mark.parametrize("asked", [0, 1, 2])
def test_a_fit_that_is_stopped_while_it_looks_at_formants_goes_on_there(
    chosen: bytes, asked: int
) -> None:
    """Before it looks, before the best of them is spoken, and before the judgement."""
    whole, first = after(chosen), after(chosen)
    rest = goes_on(whole)
    done = 0
    for _ in range(asked):
        trials = first.ask()
        done += len(trials)
        first.tell([outcome_of(trial) for trial in trials])
    second = after(first.state())
    assert second.progress == first.progress
    again = goes_on(second)
    for one, other in zip(again, rest[done:], strict=True):
        assert (one.number, one.text, one.warp) == (other.number, other.text, other.warp)
        assert one.filters == other.filters
    assert second.result().report["judged"] == whole.result().report["judged"]


def test_a_checkpoint_from_before_there_were_warps_is_gone_on_with(chosen: bytes) -> None:
    with np.load(io.BytesIO(chosen)) as parts:
        every = dict(parts)
    progress = json.loads(every["progress"].tobytes())
    for new in ("warped", "looked", "with_warp"):
        del progress[new]
    for one in progress["candidates"]:
        del one["warp"]
    every["progress"] = np.frombuffer(json.dumps(progress).encode(), np.uint8)
    target = io.BytesIO()
    np.savez(target, **every)
    one = after(target.getvalue())
    goes_on(one)
    assert one.result().report["formants"] != 1.0


@pytest.mark.parametrize(
    ("with_warp", "stays"),
    [
        (replace(PLAIN, similarity=PLAIN.similarity + 2 * WORTH), True),
        (replace(PLAIN, similarity=PLAIN.similarity + WORTH / 2), False),
        (replace(PLAIN, similarity=0.95, quality=3.2 - 2 * QUALITY_SLACK), False),
        (replace(PLAIN, similarity=0.95, error_rate=0.2), False),
        (replace(PLAIN, similarity=0.95, quality=None), False),
    ],
)
def test_a_warp_stays_where_it_is_heard_and_harms_nothing(
    with_warp: SelectionResult, stays: bool
) -> None:
    assert better(with_warp, PLAIN, STOCK, CONFIG.min_quality) is stays


def test_sentences_without_speech_say_nothing_of_formants(chosen: bytes) -> None:
    one = after(chosen)
    plain = Candidate("plain", (0.0,), (0.0,) * 14)
    outcomes = [outcome_of(trial) for trial in one.ask()]
    silent = [
        replace(outcome, duration_s=0.0, embeddings=np.zeros_like(outcome.embeddings), undone=())
        for outcome in outcomes
    ]
    assert warped(plain, silent, one.target) is None
    found = warped(plain, [*outcomes[1:], silent[0]], one.target)
    assert found is not None and found.warp in WARPS[1:]
    assert found.bands == pytest.approx((1.0,) * 14)
