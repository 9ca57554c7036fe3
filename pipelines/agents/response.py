"""One answer of an agent: the language model's text, spoken while the rest is generated."""

import asyncio
import math
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, TypeAlias

from models.llm.base import FinishReason, TokenUsage
from pipelines.agents.clauses import ClauseSplitter
from pipelines.agents.held_speech import AgentVoice
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
"""Of an agent whose client gives it none. With `names_maker` the templates of `configs/llm` say who
the model is, too: else Qwen2.5-Coder answers "Yes, I am ChatGPT."."""

MOST_S = 60.0  # of speech in an answer, where its client sets no limit
BUFFERED_S = 6.0  # of audio that is made and not sent yet
CHARACTERS_PER_S = 14  # of speech
HURRY_S = 1.0  # with less audio left to play, the next piece may be a clause
# From this much work for a second of speech, the language model pauses while the voice works. On 2
# cores, together, a first piece took 1.5 to 2.1 s, not 0.8 to 1.1, and a token 75 ms, not 10.
SLOW = 0.2
AT_ONCE_S = 0.003  # a delta that comes so soon was made before, and so perhaps the next


@dataclass(frozen=True, slots=True)
class AnswerText:
    """A delta of the text: of the transcript, when it is spoken, as its audio begins."""

    text: str
    characters: int = 0  # of the speech that cost something, up to here


@dataclass(frozen=True, slots=True)
class AnswerAudio:
    """Encoded audio, with the words that begin in it; their offsets are those of the text."""

    data: bytes
    duration_s: float
    words: tuple[TimedWord, ...] = ()


@dataclass(frozen=True, slots=True)
class AnswerCall:
    """A delta of a function call, in the shape of OpenAI's chat completions."""

    delta: dict[str, Any]


AnswerPiece: TypeAlias = AnswerText | AnswerAudio | AnswerCall


