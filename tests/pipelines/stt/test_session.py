"""Live sessions over a detector and a recogniser that do as they are told."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import numpy as np
import pytest

from configs.load import load_yaml
from configs.schema.transcription import ListeningConfig
from models.audio import Pcm
from models.errors import EngineLost, UnsupportedLanguage
from models.stt.base import FINAL, INTERIM, SPECULATIVE, Transcript, TranscriptionRequest
from pipelines.errors import InvalidRequest
from pipelines.stt.session import (
    FailedUtterance,
    LiveEvent,
    LiveSession,
    LiveSpeechStarted,
    LiveTranscript,
    LiveTranscriptionPipeline,
    SessionOptions,
)
from tests.pipelines.stt.listening_doubles import (
    LoudnessVAD,
    ToldTranscriber,
    loud,
    quiet,
    transcript,
)

STEP = 960  # 60 ms


@pytest.fixture
def told() -> ToldTranscriber:
    return ToldTranscriber()


class Live:
    """A session and what it told."""

    def __init__(self, listener: LiveSession, events: list[LiveEvent]) -> None:
        self.listener = listener
        self.events = events

    async def hear(self, *pieces: Pcm) -> None:
        pcm = np.concatenate(pieces)
        for at in range(0, len(pcm), STEP):
            await self.listener.accept_pcm(pcm[at : at + STEP])
            for _ in range(8):
                await asyncio.sleep(0)

    @property
    def finals(self) -> list[LiveTranscript]:
        return [event for event in self.events if isinstance(event, LiveTranscript) and event.final]

    @property
    def interims(self) -> list[LiveTranscript]:
        return [
            event for event in self.events if isinstance(event, LiveTranscript) and not event.final
        ]


@asynccontextmanager
async def listening(
    told: ToldTranscriber, options: SessionOptions | None = None, **limits: float
) -> AsyncIterator[Live]:
    config = load_yaml(ListeningConfig, "listening")
    changed = config.limits.model_copy(update=limits)
    config = config.model_copy(update={"limits": changed})
    events: list[LiveEvent] = []

    async def emit(event: LiveEvent) -> None:
        events.append(event)

    pipeline = LiveTranscriptionPipeline(told, LoudnessVAD(), config)
    listener = LiveSession(pipeline, options or SessionOptions(), emit)
    task = asyncio.create_task(listener.run())
    try:
        yield Live(listener, events)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await listener.close()
        assert not listener._tasks


async def test_a_text_is_ready_when_the_utterance_ends(told: ToldTranscriber) -> None:
    async with listening(told) as live:
        await live.hear(quiet(1), loud(1), quiet(0.4))
        assert told.urgencies == [SPECULATIVE]
        assert live.events == [LiveSpeechStarted(31 * 512 / 16_000)]
        await live.hear(quiet(0.2))
        (final,) = live.finals
        assert told.urgencies == [SPECULATIVE]
        assert (final.text, final.language, final.sentence_id) == ("text 0", "en", 1)
        assert final.start_s == pytest.approx(1, abs=0.04)
        assert final.duration_s == pytest.approx(1, abs=0.07)
        assert final.confidence == pytest.approx(np.exp(-0.1))
        assert final.words[0].start == pytest.approx(1, abs=0.04)  # after 0.3 s of pre-roll


async def test_a_text_is_doubted_only_as_long_as_it_is_in_time(told: ToldTranscriber) -> None:
    options = SessionOptions(utterance_end_ms=800)
    async with listening(told, options, retry_within_s=0.1) as live:
        await live.hear(loud(1), quiet(1))
        await live.listener.accept_pcm(loud(1))
        await live.listener.finish()
    early, late = told.requests
    assert (early.urgency, late.urgency) == (SPECULATIVE, FINAL)
    assert early.retry_within_s == pytest.approx(0.8 - 0.16 + 0.1, abs=0.04)
    assert late.retry_within_s == pytest.approx(0.1)


async def test_speech_that_goes_on_throws_the_early_text_away(told: ToldTranscriber) -> None:
    told.gate.clear()
    async with listening(told) as live:
        await live.hear(loud(1), quiet(0.3), loud(1), quiet(0.3))
        assert told.cancelled == [0]
        told.gate.set()
        await live.hear(quiet(0.5))
        assert [final.text for final in live.finals] == ["text 1"]
        assert told.urgencies == [SPECULATIVE, SPECULATIVE]
        assert len(told.requests[1].pcm) == pytest.approx(2.46 * 16_000, abs=1100)


async def test_interims_come_at_their_pace_and_before_their_final(told: ToldTranscriber) -> None:
    async with listening(told, SessionOptions(interim_ms=300)) as live:
        await live.hear(loud(2), quiet(1))
    assert told.urgencies == [INTERIM] * 5 + [SPECULATIVE]
    assert [event.sentence_id for event in live.interims] == [1] * 5
    assert not any(request.options.words for request in told.requests[:5])
    assert live.events[-1] == live.finals[0]
    durations = [interim.duration_s for interim in live.interims]
    assert durations == sorted(durations)


async def test_a_late_interim_is_dropped(told: ToldTranscriber) -> None:
    told.gate.clear()
    async with listening(told, SessionOptions(interim_ms=300)) as live:
        await live.hear(loud(2))
        assert told.urgencies == [INTERIM]  # the others would have been too many
        await live.hear(quiet(1))
        assert told.cancelled == [0]
        told.gate.set()
        await live.listener.finish()
        assert live.interims == []
        assert len(live.finals) == 1


async def test_no_interim_passes_a_text_that_is_still_to_come(told: ToldTranscriber) -> None:
    told.gate.clear()
    async with listening(told, SessionOptions(interim_ms=300)) as live:
        await live.hear(loud(0.2), quiet(1), loud(2))
        assert live.finals == []
        assert told.urgencies == [SPECULATIVE]
        told.gate.set()
        await live.hear(loud(0.5))
        told_ids = [event.sentence_id for event in live.events if isinstance(event, LiveTranscript)]
        assert told_ids[0] == 1 and set(told_ids[1:]) == {2}


async def test_finals_come_in_the_order_of_their_utterances(told: ToldTranscriber) -> None:
    gates = [asyncio.Event() for _ in range(3)]
    told.gate = gates[0]
    async with listening(told) as live:
        for number in range(3):
            told.gate = gates[number]
            await live.hear(loud(1), quiet(1))
        gates[2].set()
        gates[1].set()
        await asyncio.sleep(0.01)
        assert live.finals == []
        gates[0].set()
        await live.listener.finish()
        assert [final.text for final in live.finals] == ["text 0", "text 1", "text 2"]
        assert [final.sentence_id for final in live.finals] == [1, 2, 3]


async def test_stopping_gives_the_text_of_what_was_said_so_far(told: ToldTranscriber) -> None:
    async with listening(told) as live:
        await live.hear(quiet(0.5), loud(0.705))
        await live.listener.finish()
        assert [final.text for final in live.finals] == ["text 0"]
        assert told.urgencies == [FINAL]
        assert len(told.requests[0].pcm) == pytest.approx((0.3 + 0.705) * 16_000, abs=1024)


async def test_a_lost_replica_gets_one_more_try(told: ToldTranscriber) -> None:
    told.errors = [EngineLost("gone")]
    async with listening(told) as live:
        await live.hear(loud(1), quiet(1))
        assert told.urgencies == [SPECULATIVE, FINAL]
        assert [final.text for final in live.finals] == ["text 1"]


async def test_an_error_is_told_and_the_next_utterance_is_heard(told: ToldTranscriber) -> None:
    told.errors = [EngineLost("gone"), EngineLost("gone again")]
    async with listening(told) as live:
        await live.hear(loud(1), quiet(1), loud(1), quiet(1))
        failed = [event for event in live.events if isinstance(event, FailedUtterance)]
        assert [(event.sentence_id, str(event.error)) for event in failed] == [(1, "gone again")]
        assert [final.sentence_id for final in live.finals] == [2]


async def test_an_error_that_would_come_again_is_not_tried_again(told: ToldTranscriber) -> None:
    told.errors = [UnsupportedLanguage("no")]
    async with listening(told) as live:
        await live.hear(loud(1), quiet(1))
        assert isinstance(live.events[-1], FailedUtterance)
        assert len(told.requests) == 1


async def test_a_recogniser_that_hangs_is_an_error(told: ToldTranscriber) -> None:
    told.gate.clear()
    async with listening(told, decode_timeout_s=0.02) as live:
        await live.hear(loud(1), quiet(1))
        await live.listener.finish()
        assert isinstance(live.events[-1], FailedUtterance)


async def test_silence_and_clicks_are_not_decoded(told: ToldTranscriber) -> None:
    async with listening(told) as live:
        await live.hear(quiet(3), loud(0.06), quiet(1))
        await live.listener.finish()
        assert told.requests == []
        assert [final.text for final in live.finals] == [""]


async def test_a_rejected_text_is_an_empty_final(told: ToldTranscriber) -> None:
    def reject(number: int, request: TranscriptionRequest) -> Transcript:
        texts = [
            "",
            "Thanks for watching!",
            "Thanks for watching!",
            "Thanks for watching!",
            "Guten Tag",
        ]
        if number == 0:
            return Transcript("de", 0.5)
        plain = transcript(number, request, texts[number], -0.1 if number == 3 else -0.9)
        if number == 4:
            return Transcript("de", 0.001, plain.segments)
        return plain

    told.answer = reject
    async with listening(told) as live:
        for seconds in (1, 0.5, 2, 0.5, 2):  # nothing, a phantom, thrice believed, wrong language
            await live.hear(loud(seconds), quiet(1))
        believed = [bool(final.text) for final in live.finals]
        assert believed == [False, False, True, True, False]
        empty = live.finals[0]
        assert (empty.language, empty.confidence, empty.words) == ("de", 0.0, ())


async def test_long_speech_is_told_in_sentences_without_a_gap(told: ToldTranscriber) -> None:
    async with listening(told) as live:
        await live.hear(loud(60), quiet(1))
        assert [final.cut for final in live.finals] == [True, True, False]
        assert [final.sentence_id for final in live.finals] == [1, 2, 3]
        lengths = [len(request.pcm) for request in told.requests]
        assert max(lengths) <= 28.1 * 16_000
        assert sum(lengths) == pytest.approx(60.2 * 16_000, abs=2048)
        assert sum(isinstance(event, LiveSpeechStarted) for event in live.events) == 1


async def test_languages_reach_the_recogniser_and_can_change(told: ToldTranscriber) -> None:
    async with listening(told, SessionOptions(languages=("de",))) as live:
        await live.hear(loud(1), quiet(0.3))
        live.listener.change_languages(("en", "de"))
        await live.hear(quiet(0.4))
        live.listener.change_languages(())
        await live.hear(loud(1), quiet(1))
        asked = [(request.language, request.languages) for request in told.requests]
        assert asked == [("de", ("de",)), (None, ("en", "de")), (None, ())]
        assert told.urgencies == [SPECULATIVE, FINAL, SPECULATIVE]
        assert len(live.finals) == 2


async def test_new_languages_leave_no_interim_of_the_old_ones(told: ToldTranscriber) -> None:
    told.gate.clear()
    async with listening(told, SessionOptions(interim_ms=300)) as live:
        await live.hear(loud(1))
        live.listener.change_languages(("de",))
        told.gate.set()
        await live.hear(loud(1), quiet(1))
        assert told.cancelled == [0]
        assert {event.language for event in live.interims + live.finals} == {"de"}


@pytest.mark.parametrize(("probability", "expected"), [(0.9, "de"), (0.3, None)])
async def test_the_next_utterance_is_expected_in_the_language_of_the_last(
    told: ToldTranscriber, probability: float, expected: str | None
) -> None:
    told.answer = lambda number, request: replace(
        transcript(number, request), language="de", language_probability=probability
    )
    async with listening(told) as live:
        await live.hear(loud(1), quiet(1), loud(1), quiet(1))
        live.listener.change_languages(("de", "en"))
        await live.hear(loud(1), quiet(1))
    assert [request.expected for request in told.requests] == [None, expected, None]


async def test_a_language_is_the_likelier_the_longer_it_was_spoken(told: ToldTranscriber) -> None:
    languages = ["de", "de", "en", "en"]
    told.answer = lambda number, request: replace(
        transcript(number, request), language=languages[number], language_probability=0.9
    )
    async with listening(told) as live:
        await live.hear(*[loud(1), quiet(1)] * 4)
    heard = [(request.expected, request.expected_times) for request in told.requests]
    assert heard == [(None, 1), ("de", 1), ("de", 2), ("en", 1)]


async def test_the_next_interim_waits_until_the_client_has_read_the_last(
    told: ToldTranscriber,
) -> None:
    read = asyncio.Event()
    interims = 0

    async def emit(event: LiveEvent) -> None:
        nonlocal interims
        if isinstance(event, LiveTranscript) and not event.final:
            interims += 1
            await read.wait()

    pipeline = LiveTranscriptionPipeline(
        told, LoudnessVAD(), load_yaml(ListeningConfig, "listening")
    )
    live = Live(LiveSession(pipeline, SessionOptions(interim_ms=300), emit), [])
    await live.hear(loud(2), quiet(0.3))
    assert told.urgencies == [INTERIM, SPECULATIVE]
    read.set()
    await live.hear(loud(0.5))
    assert interims > 1
    await live.listener.close()


async def test_the_names_of_languages_are_those_of_the_engine(told: ToldTranscriber) -> None:
    pipeline = LiveTranscriptionPipeline(
        told, LoudnessVAD(), load_yaml(ListeningConfig, "listening")
    )
    assert await pipeline.engine_languages(("de-AT", "jv", "DE")) == ("de", "jw")
    with pytest.raises(InvalidRequest, match="languages: 'xx'"):
        await pipeline.engine_languages(("xx",))


async def test_audio_waits_while_too_much_is_undecoded(told: ToldTranscriber) -> None:
    told.gate.clear()
    async with listening(told, backlog_s=5) as live:
        hearing = asyncio.create_task(live.hear(*[loud(3), quiet(1)] * 8))
        await asyncio.sleep(0.3)
        assert not hearing.done()
        assert len(told.requests) <= 3
        told.gate.set()
        await hearing
        await live.listener.finish()
        assert len(live.finals) == 8


async def test_audio_that_comes_at_once_is_heard_as_if_it_came_in_time(
    told: ToldTranscriber,
) -> None:
    speech = np.concatenate([quiet(1), loud(1), quiet(1), loud(2), quiet(1)])
    async with listening(told) as live:
        await live.hear(speech)
        slow = [(final.sentence_id, final.start_s, final.duration_s) for final in live.finals]
    async with listening(told) as live:
        await live.listener.accept_pcm(speech)
        await live.listener.finish()
        fast = [(final.sentence_id, final.start_s, final.duration_s) for final in live.finals]
    assert fast == slow
    assert len(fast) == 2


async def test_a_session_keeps_only_the_audio_that_it_needs(told: ToldTranscriber) -> None:
    async with listening(told) as live:
        await live.hear(quiet(5), loud(1), quiet(10))
        assert len(live.listener._frames._kept) * 512 < 16_000
