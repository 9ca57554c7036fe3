"""The turns of one channel, from the turn detector, in any dialect."""

from abc import abstractmethod
from typing import Any, Literal

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


class TurnListener(SocketListener):
    """Turns from their first words to their end, so that a cough is none. A dialect's subclass
    writes their events."""

    def __init__(self, conversation: ListeningConversation) -> None:
        super().__init__(conversation.socket, conversation.speech, conversation.listener_ended)
        self.index = 0  # of the turn
        self.heard: LiveTranscript | None = None  # the last one
        self._begun = LiveSpeechStarted(0.0)  # of the text that came last
        self._starts = [self._begun]  # from that of the last transcript on: recognisers may lag
        self._reset()

    def _reset(self) -> None:
        self.begins_s: float | None = None  # of a turn that was reported, with its padding
        self.sounds_s = 0.0  # without
        self.text = ""  # that was reported last
        self.confidence, self.completeness = 1.0, 0.0  # in the words, and that it has ended
        self._parts: list[LiveTranscript] = []  # of one that is longer than an utterance may be
        self._eager: str | None = None  # what was reported as the probable end
        self._open: tuple[str, float, float] = "", 0.0, 0.0  # after the parts: text, start, seconds

    @abstractmethod
    async def tell(self, event: TurnEvent, text: str, **more: Any) -> None:
        """Sends an event of the turn, of which the first is StartOfTurn; the last has its
        `trigger`."""

    @abstractmethod
    async def warn(self, message: str) -> None:
        """Sends that the recogniser failed; the turn ends with the text so far."""

    @property
    def least_completeness(self) -> float | None:
        """From which an end is probable; None where no such end is told."""
        return None

    @property
    def language(self) -> str:
        """ISO code."""
        return self.heard.language if self.heard else "en"

    def words(self) -> list[Word]:
        """Those of the text; where the recogniser gave no times, with times by their letters."""
        timed = [word for part in self._parts for word in words_of(part)]
        return [*timed, *estimated_words(*self._open, self.confidence)]

    async def emit(self, event: LiveEvent) -> None:
        match event:
            case LiveSpeechStarted():
                self._starts.append(event)
            case SpeechResumed():
                await self._resume(self._eager)
            case EagerTranscript():
                self._begun = self._starts[-1]
                await self._expect_end(event)
            case LiveTranscript():
                self.heard, self.confidence = event, event.confidence
                while len(self._starts) > 1 and self._starts[1].at_s <= event.start_s:
                    del self._starts[0]
                self._begun = self._starts[0]
                await self._take(event)
            case FailedUtterance():
                await self.warn(to_api_error(event.error).message)
                await self._end(self.text, "model")

    async def _expect_end(self, heard: EagerTranscript) -> None:
        self.confidence, self.completeness = heard.confidence, heard.completeness or 0.0
        if not heard.text:
            return
        self._open = heard.text, self._begun.at_s, heard.duration_s
        least = self.least_completeness
        if least is not None and heard.completeness is not None and heard.completeness >= least:
            self._eager = self._whole(heard.text)
            await self._tell("EagerEndOfTurn", self._eager)
        else:
            await self._tell("Update", self._whole(heard.text))

    async def _take(self, heard: LiveTranscript) -> None:
        text = self._whole(heard.text)
        self._open = heard.text, heard.start_s, heard.duration_s
        if heard.final and heard.text:
            self._parts.append(heard)
            self._open = "", 0.0, 0.0
        if heard.final and not heard.cut:
            if heard.sentence_id in self.committed:
                trigger: Trigger = "manual"
            else:
                trigger = "timeout" if self.completeness <= INCOMPLETE else "model"
            await self._end(text, trigger)
        elif heard.text:
            await self._tell("Update", text)

    async def _end(self, text: str, trigger: Trigger) -> None:
        if self._eager not in (None, text):
            await self._resume(text)
        if text or self.begins_s is not None:  # else a sound without words
            await self._tell("EndOfTurn", text, trigger=trigger)
            self.index += 1
        self._reset()

    async def _resume(self, text: str | None) -> None:
        if self._eager is not None:
            self._eager = None
            await self._tell("TurnResumed", text or "")

    def _whole(self, text: str) -> str:
        parts = (part.text for part in self._parts)
        return separator_of(self.language).join(filter(None, (*parts, text)))

    async def _tell(self, event: TurnEvent, text: str, **more: Any) -> None:
        if self.begins_s is None:
            self.begins_s, self.sounds_s = self._begun.starts_s, self._begun.at_s
            if event != "Update":
                await self._tell("StartOfTurn", text)
            else:
                event = "StartOfTurn"
        self.text = text
        await self.tell(event, text, **more)
