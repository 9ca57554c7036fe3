"""Turns of a speaker on one channel, found by the turn detector, for dialects that report turns."""

from abc import abstractmethod
from typing import Any, Generic, Literal, TypeVar

from api.http.errors import to_api_error
from api.sockets.stt.listening import (
    ListeningConversation,
    SocketListener,
    estimated_words,
    words_of,
)
from models.stt.base import Word
from pipelines.stt.events import (
    EagerTranscript,
    FailedUtterance,
    LiveEvent,
    LiveSpeechStarted,
    LiveTranscript,
    SpeechResumed,
)
from pipelines.stt.formatting import separator_of
from pipelines.stt.turns import INCOMPLETE

TurnEvent = Literal["Update", "StartOfTurn", "EagerEndOfTurn", "TurnResumed", "EndOfTurn"]
Trigger = Literal["model", "timeout", "manual"]

C = TypeVar("C", bound=ListeningConversation)


class TurnListener(SocketListener, Generic[C]):
    """Follows each turn from its first words to its end; a cough without words is no turn."""

    def __init__(self, conversation: C) -> None:
        super().__init__(conversation.socket, conversation.speech, conversation.listener_ended)
        self._conversation = conversation
        self.index = 0  # number of turns before this one
        self.last_transcript: LiveTranscript | None = None
        self._start = LiveSpeechStarted(0.0)  # start of the speech that the last text transcribes
        self._starts = [self._start]  # that start, and later ones, as recognisers may lag
        self._reset()

    def _reset(self) -> None:
        self.start_s: float | None = None  # with padding; None until the turn is reported
        self.speech_start_s = 0.0  # without padding
        self.text = ""  # last text that was reported
        self.confidence = 1.0  # confidence of the words, 0 to 1
        self.completeness = 0.0  # probability that the turn has ended
        self._parts: list[LiveTranscript] = []  # finals of a turn that spans several utterances
        self._eager: str | None = None  # text that was reported as the probable end
        self._tail: tuple[str, float, float] = "", 0.0, 0.0  # text after `_parts`, start and length

    @abstractmethod
    async def send_event(self, event: TurnEvent, text: str, **fields: Any) -> None:
        """Sends an event of the turn. The first is StartOfTurn; the last has a `trigger`."""

    @abstractmethod
    async def warn(self, message: str) -> None:
        """Reports that the recogniser failed. The turn ends with the text so far."""

    @property
    def least_completeness(self) -> float | None:
        """Minimum completeness for EagerEndOfTurn; None if that is never sent."""
        return None

    @property
    def language(self) -> str:
        """Language of the last transcript (ISO 639-1)."""
        return self.last_transcript.language if self.last_transcript else "en"

    def words(self) -> list[Word]:
        """Returns the words of the text; times that the recogniser did not give are estimated."""
        timed = [word for part in self._parts for word in words_of(part)]
        return [*timed, *estimated_words(*self._tail, self.confidence)]

    async def emit(self, event: LiveEvent) -> None:
        match event:
            case LiveSpeechStarted():
                self._starts.append(event)
            case SpeechResumed():
                await self._resume(self._eager)
            case EagerTranscript():
                self._start = self._starts[-1]
                await self._expect_end(event)
            case LiveTranscript():
                self.last_transcript = event
                self.confidence = event.confidence
                while len(self._starts) > 1 and self._starts[1].at_s <= event.start_s:
                    del self._starts[0]
                self._start = self._starts[0]
                await self._take(event)
            case FailedUtterance():
                await self.warn(to_api_error(event.error).message)
                await self._end(self.text, "model")

    async def _expect_end(self, eager: EagerTranscript) -> None:
        self.confidence = eager.confidence
        self.completeness = eager.completeness or 0.0
        if not eager.text:
            return
        self._tail = eager.text, self._start.at_s, eager.duration_s
        least = self.least_completeness
        if least is not None and eager.completeness is not None and eager.completeness >= least:
            self._eager = self._whole(eager.text)
            await self._report("EagerEndOfTurn", self._eager)
        else:
            await self._report("Update", self._whole(eager.text))

    async def _take(self, transcript: LiveTranscript) -> None:
        text = self._whole(transcript.text)
        self._tail = transcript.text, transcript.start_s, transcript.duration_s
        if transcript.final and transcript.text:
            self._parts.append(transcript)
            self._tail = "", 0.0, 0.0
        if transcript.final and not transcript.cut:
            if transcript.sentence_id in self.committed:
                trigger: Trigger = "manual"
            else:
                trigger = "timeout" if self.completeness <= INCOMPLETE else "model"
            await self._end(text, trigger)
        elif transcript.text:
            await self._report("Update", text)

    async def _end(self, text: str, trigger: Trigger) -> None:
        if self._eager not in (None, text):
            await self._resume(text)
        if text or self.start_s is not None:  # a sound without words is no turn
            await self._report("EndOfTurn", text, trigger=trigger)
            self.index += 1
        self._reset()

    async def _resume(self, text: str | None) -> None:
        if self._eager is not None:
            self._eager = None
            await self._report("TurnResumed", text or "")

    def _whole(self, text: str) -> str:
        parts = (part.text for part in self._parts)
        return separator_of(self.language).join(filter(None, (*parts, text)))

    async def _report(self, event: TurnEvent, text: str, **fields: Any) -> None:
        """Sends an event of the turn, after StartOfTurn if it is the first."""
        if self.start_s is None:
            self.start_s = self._start.starts_s
            self.speech_start_s = self._start.at_s
            if event != "Update":
                await self._report("StartOfTurn", text)
            else:
                event = "StartOfTurn"
        self.text = text
        await self.send_event(event, text, **fields)
