"""The user's turns in a Realtime session: a pure state machine from recognition events to effects.

Speech of the user first only pauses a response in progress. Words that are neither a back-channel
nor an echo interrupt it; otherwise it continues. The language model may begin to answer before the
user's text is final; if the text then changes, that work is discarded, free of charge.
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

NEW_WORDS = 2  # minimum number of new words for which the language model reads ahead again
# Time between interims. Interims that decide about an interruption should come early. Interims that
# are only displayed come less often, since each takes all cores for 0.1 s, which delays finals.
JUDGING_MS = 300
DISPLAY_MS = 600


@dataclass(frozen=True, slots=True)
class CommitItem:
    """Adds an utterance to the conversation."""

    item: Item


@dataclass(frozen=True, slots=True)
class SetTranscript:
    """Sets the text of an utterance in the conversation."""

    item: Item
    text: str
    audio_ms: int


@dataclass(frozen=True, slots=True)
class Interrupt:
    """Cancels a response, and waits for its last event."""

    response_id: str


@dataclass(frozen=True, slots=True)
class ReadAhead:
    """Lets the language model read the beginning of a turn ahead."""

    text: str


@dataclass(frozen=True, slots=True)
class BeginDraft:
    """Begins the answer to a text that is not final yet."""

    turn_id: str
    text: str


@dataclass(frozen=True, slots=True)
class DropDraft:
    """Discards the draft of a turn."""

    turn_id: str


@dataclass(frozen=True, slots=True)
class Respond:
    """Begins a response to the last item, from the draft of the turn `draft_of` if it is set."""

    draft_of: str | None = None


@dataclass(frozen=True, slots=True)
class Forgive:
    """Takes audio whose text is withheld out of the charge."""

    seconds: float


Effect: TypeAlias = (
    ServerEvent
    | CommitItem
    | SetTranscript
    | Interrupt
    | ReadAhead
    | BeginDraft
    | DropDraft
    | Respond
    | Forgive
)
Effects: TypeAlias = Iterator[Effect]


@dataclass(slots=True, eq=False)
class UserTurn:
    item_id: str
    start_ms: int
    began_at: float  # seconds, by the clock of `Item.began_at`
    is_announced: bool = False  # whether the client knows of the turn
    end_ms: int | None = None
    item: Item | None = None  # set when the turn is committed
    draft: str | None = None  # the text that a draft answers
    holds: str | None = None  # id of the response that waits to see if this turn interrupts it
    sent_words: list[str] = field(default_factory=list)  # sent as deltas
    last_words: list[str] = field(default_factory=list)  # words of the last interim
    words_read: int = 0  # number of words that the language model has read ahead
    parts: list[LiveTranscript] = field(default_factory=list)  # finals: one, or several


@dataclass(frozen=True, slots=True)
class TurnOptions:
    """How a session treats the user's turns."""

    creates_response: bool = True
    interrupts: bool = True
    transcribes: bool = False  # the client gets transcripts
    wants_logprobs: bool = False
    is_manual: bool = False  # the client commits turns
    from_s: float = 0.0  # session time at which the recognition's times begin


