"""Endpointing: the state machine of utterances, by examples and any probabilities."""

import math
from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from configs.load import load_yaml
from configs.schema.transcription import EndpointingConfig, ListeningConfig
from pipelines.stt.endpointing import (
    Endpointer,
    Event,
    LikelyEnd,
    Paused,
    Resumed,
    SpeechStarted,
    UtteranceEnded,
)

FRAME = 512
SPEECH, MAYBE, SILENCE = 0.9, 0.47, 0.1


@pytest.fixture
def config() -> EndpointingConfig:
    return load_yaml(ListeningConfig, "listening").endpointing


def play(
    config: EndpointingConfig,
    probabilities: Sequence[float],
    levels: Sequence[float] = (),
    end_ms: int = 500,
    pause_ms: float = math.inf,
) -> list[Event]:
    machine = Endpointer(config, FRAME, end_ms, pause_ms=pause_ms)
    levels = levels or [0.0] * len(probabilities)
    events = [
        event
        for probability, level in zip(probabilities, levels, strict=True)
        for event in machine.accept_frame(probability, level)
    ]
    return events + machine.finish()


def test_speech_starts_at_its_second_frame_and_ends_after_enough_silence(
    config: EndpointingConfig,
) -> None:
    started, likely, ended = play(config, [SILENCE] * 20 + [SPEECH] * 10 + [SILENCE] * 20)
    assert started == SpeechStarted(at=20 * FRAME, start=20 * FRAME - 4800)
    assert likely == LikelyEnd(started.start, 30 * FRAME, 35 * FRAME, 10)
    assert ended == UtteranceEnded(started.start, 20 * FRAME, 30 * FRAME, 35 * FRAME, 10)


def test_an_utterance_ends_at_the_first_frame_after_utterance_end_ms(
    config: EndpointingConfig,
) -> None:
    for end_ms in (300, 500, 1000):
        machine = Endpointer(config, FRAME, end_ms)
        for _ in range(10):
            machine.accept_frame(SPEECH, 0)
        frames = silence_until_end(machine)
        assert (frames - 1) * 32 < end_ms <= frames * 32


def test_a_single_speech_frame_starts_no_utterance(config: EndpointingConfig) -> None:
    assert play(config, [SILENCE, SPEECH] * 50) == []


def test_a_doubtful_frame_continues_an_utterance_but_does_not_start_one(
    config: EndpointingConfig,
) -> None:
    assert play(config, [MAYBE] * 100) == []
    events = play(config, [SPEECH] * 5 + [MAYBE] * 50 + [SPEECH] * 5)
    assert [type(event) for event in events] == [SpeechStarted, UtteranceEnded]


def test_speech_after_a_likely_end_resumes_the_utterance(config: EndpointingConfig) -> None:
    pause = [SILENCE] * 10
    events = play(config, [SPEECH] * 5 + pause + [SPEECH] * 5 + pause + [SILENCE] * 10)
    kinds = [SpeechStarted, LikelyEnd, Resumed, LikelyEnd, UtteranceEnded]
    assert [type(event) for event in events] == kinds


def test_each_long_pause_is_reported_once_before_the_likely_end(config: EndpointingConfig) -> None:
    pauses = [SILENCE] * 2, [SILENCE] * 1, [SILENCE] * 10
    signal = [p for pause in pauses for p in (*[SPEECH] * 5, *pause)]
    started, short, whole, likely, ended = play(config, signal, end_ms=300, pause_ms=64)
    assert isinstance(started, SpeechStarted)
    assert short == Paused(started.start, 7 * FRAME, 5)
    assert whole == Paused(started.start, 20 * FRAME, 15)
    assert isinstance(likely, LikelyEnd) and isinstance(ended, UtteranceEnded)
    assert play(config, signal, end_ms=300) == [started, likely, ended]


def test_a_click_in_the_silence_does_not_delay_the_endpoint(config: EndpointingConfig) -> None:
    silence = [SILENCE] * 20
    silence[12] = SPEECH
    plain = play(config, [SPEECH] * 10 + [SILENCE] * 20)
    assert play(config, [SPEECH] * 10 + silence) == plain


def test_speech_beginning_at_the_endpoint_resumes_the_utterance(config: EndpointingConfig) -> None:
    events = play(config, [SPEECH] * 5 + [SILENCE] * 15 + [SPEECH] * 5)
    assert [type(event) for event in events] == [SpeechStarted, LikelyEnd, Resumed, UtteranceEnded]


def test_a_long_utterance_is_cut_at_its_quietest_frame(config: EndpointingConfig) -> None:
    frames = 1000  # 32 s
    levels = [1.0] * frames
    for frame in (100, 700, 701, 702):
        levels[frame] = 0.0
    started, cut, ended = play(config, [SPEECH] * frames, levels)
    assert isinstance(started, SpeechStarted)
    assert isinstance(cut, UtteranceEnded) and isinstance(ended, UtteranceEnded)
    assert cut.cut and not ended.cut
    assert 701 * FRAME <= cut.end <= 702 * FRAME
    assert ended.start == cut.end
    assert cut.speech_frames + ended.speech_frames == frames


def test_inconsistent_endpointing_thresholds_are_refused(config: EndpointingConfig) -> None:
    for change in ({"silence_threshold": 0.6}, {"cut_search_s": 20.0}):
        with pytest.raises(ValidationError):
            EndpointingConfig.model_validate(config.model_dump() | change)


runs = st.lists(
    st.tuples(st.sampled_from([0.0, 0.4, 0.47, 0.5, 1.0]), st.integers(1, 60)), max_size=40
)


