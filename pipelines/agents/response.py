"""One answer of an agent: the language model's text, spoken while the rest is generated."""

import asyncio
import math
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from models.llm.base import FinishReason, TokenUsage
from pipelines.agents.clauses import ClauseSplitter, Urgency
from pipelines.agents.held_speech import AgentVoice
from pipelines.agents.pace import AT_ONCE_S, WritingPace
from pipelines.agents.playback import PIECE_S, Playback
from pipelines.chat.pipeline import Completion
from pipelines.tasks import TaskSet, wait_within
from pipelines.text.markdown import without_markdown
from pipelines.text.spoken_length import LETTERS_PER_S, spoken_length
from pipelines.tts.reasoning import ReasoningFilter
from pipelines.tts.session import SpeechStream
from pipelines.tts.shaping import TimedWord

INSTRUCTIONS = (
    "You are a voice assistant. Answer in one to three short sentences that can be read aloud: "
    "plain words without lists, markup or emoji, in the language of the user."
)
"""Default instructions of an agent. With `names_maker`, the templates of `configs/llm` also tell
the model its name; without that, Qwen2.5-Coder says "Yes, I am ChatGPT."."""

MAX_SPEECH_S = 60.0  # speech of an answer for which the client sets no limit
BUFFERED_S = 6.0  # audio that may wait to be sent
HURRY_S = 1.0  # with less audio left to play, the next piece may be a clause
GAP_S = 0.35  # with less audio left to play, the next piece may end at any word
# Real-time factor of a voice above which the language model pauses while the voice computes. On 2
# cores the first piece took 0.8 to 1.1 s with these pauses, and 1.5 to 2.1 s without them.
SLOW = 0.2


@dataclass(frozen=True, slots=True)
class AnswerText:
    """A delta of the text. The text of a spoken answer comes just before its audio."""

    text: str
    characters: int = 0  # charged characters of the answer so far, including this delta


@dataclass(frozen=True, slots=True)
class AnswerAudio:
    """Encoded audio, with the words that begin in it; word offsets count in the answer's text."""

    data: bytes
    duration_s: float
    words: tuple[TimedWord, ...] = ()


@dataclass(frozen=True, slots=True)
class AnswerCall:
    """A delta of a function call, in the shape of OpenAI's chat completions."""

    delta: dict[str, Any]


AnswerPiece = AnswerText | AnswerAudio | AnswerCall


