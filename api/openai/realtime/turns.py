"""The user's turns in a Realtime session: from the events of live recognition to those of the
dialect, to items, and to the decisions of when the agent speaks.

While a response is in progress, heard or not yet, speech of the user only holds it: it is an
interruption when words come that are neither a back-channel nor an echo, else the agent goes on.
Work of the language model on a text that may still grow is thrown away, unpaid, when it does.
"""

import asyncio
import math
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from api.openai.realtime import server_events
from api.openai.realtime.responses import ActiveResponse, Host
from pipelines.agents.drafts import Draft
from pipelines.agents.interruption import EXPECTED, Heard, interrupts, text_between
from pipelines.agents.items import Item, Part
from pipelines.stt.events import EagerTranscript, LiveTranscript
from pipelines.stt.formatting import separator_of

ECHO_S = 8.0  # of the agent's own words that a microphone may repeat
NEW_WORDS = 2  # that the language model reads ahead at once
# Between interims. While they decide whether the user interrupts, the sooner the better; later they
# only show the text, and each takes the cores for 0.1 s, which the text at the end would wait for.
JUDGING_MS, SHOWING_MS = 300, 600


@dataclass(slots=True, eq=False)
class UserTurn:
    """One utterance of the user."""

    item_id: str
    start_ms: int
    is_announced: bool = False
    end_ms: int | None = None
    item: Item | None = None  # when it is committed
    draft: Draft | None = None
    holds: ActiveResponse | None = None  # until it is known whether this turn interrupts it
    began_at: float = field(default_factory=time.monotonic)
    shown: list[str] = field(default_factory=list)  # words that were sent as deltas
    last: list[str] = field(default_factory=list)  # words of the last interim
    words_read: int = 0  # by the language model
    parts: list[LiveTranscript] = field(default_factory=list)  # of a long one, which was cut


@dataclass(slots=True)
class TurnOptions:
    creates_response: bool = True
    interrupts: bool = True
    transcribes: bool = False  # sends transcripts
    wants_logprobs: bool = False
    from_s: float = 0.0  # of the session, where times of transcripts begin


