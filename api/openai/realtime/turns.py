"""The user's turns in a Realtime session: a pure machine from what is recognised to effects.

While a response is in progress, heard or not yet, speech of the user only holds it: it is an
interruption when words come that are neither a back-channel nor an echo, else the agent goes on.
Work of the language model on a text that may still grow is thrown away, unpaid, when it does.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from api.http.errors import to_api_error
from api.openai.realtime import server_events as events
from api.openai.realtime.server_events import ServerEvent, new_id
from pipelines.agents.interruption import EXPECTED, Heard, interrupts
from pipelines.agents.items import Item, Part
from pipelines.stt.events import (
    EagerTranscript,
    FailedUtterance,
    LiveEvent,
    LiveSpeechStarted,
    LiveSpeechStopped,
    LiveTranscript,
    SpeechResumed,
)
from pipelines.stt.formatting import separator_of

NEW_WORDS = 2  # that the language model reads ahead at once
# Between interims. While they decide whether the user interrupts, the sooner the better; later they
# only show the text, and each takes the cores for 0.1 s, which the text at the end would wait for.
JUDGING_MS = 300
SHOWING_MS = 600


@dataclass(frozen=True, slots=True)
class CommitItem:
    """Adds an utterance to the conversation."""

    item: Item


@dataclass(frozen=True, slots=True)
class SetTranscript:
    """Gives an utterance of the conversation its text."""

    item: Item
    text: str
    audio_ms: int


@dataclass(frozen=True, slots=True)
class Interrupt:
    """Cancels a response, and waits for its last event."""

    response_id: str


@dataclass(frozen=True, slots=True)
class ReadAhead:
    """Has the language model read how a turn begins."""

    text: str


@dataclass(frozen=True, slots=True)
class BeginDraft:
    """Begins the answer to a text that is not certain yet."""

    turn_id: str
    text: str


@dataclass(frozen=True, slots=True)
class DropDraft:
    """Discards the draft of a turn."""

    turn_id: str


@dataclass(frozen=True, slots=True)
class Respond:
    """Begins a response to the last item, with the draft of a turn if one fits."""

    draft_of: str | None = None


Effect: TypeAlias = (
    ServerEvent
    | CommitItem
    | SetTranscript
    | Interrupt
    | ReadAhead
    | BeginDraft
    | DropDraft
    | Respond
)
Effects: TypeAlias = Iterator[Effect]


@dataclass(slots=True, eq=False)
class UserTurn:
    """One utterance of the user."""

    item_id: str
    start_ms: int
    began_at: float  # by the clock of items
    is_announced: bool = False
    end_ms: int | None = None
    item: Item | None = None  # when it is committed
    draft: str | None = None  # the text that it answers
    holds: str | None = None  # a response, until it is known whether this turn interrupts it
    shown: list[str] = field(default_factory=list)  # words that were sent as deltas
    last: list[str] = field(default_factory=list)  # words of the last interim
    words_read: int = 0  # by the language model
    parts: list[LiveTranscript] = field(default_factory=list)  # of a long one, which was cut


@dataclass(frozen=True, slots=True)
class TurnOptions:
    """How a session treats the user's turns."""

    creates_response: bool = True
    interrupts: bool = True
    transcribes: bool = False  # sends transcripts
    wants_logprobs: bool = False
    is_manual: bool = False  # the client commits turns
    from_s: float = 0.0  # of the session, where times of transcripts begin


