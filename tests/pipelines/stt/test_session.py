"""Live sessions with a VAD by loudness and a scripted recogniser."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import numpy as np
import pytest

from configs.load import load_yaml
from configs.schema.transcription import ListeningConfig
from models.audio import Pcm, resample
from models.errors import EngineLost, UnsupportedLanguage
from models.registry import STT, VAD
from models.stt.base import (
    FINAL,
    INTERIM,
    SPECULATIVE,
    STT_SAMPLE_RATE,
    Transcript,
    TranscriptionRequest,
)
from models.stt.options import RecognitionOptions, TranscriptStyle
from models.tts.base import SynthesisRequest
from pipelines.errors import InvalidRequest
from pipelines.stt.decoding import SessionOptions
from pipelines.stt.endpointing import ManualTurns, SilenceTurns
from pipelines.stt.events import FailedUtterance, LiveEvent, LiveSpeechStarted, LiveTranscript
from pipelines.stt.session import LiveSession, LiveTranscriptionPipeline
from pipelines.text.usual_language import UsualLanguages
from tests.local_ports import LocalSTTModel
from tests.models.configured import configured, described
from tests.models.tts.loaded import loaded, speech
from tests.patience import until
from tests.pipelines.stt.listening_doubles import (
    FakeTranscriber,
    LoudnessVAD,
    loud,
    quiet,
    transcript,
)

STEP = 960  # 60 ms


@pytest.fixture
def model() -> FakeTranscriber:
    return FakeTranscriber()


class Live:
    """A session and the events that it emitted."""

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
    model: FakeTranscriber,
    options: SessionOptions | None = None,
    usual: UsualLanguages | None = None,
    **limits: float,
) -> AsyncIterator[Live]:
    config = load_yaml(ListeningConfig, "listening")
    changed = config.limits.model_copy(update=limits)
    config = config.model_copy(update={"limits": changed})
    events: list[LiveEvent] = []

    async def emit(event: LiveEvent) -> None:
        events.append(event)

    pipeline = LiveTranscriptionPipeline(
        model, LoudnessVAD(), config, usual_languages=usual or UsualLanguages()
    )
    listener = LiveSession(pipeline, options or SessionOptions(), emit)
    task = asyncio.create_task(listener.run())
    try:
        yield Live(listener, events)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await listener.close()
        assert not listener._tasks


async def test_the_speculative_transcript_becomes_the_final(model: FakeTranscriber) -> None:
    async with listening(model) as live:
        await live.hear(quiet(1), loud(1), quiet(0.4))
        assert model.urgencies == [SPECULATIVE]
        start = 31 * 512
        assert live.events == [LiveSpeechStarted(start / 16_000, (start - 4800) / 16_000)]
        await live.hear(quiet(0.2))
        (final,) = live.finals
        assert model.urgencies == [SPECULATIVE]
        assert (final.text, final.language, final.sentence_id) == ("text 0", "en", 1)
        assert final.start_s == pytest.approx(1, abs=0.04)
        assert final.duration_s == pytest.approx(1, abs=0.07)
        assert final.confidence == pytest.approx(np.exp(-0.1))
        assert final.words[0].start == pytest.approx(1, abs=0.04)  # after 0.3 s of pre-roll


async def test_the_recogniser_knows_where_someone_speaks(model: FakeTranscriber) -> None:
    options = SessionOptions(utterance_end_ms=1000, interim_ms=300)
    async with listening(model, options) as live:
        await live.hear(quiet(1), loud(1), quiet(0.6), loud(2), quiet(1.5))
    by_urgency = {request.urgency: request for request in model.requests}
    assert by_urgency[INTERIM].speech == ()
    asked = by_urgency[SPECULATIVE]
    spans_s = [(start / 16_000, end / 16_000) for start, end in asked.speech]
    assert spans_s == [pytest.approx((0.3, 1.3), abs=0.05), pytest.approx((1.9, 3.9), abs=0.05)]
    assert asked.speech[-1][1] <= len(asked.pcm)


@pytest.mark.parametrize(("pause_s", "spans"), [(0.1, 0), (0.6, 2)])
async def test_an_agent_looks_for_missed_speech_only_at_pauses(
    model: FakeTranscriber, pause_s: float, spans: int
) -> None:
    options = SessionOptions(recognition=RecognitionOptions(), turns=SilenceTurns(silence_ms=1000))
    async with listening(model, options) as live:
        await live.hear(quiet(1), loud(1), quiet(pause_s), loud(1), quiet(1.5))
    assert len(model.requests[-1].speech) == spans


async def test_speculative_requests_may_retry_until_the_endpoint(model: FakeTranscriber) -> None:
    options = SessionOptions(utterance_end_ms=800)
    async with listening(model, options, retry_within_s=0.1) as live:
        await live.hear(loud(1), quiet(1))
        await live.listener.accept_pcm(loud(1))
        await live.listener.finish()
    early, late = model.requests
    assert (early.urgency, late.urgency) == (SPECULATIVE, FINAL)
    assert early.retry_within_s == pytest.approx(0.8 - 0.16 + 0.1, abs=0.04)
    assert late.retry_within_s == pytest.approx(0.1)


async def test_resumed_speech_cancels_the_speculative_transcript(model: FakeTranscriber) -> None:
    model.gate.clear()
    async with listening(model) as live:
        await live.hear(loud(1), quiet(0.3), loud(1), quiet(0.3))
        assert model.cancelled == [0]
        model.gate.set()
        await live.hear(quiet(0.5))
        assert [final.text for final in live.finals] == ["text 1"]
        assert model.urgencies == [SPECULATIVE, SPECULATIVE]
        assert len(model.requests[1].pcm) == pytest.approx(2.46 * 16_000, abs=1100)


async def test_resumed_speech_makes_the_speculative_transcript_an_interim(
    model: FakeTranscriber,
) -> None:
    model.gate.clear()
    async with listening(model, SessionOptions(interim_ms=300)) as live:
        await live.hear(loud(0.2), quiet(0.3), loud(0.2))
        assert model.urgencies == [SPECULATIVE] and model.cancelled == []
        model.gate.set()
        await live.hear(loud(0.2), quiet(1))
        assert [(event.text, event.sentence_id) for event in live.interims][0] == ("text 0", 1)
        assert len(live.finals) == 1


async def test_interims_come_at_their_interval_before_the_final(model: FakeTranscriber) -> None:
    async with listening(model, SessionOptions(interim_ms=300)) as live:
        await live.hear(loud(2), quiet(1))
    assert model.urgencies == [INTERIM] * 5 + [SPECULATIVE]
    assert [event.sentence_id for event in live.interims] == [1] * 5
    assert not any(request.options.words for request in model.requests[:5])
    assert live.events[-1] == live.finals[0]
    durations = [interim.duration_s for interim in live.interims]
    assert durations == sorted(durations)


async def test_finals_begin_with_the_committed_text_of_their_interims(
    model: FakeTranscriber,
) -> None:
    def answer(number: int, request: TranscriptionRequest) -> Transcript:
        text = (
            f"It was {'said' * (number > 1)} {number}" if request.urgency == INTERIM else "Is wet"
        )
        return transcript(number, request, text)

    model.answer = answer
    async with listening(model, SessionOptions(interim_ms=300)) as live:
        await live.hear(loud(2), quiet(1))
        commits = [event.committed for event in live.interims]
        assert commits[:4] == ["", "It was", "It was", "It was said"]
        (final,) = live.finals
        assert final.text.startswith(commits[-1])
        assert final.committed == final.text


async def test_a_rejected_utterance_has_its_committed_text(model: FakeTranscriber) -> None:
    def answer(number: int, request: TranscriptionRequest) -> Transcript:
        heard = transcript(number, request, "It was there")
        return heard if request.urgency == INTERIM else replace(heard, segments=())

    model.answer = answer
    async with listening(model, SessionOptions(interim_ms=300)) as live:
        await live.hear(loud(2), quiet(1))
        assert [final.text for final in live.finals] == ["It was"]


async def test_a_client_drops_all_parts_of_the_turn_in_progress(model: FakeTranscriber) -> None:
    async with listening(model, SessionOptions(turns=ManualTurns())) as live:
        await live.hear(loud(30))  # it is cut after 28 s
        assert live.listener.clear() == range(1, 3)
        await live.hear(loud(1))
        assert await live.listener.commit() == 3
        await live.hear(loud(1))
        assert live.listener.clear() == range(4, 5)
        assert not live.listener.clear()


async def test_a_late_interim_is_dropped(model: FakeTranscriber) -> None:
    model.gate.clear()
    async with listening(model, SessionOptions(interim_ms=300)) as live:
        await live.hear(loud(2))
        assert model.urgencies == [INTERIM]  # one at a time
        await live.hear(quiet(1))
        assert model.cancelled == [0]
        model.gate.set()
        await live.listener.finish()
        assert live.interims == []
        assert len(live.finals) == 1


async def test_interims_wait_for_the_final_of_the_last_utterance(model: FakeTranscriber) -> None:
    model.gate.clear()
    async with listening(model, SessionOptions(interim_ms=300)) as live:
        await live.hear(loud(0.2), quiet(1), loud(2))
        assert live.finals == []
        assert model.urgencies == [SPECULATIVE]
        model.gate.set()
        await live.hear(loud(0.5))
        ids = [event.sentence_id for event in live.events if isinstance(event, LiveTranscript)]
        assert ids[0] == 1 and set(ids[1:]) == {2}


async def test_finals_come_in_the_order_of_their_utterances(model: FakeTranscriber) -> None:
    gates = [asyncio.Event() for _ in range(3)]
    model.gate = gates[0]
    async with listening(model) as live:
        for number in range(3):
            model.gate = gates[number]
            await live.hear(loud(1), quiet(1))
        gates[2].set()
        gates[1].set()
        await asyncio.sleep(0.01)
        assert live.finals == []
        gates[0].set()
        await live.listener.finish()
        assert [final.text for final in live.finals] == ["text 0", "text 1", "text 2"]
        assert [final.sentence_id for final in live.finals] == [1, 2, 3]


async def test_finish_transcribes_the_unfinished_utterance(model: FakeTranscriber) -> None:
    async with listening(model) as live:
        await live.hear(quiet(0.5), loud(0.705))
        await live.listener.finish()
        assert [final.text for final in live.finals] == ["text 0"]
        assert model.urgencies == [FINAL]
        assert len(model.requests[0].pcm) == pytest.approx((0.3 + 0.705) * 16_000, abs=1024)


async def test_times_stay_those_of_the_audio_after_many_commits(model: FakeTranscriber) -> None:
    async with listening(model) as live:
        heard = 0
        for _ in range(20):  # no piece is a whole number of frames
            await live.hear(quiet(0.117), loud(0.5), quiet(0.1))
            await live.listener.commit()
            await until(lambda: not live.listener._backlog_s)
            assert live.finals[-1].start_s == pytest.approx(heard / 16_000 + 0.117, abs=0.033)
            heard += round(0.717 * 16_000)
        assert len(live.finals) == 20
        assert live.listener.unheard_s(heard / 16_000) < 0.033


async def test_commits_within_speech_lose_and_repeat_none_of_it(model: FakeTranscriber) -> None:
    speech = np.linspace(0.2, 0.9, 79_992, dtype=np.float32) * np.sign(loud(5)[:79_992])
    async with listening(model) as live:
        for at in range(0, len(speech), 9_999):
            await live.hear(speech[at : at + 9_999])
            await live.listener.commit()
        await live.listener.finish()
    pieces = [request.pcm[np.abs(request.pcm) > 0.1] for request in model.requests]
    assert np.array_equal(np.concatenate(pieces), speech)


async def test_speech_directly_after_a_commit_has_the_audio_before_it(
    model: FakeTranscriber,
) -> None:
    async with listening(model) as live:
        await live.hear(quiet(1.005))
        await live.listener.commit()
        await live.hear(loud(0.5), quiet(1))
        assert live.finals[-1].start_s == pytest.approx(1.005, abs=0.033)
        (request,) = model.requests
        assert np.flatnonzero(request.pcm)[0] / 16_000 == pytest.approx(0.3, abs=0.033)


async def test_a_request_to_a_lost_replica_is_retried_once(model: FakeTranscriber) -> None:
    model.errors = [EngineLost("gone")]
    async with listening(model) as live:
        await live.hear(loud(1), quiet(1))
        assert model.urgencies == [SPECULATIVE, FINAL]
        assert [final.text for final in live.finals] == ["text 1"]


async def test_a_repeated_error_fails_only_its_utterance(model: FakeTranscriber) -> None:
    model.errors = [EngineLost("gone"), EngineLost("gone again")]
    async with listening(model) as live:
        await live.hear(loud(1), quiet(1), loud(1), quiet(1))
        failed = [event for event in live.events if isinstance(event, FailedUtterance)]
        assert [(event.sentence_id, str(event.error)) for event in failed] == [(1, "gone again")]
        assert [final.sentence_id for final in live.finals] == [2]


async def test_a_permanent_error_is_not_retried(model: FakeTranscriber) -> None:
    model.errors = [UnsupportedLanguage("no")]
    async with listening(model) as live:
        await live.hear(loud(1), quiet(1))
        assert isinstance(live.events[-1], FailedUtterance)
        assert len(model.requests) == 1


async def test_a_recogniser_timeout_fails_the_utterance(model: FakeTranscriber) -> None:
    model.gate.clear()
    async with listening(model, decode_timeout_s=0.02) as live:
        await live.hear(loud(1), quiet(1))
        await live.listener.finish()
        assert isinstance(live.events[-1], FailedUtterance)


async def test_silence_and_clicks_are_not_transcribed(model: FakeTranscriber) -> None:
    async with listening(model) as live:
        await live.hear(quiet(3), loud(0.06), quiet(1))
        await live.listener.finish()
        assert model.requests == []
        assert [final.text for final in live.finals] == [""]


async def test_a_hallucinated_transcript_is_an_empty_final(model: FakeTranscriber) -> None:
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

    model.answer = reject
    async with listening(model) as live:
        for seconds in (1, 0.5, 2, 0.5, 2):  # empty, rejected, long, confident, wrong language
            await live.hear(loud(seconds), quiet(1))
        accepted = [bool(final.text) for final in live.finals]
        assert accepted == [False, False, True, True, False]
        empty = live.finals[0]
        assert (empty.language, empty.confidence, empty.words) == ("de", 0.0, ())


async def test_long_speech_is_cut_into_finals_without_a_gap(model: FakeTranscriber) -> None:
    async with listening(model) as live:
        await live.hear(loud(60), quiet(1))
        assert [final.cut for final in live.finals] == [True, True, False]
        assert [final.sentence_id for final in live.finals] == [1, 2, 3]
        lengths = [len(request.pcm) for request in model.requests]
        assert max(lengths) <= 28.1 * 16_000
        assert sum(lengths) == pytest.approx(60.2 * 16_000, abs=2048)
        assert sum(isinstance(event, LiveSpeechStarted) for event in live.events) == 1


async def test_the_engine_gets_all_options_of_the_caller(model: FakeTranscriber) -> None:
    options = RecognitionOptions(
        languages=("de",),
        words=True,
        keyterms=("Antiphon",),
        no_speech_threshold=0.4,
        form=TranscriptStyle(numerals=True),
    )
    async with listening(model, SessionOptions(options)) as live:
        await live.hear(loud(1), quiet(1))
        assert [request.options for request in model.requests] == [options]


async def test_languages_reach_the_recogniser_and_can_change(model: FakeTranscriber) -> None:
    async with listening(model, SessionOptions(RecognitionOptions(languages=("de",)))) as live:
        await live.hear(loud(1), quiet(0.3))
        live.listener.change_languages(("en", "de"))
        await live.hear(quiet(0.4))
        live.listener.change_languages(())
        await live.hear(loud(1), quiet(1))
        asked = [(request.language, request.languages) for request in model.requests]
        assert asked == [("de", ("de",)), (None, ("en", "de")), (None, ())]
        assert model.urgencies == [SPECULATIVE, FINAL, SPECULATIVE]
        assert len(live.finals) == 2


async def test_a_change_of_languages_drops_interims_in_progress(model: FakeTranscriber) -> None:
    model.gate.clear()
    async with listening(model, SessionOptions(interim_ms=300)) as live:
        await live.hear(loud(1))
        live.listener.change_languages(("de",))
        model.gate.set()
        await live.hear(loud(1), quiet(1))
        assert model.cancelled == [0]
        assert {event.language for event in live.interims + live.finals} == {"de"}


@pytest.mark.parametrize(("probability", "expected"), [(0.99, "de"), (0.3, None)])
async def test_the_next_utterance_is_expected_in_the_language_of_the_last(
    model: FakeTranscriber, probability: float, expected: str | None
) -> None:
    scores = {"de": probability, "en": 0.3 * (1 - probability)}
    model.answer = lambda number, request: replace(
        transcript(number, request), language="de", scores=scores
    )
    async with listening(model) as live:
        await live.hear(loud(2), quiet(1), loud(0.4), quiet(1))
        live.listener.change_languages(("en", "de"))
        await live.hear(loud(1), quiet(1))
    first, second, changed = model.requests
    assert (first.prior, changed.expected) == ({}, "en")
    weights = second.prior
    assert second.expected == "de"
    is_sure = weights["de"] > 1000 * weights.get("en", 1.0)
    assert is_sure == (expected == "de")


async def test_a_workspace_that_speaks_one_language_begins_with_it(model: FakeTranscriber) -> None:
    model.answer = lambda number, request: replace(
        transcript(number, request), language="de", scores={"de": 0.99}
    )
    usual = UsualLanguages()
    for owner in ("1", "1", "1", "1", "2"):
        async with listening(model, SessionOptions(owner=owner), usual) as live:
            await live.hear(loud(2), quiet(1))
    assert [one.expected for one in model.requests] == [None, None, None, "de", None]


async def test_the_next_interim_waits_until_the_client_has_read_the_last(
    model: FakeTranscriber,
) -> None:
    read = asyncio.Event()
    interims = 0

    async def emit(event: LiveEvent) -> None:
        nonlocal interims
        if isinstance(event, LiveTranscript) and not event.final:
            interims += 1
            await read.wait()

    pipeline = LiveTranscriptionPipeline(
        model, LoudnessVAD(), load_yaml(ListeningConfig, "listening")
    )
    live = Live(LiveSession(pipeline, SessionOptions(interim_ms=300), emit), [])
    await live.hear(loud(2), quiet(0.3))
    assert model.urgencies == [INTERIM, SPECULATIVE]
    read.set()
    await live.hear(loud(0.5))
    assert interims > 1
    await live.listener.close()


async def test_language_tags_are_mapped_to_codes_of_the_engine(model: FakeTranscriber) -> None:
    pipeline = LiveTranscriptionPipeline(
        model, LoudnessVAD(), load_yaml(ListeningConfig, "listening")
    )
    assert await pipeline.engine_languages(("de-AT", "jv", "DE")) == ("de", "jw")
    with pytest.raises(InvalidRequest, match="languages: 'xx'"):
        await pipeline.engine_languages(("xx",))


async def test_a_full_backlog_applies_backpressure_to_audio(model: FakeTranscriber) -> None:
    model.gate.clear()
    async with listening(model, backlog_s=5) as live:
        hearing = asyncio.create_task(live.hear(*[loud(3), quiet(1)] * 8))
        await asyncio.sleep(0.3)
        assert not hearing.done()
        assert len(model.requests) <= 3
        model.gate.set()
        await hearing
        await live.listener.finish()
        assert len(live.finals) == 8


async def test_audio_in_one_burst_is_transcribed_like_audio_in_real_time(
    model: FakeTranscriber,
) -> None:
    speech = np.concatenate([quiet(1), loud(1), quiet(1), loud(2), quiet(1)])
    async with listening(model) as live:
        await live.hear(speech)
        slow = [(final.sentence_id, final.start_s, final.duration_s) for final in live.finals]
    async with listening(model) as live:
        await live.listener.accept_pcm(speech)
        await live.listener.finish()
        fast = [(final.sentence_id, final.start_s, final.duration_s) for final in live.finals]
    assert fast == slow
    assert len(fast) == 2


async def test_a_session_drops_audio_that_it_no_longer_needs(model: FakeTranscriber) -> None:
    async with listening(model) as live:
        await live.hear(quiet(5), loud(1), quiet(10))
        assert len(live.listener._frames._kept) * 512 < 16_000


@pytest.mark.slow
@pytest.mark.weights
async def test_short_turns_stay_in_the_language_of_the_sentence_before() -> None:
    engine, _ = loaded("kokoro")
    texts = "Caminamos junto al río hasta que oscureció.", "Lucía.", "Sí.", "Doce."
    pipeline = LiveTranscriptionPipeline(
        LocalSTTModel(*described(STT, "whisper_base")),
        configured(VAD, "silero"),
        load_yaml(ListeningConfig, "listening"),
    )
    events: list[LiveEvent] = []

    async def emit(event: LiveEvent) -> None:
        events.append(event)

    session = LiveSession(pipeline, SessionOptions(), emit)
    running = asyncio.create_task(session.run())
    for text in texts:
        pcm = speech(engine, SynthesisRequest(text=text, voice="ef_dora", language="es"))
        heard = resample(pcm, engine.capabilities.sample_rate, STT_SAMPLE_RATE)
        await session.accept_pcm(np.concatenate([quiet(0.5), heard, quiet(1)]))
        await session._ended.join()
    await session.finish()
    running.cancel()
    await session.close()
    finals = [one for one in events if isinstance(one, LiveTranscript) and one.final and one.text]
    assert len(finals) == len(texts) and {final.language for final in finals} == {"es"}