class Answer:
    """Reads a completion, and speaks it unless `speaker` is None."""

    def __init__(
        self,
        completion: Completion,
        speaker: AgentVoice | None,
        playback: Playback,
        bytes_per_s: int,
        *,
        pace: WritingPace | None = None,
        is_limited: bool = False,
        is_whole: bool = False,
    ) -> None:
        """The completion is read once `pieces` is called. `bytes_per_s` is the rate of the encoded
        audio. `pace` is that of the session's answers.

        Nothing of an answer that `is_whole` counts as sent before its end. Unless the client has
        set a limit (`is_limited`), the answer ends with the sentence that reaches MAX_SPEECH_S."""
        self.usage: TokenUsage | None = None
        self.finish_reason: FinishReason | None = None
        self.model = completion.model  # id
        self._completion = completion
        self._voice = speaker.stream if speaker else None
        self._credit = speaker.credit if speaker else None
        self._is_whole = is_whole
        self._playback = playback
        self._bytes_per_s = bytes_per_s
        self._pace = pace or WritingPace()
        self._max_letters = math.inf if is_limited else MAX_SPEECH_S * LETTERS_PER_S
        language = speaker.stream.voice.language if speaker else "en"
        self._splitter = ClauseSplitter(language)
        self._reasoning = ReasoningFilter()
        self._pieces: asyncio.Queue[AnswerPiece | Exception | None] = asyncio.Queue()
        self._synthesised_s = 0.0  # length of the audio so far
        self._real_time_factor = math.inf  # seconds of work per second of audio, in the last piece
        self._is_slow = speaker is not None and speaker.stream.voice.model.real_time_factor >= SLOW
        self._voice_is_idle = asyncio.Event()  # the voice waits for text, or for audio to be sent
        self._voice_is_idle.set()
        self._spoken = 0  # characters that the voice has got
        self._sent = 0  # characters of the text that were sent
        self._text_came = asyncio.Event()  # more of the text, or its end
        self._audio_sent = asyncio.Event()
        self._is_read = False  # whether the whole text came
        self._has_calls = False
        self._tasks = TaskSet(self._failed)

    @property
    def characters(self) -> int:
        """Characters of speech sent so far, which are charged."""
        return self._credit.sent if self._credit else 0

    async def pieces(self) -> AsyncGenerator[AnswerPiece, None]:
        """Yields the answer at the pace of its playback. When the generator ends or is closed, the
        speech that the caller has taken and all generated text are charged. If the service stops,
        text not taken is not charged. Raises EngineError, PipelineError or DatabaseError."""
        self._tasks.start(self._read(), "read the answer")
        try:
            while (piece := await self._pieces.get()) is not None:
                if isinstance(piece, Exception):
                    raise piece
                if isinstance(piece, AnswerAudio):
                    await self._playback.wait_for_turn()
                    self._playback.count(piece.duration_s)
                    self._audio_sent.set()
                elif isinstance(piece, AnswerText):
                    self._sent += len(piece.text)
                    if not self._is_whole:
                        self._completion.deliver(self._sent)
                        if self._credit is not None:
                            self._credit.set_sent(piece.characters)
                yield piece
            self._completion.deliver(math.inf)
        finally:
            try:
                await self._tasks.close()
            finally:
                await self._completion.aclose()  # has an effect only if nothing was read

    async def _read(self) -> None:
        if self._voice is not None:
            self._tasks.start(self._speak(self._voice), "speak the answer")
        clock = asyncio.get_running_loop().time
        requested_at = clock()
        letters = 0
        has_begun = False
        self._pace.begin()
        async with aclosing(self._completion.deltas(is_paced=True)) as deltas:
            async for delta in deltas:
                waited_s = clock() - requested_at
                if has_begun and delta.text:
                    self._pace.count(spoken_length(delta.text), waited_s)
                has_begun = True
                self.usage = delta.usage or self.usage
                self.finish_reason = delta.finish_reason or self.finish_reason
                if delta.text and self._voice is None:
                    self._pieces.put_nowait(AnswerText(delta.text))
                elif delta.text:
                    text = self._reasoning.feed(delta.text)
                    self._splitter.push(text)
                    self._text_came.set()
                    letters += spoken_length(text)
                    if letters > self._max_letters and self._splitter.drop_unfinished():
                        self.finish_reason = "length"
                        await self._completion.stop()
                if delta.tool_calls:
                    self._has_calls = True
                    self._text_came.set()
                for call in delta.tool_calls:
                    self._pieces.put_nowait(AnswerCall(call))
                if self.finish_reason is not None:
                    self._end_text()
                elif self._is_slow and waited_s > AT_ONCE_S:
                    await asyncio.sleep(0)  # lets the voice take the text first
                    if not self._voice_is_idle.is_set() and await self._completion.pause():
                        await self._voice_is_idle.wait()
                requested_at = clock()
        self._end_text()

    def _end_text(self) -> None:
        self._splitter.push(self._reasoning.finish())
        self._is_read = True
        self._text_came.set()
        if self._voice is None:
            self._pieces.put_nowait(None)

    async def _speak(self, voice: SpeechStream) -> None:
        has_begun = False
        while True:
            self._text_came.clear()
            left_s = self._synthesised_s - self._playback.sent_s + self._playback.left_s
            slowness = 1 + self._real_time_factor
            urgency = _urgency(left_s / slowness) if has_begun else Urgency.NONE
            # Before a function call, the text is complete.
            letters_per_s = math.inf if self._has_calls else self._pace.letters_per_s
            text = self._splitter.take(urgency, letters_per_s=letters_per_s)
            if not text and self._is_read:
                text = self._splitter.finish()
                if not text:
                    break
            if not text:
                # Tries again before the audio ends, when the piece may be a clause.
                wait_s = (
                    max(left_s - HURRY_S * slowness, 0.05) if has_begun and left_s > 0 else None
                )
                await wait_within(self._text_came, wait_s)
                continue
            has_begun = True
            if not (text := without_markdown(text)).strip():
                continue
            work_s = self._real_time_factor * spoken_length(text) / LETTERS_PER_S
            self._voice_is_idle.clear()
            await self._speak_piece(voice, text, in_parts=work_s > left_s)
            self._voice_is_idle.set()
        self._pieces.put_nowait(None)

    async def _speak_piece(self, voice: SpeechStream, text: str, *, in_parts: bool) -> None:
        """Speaks a piece. Its transcript is sent along with the audio of each word, so that a
        client which is interrupted has little more text than the user heard. `in_parts` synthesises
        it in parts, since a gap would be heard if it came as a whole."""
        begins = self._spoken  # offset of the piece in the answer
        sent = 0  # characters of the piece
        charged = self._credit.spoken if self._credit else 0
        clock = asyncio.get_running_loop().time
        works_since = clock()
        before_s = self._synthesised_s
        self._spoken += len(text)
        async with aclosing(voice.speak(text, early_start=in_parts)) as chunks:
            async for chunk in chunks:
                waits_since = clock()
                while self._synthesised_s - self._playback.sent_s > BUFFERED_S:
                    self._audio_sent.clear()
                    self._voice_is_idle.set()
                    await self._audio_sent.wait()
                    self._voice_is_idle.clear()
                works_since += clock() - waits_since
                end = len(text) if chunk.words is None else 0  # None: an engine without word times
                if chunk.words:
                    end = chunk.words[-1].text_end - begins
                cost = charged + math.ceil(end * voice.charged / len(text))
                sent = self._put_text(text, sent, end, cost)
                self._put_audio(chunk.data, chunk.words or ())
        self._put_text(text, sent, len(text), self._credit.spoken if self._credit else 0)
        if self._synthesised_s > before_s:
            work_s = clock() - works_since
            self._real_time_factor = work_s / (self._synthesised_s - before_s)

    def _put_text(self, text: str, start: int, end: int, characters: int) -> int:
        """Queues `text[start:end]`, and returns the end of the text queued so far."""
        if end > start:
            self._pieces.put_nowait(AnswerText(text[start:end], characters))
        return max(start, end)

    def _put_audio(self, data: bytes, words: tuple[TimedWord, ...]) -> None:
        step = round(PIECE_S * self._bytes_per_s) & ~1  # whole samples
        for start in range(0, len(data), step):
            part = data[start : start + step]
            duration_s = len(part) / self._bytes_per_s
            self._synthesised_s += duration_s
            first_words = words if not start else ()
            self._pieces.put_nowait(AnswerAudio(part, duration_s, first_words))

    def _failed(self, task: asyncio.Task[Any], error: BaseException) -> None:
        self._pieces.put_nowait(error if isinstance(error, Exception) else RuntimeError())


def _urgency(left_s: float) -> Urgency:
    """Returns the urgency of the next piece; `left_s` excludes the time to synthesise it."""
    if left_s < GAP_S:
        return Urgency.NOW
    return Urgency.SOON if left_s < HURRY_S else Urgency.NONE