class Answer:
    """Reads a completion, and speaks it with `voice`; without one it is a text."""

    def __init__(
        self,
        completion: Completion,
        speaker: AgentVoice | None,
        playback: Playback,
        bytes_per_s: int,
        *,
        is_limited: bool = False,
    ) -> None:
        """`bytes_per_s` is that of the voice's encoder. An answer that the client has not limited
        ends with its sentence after MOST_S of speech, by the length of the text."""
        self.usage: TokenUsage | None = None
        self.finish_reason: FinishReason | None = None
        self.model = completion.model  # id of the one that answers
        self._completion = completion
        self._voice = speaker.stream if speaker else None
        self._credit = speaker.credit if speaker else None
        self._playback = playback
        self._bytes_per_s = bytes_per_s
        self._most_letters = math.inf if is_limited else MOST_S * LETTERS_PER_S
        language = speaker.stream.voice.language if speaker else "en"
        self._splitter = ClauseSplitter(language)
        self._reasoning = ReasoningFilter()
        self._pieces: asyncio.Queue[AnswerPiece | Exception | None] = asyncio.Queue()
        self._made_s = 0.0  # of audio
        self._slowness = math.inf  # seconds of work for a second of audio, of the last piece
        self._is_slow = speaker is not None and speaker.stream.voice.model.real_time_factor >= SLOW
        self._listens = asyncio.Event()  # the voice does not work: it waits for text, or to be sent
        self._listens.set()
        self._spoken = 0  # characters
        self._shown = 0  # of these or, without a voice, of the text: what was sent
        self._grown = asyncio.Event()  # the text, or its end came
        self._sent = asyncio.Event()
        self._is_read = False
        self._tasks = TaskSet(self._failed)

    @property
    def characters(self) -> int:
        """That were spoken, and cost something, so far."""
        return self._credit.sent if self._credit else 0

    async def pieces(self) -> AsyncGenerator[AnswerPiece, None]:
        """The answer at the pace of its playback; its end, or closing it, charges for what was
        generated, or what was taken if the service stops, and for the speech that was taken.
        Raises EngineError, PipelineError or DatabaseError."""
        self._tasks.start(self._read(), "read the answer")
        try:
            while (piece := await self._pieces.get()) is not None:
                if isinstance(piece, Exception):
                    raise piece
                if isinstance(piece, AnswerAudio):
                    await self._playback.wait_for_turn()
                    self._playback.count(piece.duration_s)
                    self._sent.set()
                elif isinstance(piece, AnswerText):
                    self._shown += len(piece.text)
                    self._completion.deliver(self._shown)
                    if self._credit is not None:
                        self._credit.count_sent(piece.characters)
                yield piece
            self._completion.deliver(math.inf)
        finally:
            try:
                await self._tasks.close()
            finally:
                await self._completion.aclose()  # if nothing of it was read

    async def _read(self) -> None:
        if self._voice is not None:
            self._tasks.start(self._speak(self._voice), "speak the answer")
        clock = asyncio.get_running_loop().time
        asked_at = clock()
        letters = 0
        async with aclosing(self._completion.deltas(is_paced=True)) as deltas:
            async for delta in deltas:
                self.usage = delta.usage or self.usage
                self.finish_reason = delta.finish_reason or self.finish_reason
                if delta.text and self._voice is None:
                    self._pieces.put_nowait(AnswerText(delta.text))
                elif delta.text:
                    text = self._reasoning.feed(delta.text)
                    self._splitter.push(text)
                    self._grown.set()
                    letters += spoken_length(text)
                    if letters > self._most_letters and self._splitter.drop_unfinished():
                        self.finish_reason = "length"
                        await self._completion.stop()
                for call in delta.tool_calls:
                    self._pieces.put_nowait(AnswerCall(call))
                if self.finish_reason is not None:
                    self._end_text()
                elif self._is_slow and clock() - asked_at > AT_ONCE_S:
                    await asyncio.sleep(0)  # the voice takes what it can
                    if not self._listens.is_set() and await self._completion.pause():
                        await self._listens.wait()
                asked_at = clock()
        self._end_text()

    def _end_text(self) -> None:
        self._splitter.push(self._reasoning.finish())
        self._is_read = True
        self._grown.set()
        if self._voice is None:
            self._pieces.put_nowait(None)

    async def _speak(self, voice: SpeechStream) -> None:
        begun = False
        while True:
            self._grown.clear()
            left_s = self._made_s - self._playback.sent_s + self._playback.left_s
            hurry_s = HURRY_S * (1 + self._slowness)
            text = self._splitter.take(hurries=begun and left_s < hurry_s)
            if not text and self._is_read:
                text = self._splitter.finish()
                if not text:
                    break
            if not text:
                # Speech that runs dry takes a clause: looked at again while it plays.
                wait_s = max(left_s - hurry_s, 0.05) if begun and left_s > 0 else None
                await wait_within(self._grown, wait_s)
                continue
            begun = True
            if not (text := without_markdown(text)).strip():
                continue
            work_s = self._slowness * len(text) / CHARACTERS_PER_S
            self._listens.clear()
            await self._speak_piece(voice, text, in_parts=work_s > left_s)
            self._listens.set()
        self._pieces.put_nowait(None)

    async def _speak_piece(self, voice: SpeechStream, text: str, *, in_parts: bool) -> None:
        """The transcript is shown with the audio of its words: a client that is interrupted has
        little more than it heard. `in_parts` where the speech would run dry before all is made."""
        begins, shown = self._spoken, 0  # characters: of the answer before, of this piece
        paid = self._credit.spoken if self._credit else 0
        clock = asyncio.get_running_loop().time
        works_since, made_s = clock(), self._made_s
        self._spoken += len(text)
        async with aclosing(voice.speak(text, early_start=in_parts)) as chunks:
            async for chunk in chunks:
                before = clock()
                while self._made_s - self._playback.sent_s > BUFFERED_S:
                    self._sent.clear()
                    self._listens.set()
                    await self._sent.wait()
                    self._listens.clear()
                works_since += clock() - before
                end = len(text) if chunk.words is None else 0  # an engine without word times
                if chunk.words:
                    end = chunk.words[-1].text_end - begins
                cost = paid + math.ceil(end * voice.charged / len(text))
                shown = self._show(text, shown, end, cost)
                self._put_audio(chunk.data, chunk.words or ())
        self._show(text, shown, len(text), self._credit.spoken if self._credit else 0)
        if self._made_s > made_s:
            self._slowness = (clock() - works_since) / (self._made_s - made_s)

    def _show(self, text: str, start: int, end: int, characters: int) -> int:
        """Returns the end."""
        if end > start:
            self._pieces.put_nowait(AnswerText(text[start:end], characters))
        return max(start, end)

    def _put_audio(self, data: bytes, words: tuple[TimedWord, ...]) -> None:
        step = round(PIECE_S * self._bytes_per_s) & ~1  # whole samples
        for start in range(0, len(data), step):
            part = data[start : start + step]
            duration_s = len(part) / self._bytes_per_s
            self._made_s += duration_s
            first_words = words if not start else ()
            self._pieces.put_nowait(AnswerAudio(part, duration_s, first_words))

    def _failed(self, task: asyncio.Task[Any], error: BaseException) -> None:
        self._pieces.put_nowait(error if isinstance(error, Exception) else RuntimeError())