class UserTurns:
    """The turn in progress, and those that wait for their text. Called one event at a time."""

    def __init__(self, host: Host, options: TurnOptions) -> None:
        self.options = options
        self._host = host
        self.settled = asyncio.Event()  # no turn waits for its text
        self.settled.set()
        self._turn: UserTurn | None = None
        self._ended: list[UserTurn] = []  # without their final text, in order

    async def started(self, start_ms: int) -> None:
        self._turn = turn = UserTurn(server_events.new_id("item"), start_ms)
        active = self._host.active
        if active is not None and self.options.interrupts:
            self._hold(turn, active)
        else:
            await self._announce(turn)

    def response_began(self, active: ActiveResponse) -> None:
        """To an earlier turn: held, if the user has spoken again already."""
        turn = self._turn or (self._ended[-1] if self._ended else None)
        if turn is not None and self.options.interrupts:
            self._hold(turn, active)

    async def heard(self, interim: LiveTranscript) -> None:
        """The beginning of its text, perhaps wrong."""
        turn = self._turn
        if turn is None:
            return
        heard = Heard(interim.text, interim.confidence, interim.duration_s, is_over=False)
        await self._judge(turn, heard)
        if not turn.is_announced:
            return
        if self.options.creates_response:
            self._read_ahead(turn, interim.text)
        if self.options.transcribes:
            await self._show(turn, interim.text)

    async def stopped(self, end_ms: int) -> None:
        """The utterance has ended, perhaps before its text is known."""
        turn, self._turn = self._turn, None
        if turn is None:
            return
        turn.end_ms = end_ms
        self._ended.append(turn)
        self.settled.clear()
        if turn.is_announced:
            await self._host.send(server_events.speech_stopped(turn.item_id, end_ms))
            await self._commit(turn)

    async def committed(self) -> None:
        """The client ended a turn, in a session that does not detect them."""
        turn = UserTurn(server_events.new_id("item"), 0, is_announced=True)
        self._ended.append(turn)
        self.settled.clear()
        await self._commit(turn)

    async def cleared(self) -> None:
        """The client forgets the turn in progress."""
        turn, self._turn = self._turn, None
        if turn is not None:
            await self._drop_draft(turn)
        self._release()

    async def likely_ended(self, eager: EagerTranscript) -> None:
        """The text, if the user says no more."""
        turn, text = self._turn, eager.text
        if turn is None or not text:
            return
        await self._judge(turn, Heard(text, eager.confidence, eager.duration_s))
        if turn.is_announced and self.options.creates_response:
            await self._drop_draft(turn)
            turn.draft = self._host.begin_draft(text)

    async def resumed(self) -> None:
        if self._turn is not None:
            await self._drop_draft(self._turn)

    async def transcribed(self, final: LiveTranscript) -> None:
        """The text of the oldest turn, or of the first part of a long one."""
        turn = self._ended[0] if self._ended else self._turn
        if turn is None:
            return
        turn.parts.append(final)
        if final.cut:
            return
        text = separator_of(final.language).join(part.text for part in turn.parts if part.text)
        speech_s = sum(part.duration_s for part in turn.parts)
        await self._judge(turn, Heard(text, final.confidence, speech_s))
        if turn.is_announced:
            await self._finish(turn, text)
        self._forget(turn)  # without words, or a back-channel, or an echo
        self._release()
        draft, turn.draft = turn.draft, None
        if turn.is_announced and text and self.options.creates_response:
            if draft is not None and draft.text == text:
                await self._host.respond(draft)
                return
            await self._host.respond()
        if draft is not None:
            await draft.discard()

    async def failed(self, code: str, message: str) -> None:
        """The recogniser has no text for the oldest turn that ended."""
        if not self._ended:
            return
        turn = self._ended[0]
        self._forget(turn)
        await self._drop_draft(turn)
        self._release()
        if turn.item is not None:
            await self._host.send(server_events.transcription_failed(turn.item_id, code, message))

    async def close(self) -> None:
        """The session ends, or listens in another way."""
        for turn in self._ended:
            await self._drop_draft(turn)
        self._ended.clear()
        self.settled.set()
        await self.cleared()

    def expected_sounds(self, language: str) -> str | None:
        """What the user is likely to say, while it is not certain that the agent is interrupted."""
        return EXPECTED.get(language) if self._is_judging else None

    def interim_ms(self) -> int:
        """Between two hypotheses of the text, while the user speaks."""
        return JUDGING_MS if self._is_judging else SHOWING_MS

    @property
    def _is_judging(self) -> bool:
        turn, active = self._turn, self._host.active
        if turn is None:
            return False
        return not turn.is_announced or (active is not None and turn.holds is active)

    async def _judge(self, turn: UserTurn, heard: Heard) -> None:
        """Interrupts the agent when the speech does."""
        active = self._host.active
        if turn.is_announced and (active is None or turn.holds is not active):
            return
        if active is None:
            if heard.text:
                await self._announce(turn)  # the agent has ended meanwhile
        elif interrupts(heard, _last_words(active)):
            if not turn.is_announced:
                await self._announce(turn)
            active.cancel("turn_detected")
            await active.is_done.wait()

    async def _announce(self, turn: UserTurn) -> None:
        turn.is_announced = True
        await self._host.send(server_events.speech_started(turn.item_id, turn.start_ms))

    async def _commit(self, turn: UserTurn) -> None:
        parts, began_at = [Part("input_audio")], turn.began_at
        turn.item = Item(turn.item_id, "message", "user", parts, began_at=began_at)
        await self._host.commit(turn.item)

    def _read_ahead(self, turn: UserTurn, text: str) -> None:
        """Lets the language model read the words before the last, which may be cut off."""
        words = text.split()[:-1]
        if len(words) >= turn.words_read + NEW_WORDS:
            turn.words_read = len(words)
            self._host.read_ahead(" ".join(words))

    async def _show(self, turn: UserTurn, text: str) -> None:
        """Sends the words that two interims agree on, without the last: text that was sent is never
        taken back (LocalAgreement-2, Liu et al. 2020)."""
        words, before = text.split(), turn.last
        turn.last = words
        agreed = 0
        while agreed < min(len(words), len(before)) and words[agreed] == before[agreed]:
            agreed += 1
        stable = words[: min(agreed, len(words) - 1)]
        if len(stable) > len(turn.shown) and stable[: len(turn.shown)] == turn.shown:
            new = stable[len(turn.shown) :]
            delta = (" " if turn.shown else "") + " ".join(new)
            turn.shown = stable
            await self._host.send(server_events.transcription_delta(turn.item_id, delta))

    async def _finish(self, turn: UserTurn, text: str) -> None:
        """Adds the text to the item, and sends it."""
        if turn.item is None:  # announced only now
            if turn.end_ms is not None:
                await self._host.send(server_events.speech_stopped(turn.item_id, turn.end_ms))
            await self._commit(turn)
        assert turn.item is not None
        seconds = sum(part.duration_s for part in turn.parts)
        turn.item.parts[0].text = text
        turn.item.parts[0].audio_ms = round(seconds * 1000)
        if not self.options.transcribes:
            return
        shown = " ".join(turn.shown)
        if text.startswith(shown) and text != shown:
            rest = text[len(shown) :]
            await self._host.send(server_events.transcription_delta(turn.item_id, rest))
        for utterance in (utterance for part in turn.parts for utterance in part.turns):
            await self._host.send(
                server_events.transcription_segment(
                    turn.item_id,
                    text=utterance.text,
                    speaker=utterance.speaker,
                    start_s=utterance.start + self.options.from_s,
                    end_s=utterance.end + self.options.from_s,
                )
            )
        logprobs = _logprobs(turn.parts) if self.options.wants_logprobs else None
        await self._host.send(
            server_events.transcription_completed(turn.item_id, text, seconds, logprobs=logprobs)
        )

    def _forget(self, turn: UserTurn) -> None:
        if turn in self._ended:
            self._ended.remove(turn)
        if not self._ended:
            self.settled.set()

    async def _drop_draft(self, turn: UserTurn) -> None:
        draft, turn.draft = turn.draft, None
        if draft is not None:
            await draft.discard()

    def _hold(self, turn: UserTurn, active: ActiveResponse) -> None:
        turn.holds = active
        active.playback.hold()

    def _release(self) -> None:
        """Lets the agent go on, unless another turn holds it."""
        active = self._host.active
        turns = (*self._ended, *filter(None, (self._turn,)))
        if active is not None and all(turn.holds is not active for turn in turns):
            active.playback.resume()

    @property
    def is_open(self) -> bool:
        """Whether the user is speaking."""
        return self._turn is not None

    async def idle(self, start_ms: int, end_ms: int) -> None:
        """The user was silent between two times: an empty item, and a response."""
        if self._turn is not None or self._ended or self._host.active is not None:
            return
        item = Item(server_events.new_id("item"), "message", "user", [Part("input_audio")])
        await self._host.send(server_events.timeout_triggered(item.id, start_ms, end_ms))
        await self._host.commit(item)
        if self.options.creates_response:
            await self._host.respond()


def _last_words(active: ActiveResponse) -> str:
    """What the agent said in the last seconds."""
    if active.spoken is None:
        return ""
    until_s = active.playback.sent_s
    words = ((word.word, word.start_s, word.end_s) for word in active.spoken.words)
    return text_between(words, until_s - ECHO_S, until_s) or active.spoken.text[-200:]


def _logprobs(parts: Iterable[LiveTranscript]) -> list[dict[str, object]]:
    """Of words, in place of tokens: the recogniser's probability of each."""
    return [
        {
            "token": word.word,
            "logprob": math.log(max(word.confidence, 1e-6)),
            "bytes": list(word.word.encode()),
        }
        for part in parts
        for word in part.words
    ]