class UserTurns:
    """The turn in progress, and the ended turns that wait for their text. Methods change only
    this state; they return effects, which the caller carries out in order."""

    def __init__(
        self, make_id: Callable[[str], str] = new_id, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.options = TurnOptions()
        self._make_id = make_id
        self._clock = clock
        self._turn: UserTurn | None = None
        self._ended: list[UserTurn] = []  # turns that wait for their final text, oldest first
        # Parts of an utterance whose last part is still to come. Only then is its turn known, since
        # a client may commit a turn before the speech that it has cleared is recognised.
        self._parts: list[LiveTranscript | FailedUtterance] = []
        self._cleared: set[int] = set()  # sentence_ids of speech that the client has cleared
        self._response_id: str | None = None  # the response in progress in the conversation

    @property
    def is_open(self) -> bool:
        """Whether the user is speaking."""
        return self._turn is not None

    @property
    def holds_response(self) -> bool:
        """Whether a turn holds the response in progress, whose speech then pauses."""
        turns = (*self._ended, *filter(None, (self._turn,)))
        response_id = self._response_id
        return response_id is not None and any(turn.holds == response_id for turn in turns)

    @property
    def is_settled(self) -> bool:
        """Whether no turn waits for its text."""
        return not self._ended

    def expected_sounds(self, language: str) -> str | None:
        """Returns a prompt of likely back-channels while an interruption is undecided."""
        return EXPECTED.get(language) if self._is_judging else None

    def interim_ms(self) -> int:
        """Returns the milliseconds between two interims while the user speaks."""
        return JUDGING_MS if self._is_judging else DISPLAY_MS

    def accept(self, event: LiveEvent, spoken: str = "") -> list[Effect]:
        """Takes a recognition event; `spoken` is what the agent has said in the last seconds."""
        effects: Effects = iter(())
        match event:
            case LiveTranscript() | FailedUtterance() if event.sentence_id in self._cleared:
                pass
            case LiveSpeechStarted():
                effects = self._start(event)
            case LiveSpeechStopped():
                effects = self._stop(event)
            case EagerTranscript():
                effects = self._expect_end(event, spoken)
            case SpeechResumed() if self._turn is not None:
                effects = self._drop_draft(self._turn)
            case LiveTranscript() if not event.final:
                effects = self._take_interim(event, spoken)
            case LiveTranscript() | FailedUtterance():
                effects = self._take_final(event, spoken)
        return [*effects]

    def commit(self) -> list[Effect]:
        """Ends a turn that the client commits, in a session without turn detection."""
        turn = self._new_turn(start_ms=0)
        turn.is_announced = True
        self._ended.append(turn)
        return [self._commit(turn)]

    def clear(self, sentence_ids: range) -> list[Effect]:
        """Drops the turn in progress, with the texts of its parts that have come or will come."""
        self._cleared.update(sentence_ids)
        self._parts = [part for part in self._parts if part.sentence_id not in sentence_ids]
        turn = self._turn
        self._turn = None
        return [*self._drop_draft(turn)] if turn is not None else []

    def close(self) -> list[Effect]:
        """Drops all turns, since the session ends or its settings change."""
        drafts = [effect for turn in self._ended for effect in self._drop_draft(turn)]
        self._ended.clear()
        self._parts.clear()
        self._cleared.clear()
        return [*drafts, *self.clear(range(0))]

    def idle(self, start_ms: int, end_ms: int) -> list[Effect]:
        """Commits the user's silence from `start_ms` to `end_ms` as an empty turn."""
        if self._turn is not None or self._ended or self._response_id is not None:
            return []
        item = Item(self._make_id("item"), "message", "user", [Part("input_audio")])
        timeout = events.IdleTimeoutTriggered(
            item_id=item.id, audio_start_ms=start_ms, audio_end_ms=end_ms
        )
        return [timeout, CommitItem(item), *([Respond()] if self.options.creates_response else ())]

    def response_began(self, response_id: str, *, is_automatic: bool) -> None:
        """Notes the response in progress. If it is automatic, not requested by the client, a turn
        that the user has already begun holds it."""
        self._response_id = response_id
        turn = self._turn or (self._ended[-1] if self._ended else None)
        if is_automatic and turn is not None and self.options.interrupts:
            turn.holds = response_id

    def response_ended(self, response_id: str) -> None:
        """Notes the end of a response, in or outside the conversation."""
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
        """Ends the utterance, whose text may still be unknown."""
        turn = self._turn
        if turn is None or self.options.is_manual:
            return
        self._turn = None
        turn.end_ms = self._ms(event.at_s)
        self._ended.append(turn)
        if turn.is_announced:
            yield from self._end(turn)

    def _take_interim(self, interim: LiveTranscript, spoken: str) -> Effects:
        """Takes the beginning of the text, which may still change."""
        turn = self._turn
        if turn is None:
            return
        speech = Heard(interim.text, interim.confidence, interim.duration_s, is_over=False)
        yield from self._judge(turn, speech, spoken)
        if not turn.is_announced:
            return
        if self.options.creates_response:
            yield from self._read_ahead(turn, interim.text)
        if self.options.transcribes:
            yield from self._show(turn, interim.text)

    def _expect_end(self, eager: EagerTranscript, spoken: str) -> Effects:
        """Takes the text that the turn will have if the user says no more."""
        turn = self._turn
        if turn is None or not eager.text:
            return
        yield from self._judge(turn, Heard(eager.text, eager.confidence, eager.duration_s), spoken)
        if turn.is_announced and self.options.creates_response:
            yield from self._drop_draft(turn)
            if self._response_id is None:
                turn.draft = eager.text
                yield BeginDraft(turn.item_id, eager.text)

    def _take_final(self, last: LiveTranscript | FailedUtterance, spoken: str) -> Effects:
        """Takes the final text, or the failure, of the next part of the oldest ended turn. A turn
        that lacks a part is neither answered nor charged."""
        self._parts.append(last)
        if last.cut:
            return
        parts = self._parts
        self._parts = []
        if not self._ended:
            return
        turn = self._ended[0]
        turn.parts = [part for part in parts if isinstance(part, LiveTranscript)]
        for part in parts:
            if isinstance(part, FailedUtterance):
                yield from self._fail(turn, part)
                return
        final = turn.parts[-1]
        text = separator_of(final.language).join(part.text for part in turn.parts if part.text)
        speech_s = sum(part.duration_s for part in turn.parts)
        yield from self._judge(turn, Heard(text, final.confidence, speech_s), spoken)
        if turn.is_announced:
            yield from self._transcribe(turn, text, speech_s)
        self._ended.remove(turn)
        if turn.is_announced and text and self.options.creates_response:
            is_answered = turn.draft == text
            if is_answered:
                turn.draft = None
            yield Respond(turn.item_id if is_answered else None)
        yield from self._drop_draft(turn)

    def _fail(self, turn: UserTurn, failure: FailedUtterance) -> Effects:
        """Reports that the recogniser failed for a turn, whose other parts are free, too."""
        self._ended.remove(turn)
        if turn.parts:
            yield Forgive(sum(part.audio_s for part in turn.parts))
        yield from self._drop_draft(turn)
        if turn.item is not None:
            fault = to_api_error(failure.error)
            error = {"type": "server_error", "code": fault.code, "message": fault.message}
            yield events.TranscriptionFailed(item_id=turn.item_id, error=error)

    def _judge(self, turn: UserTurn, speech: Heard, spoken: str) -> Effects:
        """Interrupts the agent if the user's speech is an interruption."""
        response_id = self._response_id
        if turn.is_announced and (response_id is None or turn.holds != response_id):
            return
        if response_id is None:
            if speech.text:
                yield self._announce(turn)  # the response has ended in the meantime
        elif interrupts(speech, spoken):
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
        """Lets the language model read all words but the last, which may be cut off."""
        words = text.split()[:-1]
        if len(words) >= turn.words_read + NEW_WORDS:
            turn.words_read = len(words)
            if self._response_id is None:
                yield ReadAhead(" ".join(words))

    def _show(self, turn: UserTurn, text: str) -> Effects:
        """Sends the words on which two interims agree, except the last word. Words that were sent
        never change (LocalAgreement-2, Liu et al. 2020)."""
        words = text.split()
        before = turn.last_words
        turn.last_words = words
        agreed = 0
        while agreed < min(len(words), len(before)) and words[agreed] == before[agreed]:
            agreed += 1
        stable = words[: min(agreed, len(words) - 1)]
        sent = turn.sent_words
        if len(stable) > len(sent) and stable[: len(sent)] == sent:
            delta = (" " if sent else "") + " ".join(stable[len(sent) :])
            turn.sent_words = stable
            yield events.TranscriptionDelta(item_id=turn.item_id, delta=delta)

    def _transcribe(self, turn: UserTurn, text: str, seconds: float) -> Effects:
        """Sets the item's text, and sends the transcript."""
        if turn.item is None:  # the turn was announced only now
            yield from self._end(turn)
        assert turn.item is not None
        yield SetTranscript(turn.item, text, round(seconds * 1000))
        if not self.options.transcribes:
            return
        sent = " ".join(turn.sent_words)
        if text.startswith(sent) and text != sent:
            yield events.TranscriptionDelta(item_id=turn.item_id, delta=text[len(sent) :])
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

    def _drop_draft(self, turn: UserTurn) -> Effects:
        if turn.draft is not None:
            turn.draft = None
            yield DropDraft(turn.item_id)

    def _ms(self, at_s: float) -> int:
        return round((self.options.from_s + at_s) * 1000)


def _logprobs(parts: Iterable[LiveTranscript]) -> list[dict[str, object]]:
    """Returns the log probability of each word; the recogniser reports none for tokens."""
    return [
        {
            "token": word.word,
            "logprob": math.log(max(word.confidence, 1e-6)),
            "bytes": list(word.word.encode()),
        }
        for part in parts
        for word in part.words
    ]