@given(
    runs=runs,
    frame=st.sampled_from([480, 512]),
    end_ms=st.sampled_from([300, 500, 3000, 30_000]),
    longest=st.sampled_from([2.0, 5.0, 28.0]),
    levels=st.randoms(use_true_random=False),
)
def test_endpointing_events_alternate_and_cover_all_speech_exactly_once(
    runs: list[tuple[float, int]], frame: int, end_ms: int, longest: float, levels: Random
) -> None:
    config = load_yaml(ListeningConfig, "listening").endpointing
    config = config.model_copy(update={"max_utterance_s": longest, "cut_search_s": longest / 3})
    probabilities = [probability for probability, count in runs for _ in range(count)]
    machine = Endpointer(config, frame, end_ms)
    events: list[Event] = []
    for number, probability in enumerate(probabilities, 1):
        new = machine.accept_frame(probability, levels.random())
        for event in new:
            if isinstance(event, LikelyEnd | UtteranceEnded):
                assert event.end <= number * frame
        events += new
        assert machine.keep_from <= number * frame
    events += machine.finish()
    state, free_from, start, likely = "silence", 0, 0, 0
    spans: list[tuple[int, int]] = []
    for event in events:
        match event:
            case SpeechStarted():
                assert state == "silence" and free_from <= event.start <= event.at
                start, state = event.start, "speech"
            case LikelyEnd():
                assert state == "speech" and event.start == start
                likely, state = event.end, "doubt"
            case Resumed():
                assert state == "doubt"
                state = "speech"
            case UtteranceEnded():
                assert state in ("speech", "doubt") and event.start == start
                assert event.start <= event.speech_start <= event.speech_end <= event.end
                assert 0 < event.end - event.start <= (longest + 0.1) * 16_000
                assert state == "speech" or event.end == likely
                spans.append((event.start, event.end))
                free_from = event.end
                start, state = (event.end, "speech") if event.cut else (start, "silence")
    assert state == "silence"
    for (_, end), (start, _) in zip(spans, spans[1:], strict=False):
        assert end <= start
    heard: set[int] = set()
    for start, end in spans:
        heard |= set(range(-(-start // frame), end // frame))
    for first in range(len(probabilities) - 1):  # two frames of speech are an utterance
        if probabilities[first] >= 0.5 and probabilities[first + 1] >= 0.5:
            cut = {(end // frame) for _, end in spans}
            assert first in heard or first in cut


def silence_until_end(machine: Endpointer) -> int:
    """The frames of silence after which the utterance ends."""
    frames = 1
    while not any(isinstance(one, UtteranceEnded) for one in machine.accept_frame(SILENCE, 0)):
        frames += 1
    return frames


def test_end_after_changes_the_silence_of_one_utterance(config: EndpointingConfig) -> None:
    machine = Endpointer(config, FRAME, 4000)
    for wait_ms, expected in ((None, 125), (200, 7), (1000, 32), (None, 125)):
        for frame in [SPEECH] * 10 + [SILENCE] * 5:
            machine.accept_frame(frame, 0)
        if wait_ms is not None:
            machine.end_after(wait_ms)
        assert silence_until_end(machine) == expected - 5


def test_end_after_is_void_once_speech_resumes(config: EndpointingConfig) -> None:
    machine = Endpointer(config, FRAME, 1000)
    for frame in [SPEECH] * 10 + [SILENCE] * 5:
        machine.accept_frame(frame, 0)
    machine.end_after(250)
    events = [event for _ in range(3) for event in machine.accept_frame(SPEECH, 0)]
    assert events == [Resumed()]
    assert silence_until_end(machine) == 32


def test_an_end_already_due_comes_at_the_next_frame(config: EndpointingConfig) -> None:
    machine = Endpointer(config, FRAME, 4000)
    for frame in [SPEECH] * 10 + [SILENCE] * 20:
        machine.accept_frame(frame, 0)
    machine.end_after(200)
    (ended,) = machine.accept_frame(SILENCE, 0)
    assert isinstance(ended, UtteranceEnded)
    assert ended.speech_end == 10 * FRAME


def test_reset_forgets_the_utterance_and_what_was_before_it(config: EndpointingConfig) -> None:
    machine = Endpointer(config, FRAME, 500)
    for frame in [SILENCE] * 5 + [SPEECH] * 10 + [SILENCE] * 6:
        machine.accept_frame(frame, 0)
    machine.end_after(4000)
    machine.reset()
    assert machine.finish() == [] and not machine.speaking
    assert machine.keep_from == 21 * FRAME
    events = [event for _ in range(2) for event in machine.accept_frame(SPEECH, 0)]
    assert events == [SpeechStarted(at=21 * FRAME, start=21 * FRAME)]  # no earlier padding
    assert silence_until_end(machine) == 16


def test_whole_turns_are_cut_in_pauses_and_end_by_silence(config: EndpointingConfig) -> None:
    machine = Endpointer(config, FRAME, 500, whole_turns=True)
    frames = [SPEECH] * 868 + [SILENCE] * 30  # the limit of 28 s comes in the silence
    events = [event for frame in frames for event in machine.accept_frame(frame, 0)]
    kinds = [SpeechStarted, LikelyEnd, UtteranceEnded, LikelyEnd, UtteranceEnded]
    assert [type(event) for event in events] == kinds
    first, last = (event for event in events if isinstance(event, UtteranceEnded))
    assert (first.cut, first.speech_frames) == (True, 868)
    assert (last.cut, last.speech_frames, last.start) == (False, 0, first.end)
