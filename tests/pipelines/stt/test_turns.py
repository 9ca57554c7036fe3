"""Live sessions of a voice agent: the ends of its user's turns, by silence, by a scripted turn
detector, and by the client."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from configs.load import load_yaml
from configs.schema.transcription import ListeningConfig
from models.audio import Pcm
from models.errors import EngineLost, WeightsMissing
from models.stt.base import FINAL, SPECULATIVE
from pipelines.stt.decoding import SessionOptions
from pipelines.stt.endpointing import ManualTurns, SemanticTurns, SilenceTurns, TurnPolicy
from pipelines.stt.events import (
    EagerTranscript,
    FailedUtterance,
    LiveEvent,
    LiveSpeechStarted,
    LiveSpeechStopped,
    LiveTranscript,
    SpeechResumed,
)
from pipelines.stt.session import LiveSession, LiveTranscriptionPipeline
from pipelines.stt.turns import end_ms
from tests.patience import PATIENCE_S
from tests.pipelines.stt.listening_doubles import (
    FRAME,
    FakeTranscriber,
    LoudnessVAD,
    ScriptedTurnDetector,
    loud,
    quiet,
    transcript,
)

FRAME_S = FRAME / 16_000
STARTED, STOPPED, EAGER, RESUMED, FINAL_TEXT = (
    LiveSpeechStarted,
    LiveSpeechStopped,
    EagerTranscript,
    SpeechResumed,
    LiveTranscript,
)


class Conversation:
    """A session that hears audio a frame at a time, with all work done in between."""

    def __init__(
        self,
        turns: TurnPolicy,
        *answers: float,
        model: FakeTranscriber | None = None,
        expected_sounds: Callable[[str], str | None] | None = None,
    ) -> None:
        self.model = model or FakeTranscriber()
        self.detector = ScriptedTurnDetector(*answers)
        self.events: list[LiveEvent] = []
        pipeline = LiveTranscriptionPipeline(
            self.model,
            LoudnessVAD(),
            load_yaml(ListeningConfig, "listening"),
            lambda: self.detector,
        )
        options = SessionOptions(turns=turns, expected_sounds=expected_sounds)
        self.live = LiveSession(pipeline, options, self._emit)

    async def _emit(self, event: LiveEvent) -> None:
        await asyncio.sleep(0)  # as a socket that is busy
        self.events.append(event)

    async def __aenter__(self) -> "Conversation":
        self._running = asyncio.create_task(self.live.run())
        return self

    async def __aexit__(self, *raised: object) -> None:
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)
        await self.live.close()

    async def hear(self, *pieces: Pcm) -> None:
        pcm = np.concatenate(pieces)
        for at in range(0, len(pcm), FRAME):
            await self.live.accept_pcm(pcm[at : at + FRAME])
            await self.work()

    async def work(self) -> None:
        """Until nothing is left to do but to hear more."""
        for _ in range(20):
            await asyncio.sleep(0)
        while self.live._turn_judge._asking.locked():  # a thread
            await asyncio.sleep(0.001)
        for _ in range(20):
            await asyncio.sleep(0)

    async def heard_until_stopped(self, seconds: float) -> float | None:
        """The silence, in seconds, after which the turn ends."""
        for number in range(round(seconds / FRAME_S)):
            await self.hear(quiet(FRAME_S))
            if self.count(STOPPED):
                return (number + 1) * FRAME_S
        return None

    def count(self, kind: type[LiveEvent]) -> int:
        return sum(isinstance(event, kind) for event in self.events)

    @property
    def kinds(self) -> list[type[LiveEvent]]:
        return [type(event) for event in self.events]

    @property
    def finals(self) -> Sequence[LiveTranscript]:
        return [event for event in self.events if isinstance(event, LiveTranscript)]


async def test_a_turn_emits_eager_text_then_end_then_text() -> None:
    async with Conversation(SilenceTurns()) as user:
        await user.hear(quiet(1), loud(1), quiet(1))
    assert user.kinds == [STARTED, EAGER, STOPPED, FINAL_TEXT]
    started, eager, stopped, final = user.events
    assert isinstance(started, LiveSpeechStarted) and isinstance(stopped, LiveSpeechStopped)
    assert isinstance(eager, EagerTranscript) and isinstance(final, LiveTranscript)
    assert started.at_s == pytest.approx(1, abs=FRAME_S)
    assert started.starts_s == pytest.approx(0.7, abs=FRAME_S)
    assert stopped.at_s == pytest.approx(2, abs=FRAME_S)
    assert eager.text == final.text == "text 0"
    assert user.model.urgencies == [SPECULATIVE]


async def test_speech_after_a_likely_end_resumes_the_turn() -> None:
    async with Conversation(SilenceTurns()) as user:
        await user.hear(loud(1), quiet(0.4), loud(1), quiet(1))
    assert user.kinds == [STARTED, EAGER, RESUMED, EAGER, STOPPED, FINAL_TEXT]
    assert [final.text for final in user.finals] == ["text 1"]


async def test_the_end_of_a_turn_precedes_its_text_whatever_the_text_takes() -> None:
    async with Conversation(SilenceTurns()) as user:
        user.model.gate.clear()
        await user.hear(loud(1), quiet(1))
        assert user.kinds == [STARTED, STOPPED]  # nothing was ready while the end was uncertain
        user.model.gate.set()
        await user.work()
    assert user.kinds == [STARTED, STOPPED, FINAL_TEXT]


async def test_an_eager_text_that_is_late_is_dropped() -> None:
    async with Conversation(SilenceTurns()) as user:
        user.model.gate.clear()
        await user.hear(loud(1), quiet(0.3), loud(0.3))
        user.model.gate.set()
        await user.hear(quiet(1))
    assert user.kinds == [STARTED, RESUMED, EAGER, STOPPED, FINAL_TEXT]
    assert user.model.cancelled == [0]


async def test_silence_turns_take_their_silence_padding_and_threshold() -> None:
    async with Conversation(SilenceTurns(silence_ms=800, padding_ms=100)) as user:
        await user.hear(quiet(1), loud(1))
        assert await user.heard_until_stopped(2) == pytest.approx(0.8, abs=2 * FRAME_S)
    (started,) = (event for event in user.events if isinstance(event, LiveSpeechStarted))
    assert started.at_s - started.starts_s == pytest.approx(0.1)
    deaf = Conversation(SilenceTurns(threshold=1.1))
    async with deaf:
        await deaf.hear(loud(1), quiet(1))
    assert deaf.events == []


async def test_a_failed_decoding_has_no_eager_text() -> None:
    model = FakeTranscriber()
    model.errors = [EngineLost("gone"), EngineLost("gone again")]
    async with Conversation(SilenceTurns(), model=model) as user:
        await user.hear(loud(1), quiet(1))
    assert user.kinds == [STARTED, STOPPED, FailedUtterance]


async def test_a_turn_that_sounds_complete_ends_before_a_plain_silence_would() -> None:
    async with Conversation(SemanticTurns(), 0.99) as user:
        await user.hear(loud(1))
        waited = await user.heard_until_stopped(5)
        await user.work()
    assert waited is not None and waited < 0.3
    assert user.kinds == [STARTED, EAGER, STOPPED, FINAL_TEXT]
    (heard,) = user.detector.heard
    assert len(heard) / 16_000 == pytest.approx(1.064, abs=FRAME_S)  # with a short silence


async def test_a_turn_that_sounds_incomplete_waits_as_long_as_it_may() -> None:
    async with Conversation(SemanticTurns(longest_wait_ms=2000), 0.0) as user:
        await user.hear(loud(1))
        assert await user.heard_until_stopped(5) == pytest.approx(2, abs=2 * FRAME_S)


async def test_a_turn_waits_the_longer_the_less_complete_it_sounds() -> None:
    waits = [end_ms(complete, SemanticTurns()) for complete in (0.5, 0.3, 0.1, 0.01, 0.0)]
    assert waits == sorted(waits)
    assert waits[0] == SemanticTurns().shortest_wait_ms and waits[-2:] == [pytest.approx(4000)] * 2
    for never, always in ((1.0, 0.0), (0.01, 0.0), (0.005, 0.0)):
        assert end_ms(0.0, SemanticTurns(900, never)) == 900
        assert end_ms(0.0, SemanticTurns(900, always, 100)) == 100


async def test_a_text_that_looks_unfinished_is_waited_for_however_it_sounds() -> None:
    model = FakeTranscriber()
    model.answer = lambda number, request: transcript(number, request, "When the train arrives.")
    async with Conversation(SemanticTurns(), 0.99, model=model) as user:
        await user.hear(loud(1))
        waited = await user.heard_until_stopped(5)
    assert waited is not None and 2 < waited < 4


async def test_a_turn_that_sounds_complete_ends_when_its_text_is_known() -> None:
    async with Conversation(SemanticTurns(), 0.99) as user:
        user.model.gate.clear()
        await user.hear(loud(1), quiet(0.6))
        assert user.count(STOPPED) == 0
        user.model.gate.set()
        await user.work()
        await user.hear(quiet(FRAME_S))
        await user.work()
    assert user.kinds == [STARTED, EAGER, STOPPED, FINAL_TEXT]


async def test_a_short_sound_is_in_the_language_of_the_speech_before() -> None:
    expected = {"de": "Mhm. Ja."}
    async with Conversation(SilenceTurns(), expected_sounds=expected.get) as user:
        user.model.answer = lambda number, request: replace(
            transcript(number, request),
            language=request.language or "de",
            scores={} if request.language else {"de": 0.99},
        )
        await user.hear(loud(0.3), quiet(1), loud(2), quiet(1), loud(0.3), quiet(1), loud(2))
        await user.hear(quiet(1))
    asked = [(one.languages, one.options.prompt) for one in user.model.requests]
    assert asked == [((), ""), ((), ""), (("de",), "Mhm. Ja."), ((), "")]


async def test_a_completed_turn_ends_after_speech_resumed_however_it_was_judged_before() -> None:
    async with Conversation(SemanticTurns(), 0.0, 0.99) as user:
        await user.hear(loud(1), quiet(1.5), loud(1))
        assert user.count(STOPPED) == 0
        waited = await user.heard_until_stopped(5)
    assert waited is not None and waited < 0.3
    assert user.kinds[:5] == [STARTED, EAGER, RESUMED, EAGER, STOPPED]
    assert [len(pcm) / 16_000 for pcm in user.detector.heard] == pytest.approx([1.1, 3.6], abs=0.05)


async def test_a_turn_is_judged_before_it_is_decoded() -> None:
    """Both want the same cores: what is known early does not slow the text."""
    async with Conversation(SemanticTurns(), 0.99) as user:
        await user.hear(loud(32 * FRAME_S), quiet(2 * FRAME_S))
        assert len(user.detector.heard) == 1 and user.model.requests == []
        await user.hear(quiet(FRAME_S))
        assert len(user.detector.heard) == len(user.model.requests) == 1


async def test_a_too_short_pause_is_judged_again_at_the_next() -> None:
    async with Conversation(SemanticTurns(longest_wait_ms=2000), 0.99, 0.0) as user:
        await user.hear(loud(32 * FRAME_S), quiet(2 * FRAME_S), loud(32 * FRAME_S))
        assert await user.heard_until_stopped(5) == pytest.approx(2, abs=2 * FRAME_S)
    assert len(user.detector.heard) == 2 and len(user.model.requests) == 1


async def test_a_late_judgement_does_not_end_a_resumed_turn() -> None:
    async with Conversation(SemanticTurns(), 0.99, 0.0) as user:
        asked, gate = threading.Event(), threading.Event()
        answer = user.detector.completeness

        def slow(pcm: Pcm) -> float:
            asked.set()
            assert gate.wait(PATIENCE_S)
            return answer(pcm)

        user.detector.completeness = slow  # type: ignore[method-assign]
        await user.live.accept_pcm(np.concatenate([loud(1), quiet(0.2)]))
        assert await asyncio.to_thread(asked.wait, PATIENCE_S)
        await user.live.accept_pcm(np.concatenate([loud(0.5), quiet(0.2)]))
        gate.set()
        await user.work()
        await user.hear(quiet(1))
    assert user.count(STOPPED) == 0
    assert len(user.detector.heard) == 2


async def test_a_turn_detector_that_fails_leaves_the_end_to_silence(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Conversation(SemanticTurns(longest_wait_ms=1000)) as user:
        user.detector.error = WeightsMissing("none")
        await user.hear(loud(1))
        assert await user.heard_until_stopped(3) == pytest.approx(1, abs=2 * FRAME_S)
    assert "turn_detection_failed" in caplog.text


async def test_clicks_are_not_judged() -> None:
    async with Conversation(SemanticTurns()) as user:
        await user.hear(loud(0.064), quiet(1))
    assert user.detector.heard == [] and user.model.requests == []


async def test_manual_turns_end_with_a_commit_only() -> None:
    async with Conversation(ManualTurns()) as user:
        await user.hear(loud(1), quiet(8), loud(1), quiet(8))
        assert user.count(STOPPED) == 0
        await user.live.commit()
        await user.work()
        assert [final.text for final in user.finals] == ["text 1"]
        await user.hear(loud(1))
        await user.live.commit()
        await user.work()
    assert [final.text for final in user.finals] == ["text 1", "text 2"]
    assert user.model.urgencies == [SPECULATIVE, SPECULATIVE, FINAL]


async def test_only_the_last_text_of_a_manual_turn_is_uncut() -> None:
    async with Conversation(ManualTurns()) as user:
        await user.hear(loud(20), quiet(20), loud(5), quiet(40), loud(0.5))
        await user.live.commit()
        await user.work()
    assert [final.cut for final in user.finals] == [True] * (len(user.finals) - 1) + [False]
    assert [bool(final.text) for final in user.finals][:2] == [True, True]
    assert user.count(STOPPED) == user.count(STARTED) == 1


async def test_a_long_turn_is_split_in_a_pause_and_continues() -> None:
    async with Conversation(SilenceTurns()) as user:
        await user.hear(loud(27.7), quiet(0.4), loud(2))
        assert [final.cut for final in user.finals] == [True]
        assert user.count(STOPPED) == 0
        await user.hear(quiet(1))
        assert [final.cut for final in user.finals] == [True, False]
        ended = Conversation(SilenceTurns())
    async with ended:
        await ended.hear(loud(27.7), quiet(1))
    assert [(final.cut, bool(final.text)) for final in ended.finals] == [
        (True, True),
        (False, False),
    ]
    assert ended.count(STOPPED) == 1


@pytest.mark.parametrize("turns", [ManualTurns(), SilenceTurns(), SemanticTurns()])
async def test_a_commit_without_speech_has_one_empty_text(turns: TurnPolicy) -> None:
    async with Conversation(turns) as user:
        await user.live.commit()
        await user.hear(quiet(1))
        await user.live.commit()
        await user.work()
    assert [(final.text, final.cut) for final in user.finals] == [("", False)] * 2
    assert user.model.requests == []


async def test_a_commit_just_after_silence_has_one_text() -> None:
    async with Conversation(SilenceTurns()) as user:
        await user.hear(loud(1.024), quiet(0.48))
        await user.live.accept_pcm(quiet(0.02))  # with its padding the silence is long enough
        assert user.count(STOPPED) == 0
        await user.live.commit()
        await user.work()
    assert [final.text for final in user.finals] == ["text 0"]


@pytest.mark.parametrize("turns", [ManualTurns(), SilenceTurns(), SemanticTurns()])
@pytest.mark.parametrize("silence_s", [0.0, 0.2])
async def test_cleared_speech_is_forgotten(turns: TurnPolicy, silence_s: float) -> None:
    async with Conversation(turns, 0.0) as user:
        user.model.gate.clear()
        await user.hear(loud(1), quiet(silence_s))
        user.live.clear()
        user.model.gate.set()
        await user.hear(quiet(6))
        assert user.kinds == [STARTED]
        await user.hear(loud(1))
        await user.live.commit()
        await user.work()
    assert user.count(STARTED) == 2 and len(user.finals) == 1
    assert user.finals[0].duration_s == pytest.approx(1, abs=2 * FRAME_S)


async def test_clear_keeps_the_turns_that_have_ended() -> None:
    async with Conversation(SilenceTurns()) as user:
        user.model.gate.clear()
        await user.hear(loud(1), quiet(1))
        user.live.clear()
        user.model.gate.set()
        await user.work()
    assert user.kinds == [STARTED, STOPPED, FINAL_TEXT]


async def test_a_change_of_languages_in_a_pause_leaves_the_judgement() -> None:
    async with Conversation(SemanticTurns(), 0.99) as user:
        await user.live.accept_pcm(np.concatenate([loud(1), quiet(0.19)]))
        user.live.change_languages(("de",))
        await user.work()
        waited = await user.heard_until_stopped(2)
        await user.work()
    assert waited is not None and waited < 0.2
    assert [final.language for final in user.finals] == ["de"]