class UserTurns:
    """The turn in progress, and those that wait for their text.

    Each method returns what is to be done, in order; the machine does nothing itself.
    """

    def __init__(
        self,
        make_id: Callable[[str], str] = new_id,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.options = TurnOptions()
        self._make_id = make_id
        self._clock = clock
        self._turn: UserTurn | None = None
        self._ended: list[UserTurn] = []  # without their final text, in order
        self._response_id: str | None = None  # in progress, in the conversation

    @property
    def is_open(self) -> bool:
        """Whether the user is speaking."""
        return self._turn is not None

    @property
    def holds_response(self) -> bool:
        """Whether a turn holds the response in progress, so that nothing more of it is heard."""
        turns = (*self._ended, *filter(None, (self._turn,)))
        response_id = self._response_id
        return response_id is not None and any(turn.holds == response_id for turn in turns)

    @property
    def is_settled(self) -> bool:
        """Whether no turn waits for its text."""
        return not self._ended

    def expected_sounds(self, language: str) -> str | None:
        """What the user is likely to say, while it is not certain that the agent is interrupted."""
        return EXPECTED.get(language) if self._is_judging else None

    def interim_ms(self) -> int:
        """Milliseconds between two hypotheses of the text, while the user speaks."""
        return JUDGING_MS if self._is_judging else SHOWING_MS

    def accept(self, event: LiveEvent, spoken: str = "") -> list[Effect]:
        """Takes an event of the recognition; `spoken` are the last words of the agent."""
        match event:
            case LiveSpeechStarted():
                effects = self._start(event)
            case LiveSpeechStopped():
                effects = self._stop(event)
            case EagerTranscript():
                effects = self._expect_end(event, spoken)
            case SpeechResumed():
                effects = self._resume()
            case LiveTranscript():
                effects = self._finish(event, spoken) if event.final else self._hear(event, spoken)
            case FailedUtterance():
                effects = self._fail(event)
        return [*effects]

    def commit(self) -> list[Effect]:
        """Ends a turn that the client commits, in a session that does not detect them."""
        turn = self._new_turn(start_ms=0)
        turn.is_announced = True
        self._ended.append(turn)
        return [self._commit(turn)]

    def clear(self) -> list[Effect]:
        """Forgets the turn in progress."""
        turn = self._turn
        self._turn = None
        return [*self._drop_draft(turn)] if turn is not None else []

    def close(self) -> list[Effect]:
        """Forgets all turns: the session ends, or listens in another way."""
        drafts = [effect for turn in self._ended for effect in self._drop_draft(turn)]
        self._ended.clear()
        return [*drafts, *self.clear()]

    def idle(self, start_ms: int, end_ms: int) -> list[Effect]:
        """Takes the user's silence between two times for an empty turn."""
        if self._turn is not None or self._ended or self._response_id is not None:
            return []
        item = Item(self._make_id("item"), "message", "user", [Part("input_audio")])
        timeout = events.IdleTimeoutTriggered(
            item_id=item.id, audio_start_ms=start_ms, audio_end_ms=end_ms
        )
        return [timeout, CommitItem(item), *([Respond()] if self.options.creates_response else ())]

    def response_began(self, response_id: str, *, is_automatic: bool) -> None:
        """Notes the response in progress. If the user has spoken again already, the turn holds one
        that the client did not ask for."""
        self._response_id = response_id
        turn = self._turn or (self._ended[-1] if self._ended else None)
        if is_automatic and turn is not None and self.options.interrupts:
            turn.holds = response_id

    def response_ended(self, response_id: str) -> None:
        """Notes the end of a response, in the conversation or not."""
        if self._response_id == response_id:
            self._response_id = None

    @property
    def _is_judging(self) -> bool:
        turn = self._turn
        if turn is None:
            return False
        response_id = self._response_id
        return not turn.is_announced or (response_id is not None and turn.holds == response_id)

    def _start(self, event: LiveSpeechStarted) -> Effects:
        if self.options.is_manual:
            return
        self._turn = turn = self._new_turn(self._ms(event.starts_s))
        if self._response_id is not None and self.options.interrupts:
            turn.holds = self._response_id
        else:
            yield self._announce(turn)

    def _stop(self, event: LiveSpeechStopped) -> Effects:
        """The utterance has ended, perhaps before its text is known."""
        turn = self._turn
        if turn is None or self.options.is_manual:
            return
        self._turn = None
        turn.end_ms = self._ms(event.at_s)
        self._ended.append(turn)
        if turn.is_announced:
            yield from self._end(turn)

    def _hear(self, interim: LiveTranscript, spoken: str) -> Effects:
        """The beginning of the text, perhaps wrong."""
        turn = self._turn
        if turn is None:
            return
        heard = Heard(interim.text, interim.confidence, interim.duration_s, is_over=False)
        yield from self._judge(turn, heard, spoken)
        if not turn.is_announced:
            return
        if self.options.creates_response:
            yield from self._read_ahead(turn, interim.text)
        if self.options.transcribes:
            yield from self._show(turn, interim.text)

    def _expect_end(self, eager: EagerTranscript, spoken: str) -> Effects:
        """The text, if the user says no more."""
        turn = self._turn
        if turn is None or not eager.text:
            return
        yield from self._judge(turn, Heard(eager.text, eager.confidence, eager.duration_s), spoken)
        if turn.is_announced and self.options.creates_response:
            yield from self._drop_draft(turn)
            if self._response_id is None:
                turn.draft = eager.text
                yield BeginDraft(turn.item_id, eager.text)

    def _resume(self) -> Effects:
        if self._turn is not None:
            yield from self._drop_draft(self._turn)

    def _finish(self, final: LiveTranscript, spoken: str) -> Effects:
        """The text of the oldest turn, or of the first part of a long one."""
        turn = self._ended[0] if self._ended else self._turn
        if turn is None:
            return
        turn.parts.append(final)
        if final.cut:
            return
        text = separator_of(final.language).join(part.text for part in turn.parts if part.text)
        speech_s = sum(part.duration_s for part in turn.parts)
        yield from self._judge(turn, Heard(text, final.confidence, speech_s), spoken)
        if turn.is_announced:
            yield from self._transcribe(turn, text, speech_s)
        self._forget(turn)  # without words, or a back-channel, or an echo
        if turn.is_announced and text and self.options.creates_response:
            is_answered = turn.draft == text
            if is_answered:
                turn.draft = None
            yield Respond(turn.item_id if is_answered else None)
        yield from self._drop_draft(turn)

    def _fail(self, event: FailedUtterance) -> Effects:
        """The recogniser has no text for the oldest turn that ended."""
        if not self._ended:
            return
        turn = self._ended[0]
        self._forget(turn)
        yield from self._drop_draft(turn)
        if turn.item is not None:
            fault = to_api_error(event.error)
            error = {"type": "server_error", "code": fault.code, "message": fault.message}
            yield events.TranscriptionFailed(item_id=turn.item_id, error=error)

    def _judge(self, turn: UserTurn, heard: Heard, spoken: str) -> Effects:
        """Interrupts the agent when the speech does."""
        response_id = self._response_id
        if turn.is_announced and (response_id is None or turn.holds != response_id):
            return
        if response_id is None:
            if heard.text:
                yield self._announce(turn)  # the agent has ended meanwhile
        elif interrupts(heard, spoken):
            if not turn.is_announced:
                yield self._announce(turn)
            self._response_id = None
            yield Interrupt(response_id)

    def _announce(self, turn: UserTurn) -> Effect:
        turn.is_announced = True
        return events.UserSpeechStarted(item_id=turn.item_id, audio_start_ms=turn.start_ms)

    def _end(self, turn: UserTurn) -> Effects:
        if turn.end_ms is not None:
            yield events.UserSpeechStopped(item_id=turn.item_id, audio_end_ms=turn.end_ms)
        yield self._commit(turn)

    def _commit(self, turn: UserTurn) -> Effect:
        parts = [Part("input_audio")]
        turn.item = Item(turn.item_id, "message", "user", parts, began_at=turn.began_at)
        return CommitItem(turn.item)

    def _read_ahead(self, turn: UserTurn, text: str) -> Effects:
        """Lets the language model read the words before the last, which may be cut off."""
        words = text.split()[:-1]
        if len(words) >= turn.words_read + NEW_WORDS:
            turn.words_read = len(words)
            if self._response_id is None:
                yield ReadAhead(" ".join(words))

    def _show(self, turn: UserTurn, text: str) -> Effects:
        """Sends the words that two interims agree on, without the last: text that was sent is never
        taken back (LocalAgreement-2, Liu et al. 2020)."""
        words = text.split()
        before = turn.last
        turn.last = words
        agreed = 0
        while agreed < min(len(words), len(before)) and words[agreed] == before[agreed]:
            agreed += 1
        stable = words[: min(agreed, len(words) - 1)]
        if len(stable) > len(turn.shown) and stable[: len(turn.shown)] == turn.shown:
            delta = (" " if turn.shown else "") + " ".join(stable[len(turn.shown) :])
            turn.shown = stable
            yield events.TranscriptionDelta(item_id=turn.item_id, delta=delta)

    def _transcribe(self, turn: UserTurn, text: str, seconds: float) -> Effects:
        """Adds the text to the item, and sends it."""
        if turn.item is None:  # announced only now
            yield from self._end(turn)
        assert turn.item is not None
        yield SetTranscript(turn.item, text, round(seconds * 1000))
        if not self.options.transcribes:
            return
        shown = " ".join(turn.shown)
        if text.startswith(shown) and text != shown:
            yield events.TranscriptionDelta(item_id=turn.item_id, delta=text[len(shown) :])
        for utterance in (utterance for part in turn.parts for utterance in part.turns):
            yield events.TranscriptionSegment(
                item_id=turn.item_id,
                text=utterance.text,
                speaker=utterance.speaker,
                start=round(utterance.start + self.options.from_s, 3),
                end=round(utterance.end + self.options.from_s, 3),
            )
        yield events.TranscriptionCompleted(
            item_id=turn.item_id,
            transcript=text,
            usage={"type": "duration", "seconds": round(seconds, 3)},
            logprobs=_logprobs(turn.parts) if self.options.wants_logprobs else None,
        )

    def _new_turn(self, start_ms: int) -> UserTurn:
        return UserTurn(self._make_id("item"), start_ms, began_at=self._clock())

    def _forget(self, turn: UserTurn) -> None:
        if turn in self._ended:
            self._ended.remove(turn)

    def _drop_draft(self, turn: UserTurn) -> Effects:
        if turn.draft is not None:
            turn.draft = None
            yield DropDraft(turn.item_id)

    def _ms(self, at_s: float) -> int:
        return round((self.options.from_s + at_s) * 1000)


def _logprobs(parts: Iterable[LiveTranscript]) -> list[dict[str, object]]:
    """The recogniser's probability of each word, in place of tokens."""
    return [
        {
            "token": word.word,
            "logprob": math.log(max(word.confidence, 1e-6)),
            "bytes": list(word.word.encode()),
        }
        for part in parts
        for word in part.words
    ]
