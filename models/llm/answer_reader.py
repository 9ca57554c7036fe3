"""Tokens as they come, read as what an answer is made of: thoughts, text and calls of tools."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from models.llm.tool_calls import CallDelta, ToolTextReader

THINK, END_OF_THINKING = "<think>", "</think>"
UNFINISHED = "\ufffd"  # what decoders write for a part of a character


@dataclass(frozen=True, slots=True)
class AnswerPiece:
    text: str = ""
    reasoning: str = ""
    calls: tuple[CallDelta, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.text or self.reasoning or self.calls)


class TokenText:
    """The text of tokens; a character of several tokens comes when it is whole."""

    def __init__(self, decode: Callable[[list[int]], str]) -> None:
        self._decode = decode
        self._tokens: list[int] = []
        self._from = 0  # where the tokens begin that the next ones are decoded with
        self._read = 0  # tokens whose text has come out

    def add(self, tokens: Sequence[int]) -> str:
        self._tokens += tokens
        text = self._new()
        if text.endswith(UNFINISHED):
            return ""
        self._from, self._read = self._read, len(self._tokens)
        return text

    def finish(self) -> str:
        """What was held back, whole or not."""
        return self._new()

    def _new(self) -> str:
        # Some tokenizers write a token otherwise after others, a space before it for one.
        before = self._decode(self._tokens[self._from : self._read])
        return self._decode(self._tokens[self._from :])[len(before) :]


class AnswerReader:
    """Parts an answer while it is written."""

    def __init__(
        self,
        stop: Sequence[str] = (),
        *,
        thinking: bool = False,
        calls: bool = False,
        json_or_calls: bool = False,
    ) -> None:
        """`thinking` when the prompt has begun the thoughts; `calls` when there are tools."""
        self.stopped = False  # one of the texts of `stop` has come: the rest is not for the caller
        self._thoughts = _ThoughtReader(begun=thinking)
        self._tools = ToolTextReader(json_or_calls=json_or_calls) if calls else None
        self._stop = _StopReader(stop)

    @property
    def calls(self) -> int:
        """Calls that are whole."""
        return self._tools.whole if self._tools is not None else 0

    def feed(self, text: str) -> AnswerPiece:
        reasoning, answer = self._thoughts.feed(text)
        return self._read(reasoning, answer)

    def finish(self, *, lost: bool = False) -> AnswerPiece:
        """What was held back, when nothing follows, or only a call that was `lost`."""
        reasoning, answer = self._thoughts.finish()
        piece = self._read(reasoning, answer)
        held = self._tools.finish() if self._tools is not None and not lost else ""
        text = piece.text
        if not self.stopped:
            text += self._stop.feed(held) + self._stop.finish()
            self.stopped = self._stop.found
        return AnswerPiece(text, piece.reasoning, piece.calls)

    def _read(self, reasoning: str, answer: str) -> AnswerPiece:
        if self.stopped:
            return AnswerPiece()
        calls: tuple[CallDelta, ...] = ()
        if self._tools is not None and answer:
            answer, calls = self._tools.feed(answer)
        text = self._stop.feed(answer)
        self.stopped = self._stop.found
        return AnswerPiece(text, reasoning, calls)


class _ThoughtReader:
    """Parts the thoughts at the beginning, between their tags, from the answer.

    New lines beside the tags belong to neither.
    """

    def __init__(self, *, begun: bool) -> None:
        self._thinking: bool | None = True if begun else None  # None: not known yet
        self._waiting = ""
        self._trimming = begun  # new lines before the thoughts, or before the answer after them

    def feed(self, text: str) -> tuple[str, str]:
        """Thoughts and answer in what came."""
        self._waiting += text
        if self._thinking is None:
            opening = self._waiting.lstrip()
            if len(opening) < len(THINK) and THINK.startswith(opening):
                return "", ""
            self._thinking = self._trimming = opening.startswith(THINK)
            if self._thinking:
                self._waiting = opening[len(THINK) :]
        if not self._thinking:
            return "", self._trimmed(len(self._waiting))
        at = self._waiting.find(END_OF_THINKING)
        if at < 0:
            kept = beginning_at_end(self._waiting, (END_OF_THINKING,))
            spoken = self._waiting[: len(self._waiting) - kept].rstrip("\n")
            return self._trimmed(len(spoken)), ""
        thoughts = self._trimmed(at).rstrip("\n")
        self._waiting = self._waiting.removeprefix(END_OF_THINKING)
        self._thinking, self._trimming = False, True
        return thoughts, self._trimmed(len(self._waiting))

    def finish(self) -> tuple[str, str]:
        held, self._waiting = self._waiting, ""
        return (held, "") if self._thinking else ("", held)

    def _trimmed(self, length: int) -> str:
        """Takes so much of what waits."""
        text, self._waiting = self._waiting[:length], self._waiting[length:]
        if self._trimming:
            text = text.lstrip("\n")
            self._trimming = not text
        return text


class _StopReader:
    """Lets text through up to the first of some texts."""

    def __init__(self, stop: Sequence[str]) -> None:
        self.found = False
        self._stop = tuple(filter(None, stop))
        self._waiting = ""

    def feed(self, text: str) -> str:
        if self.found or not self._stop:
            return "" if self.found else text
        whole = self._waiting + text
        places = [at for stop in self._stop if (at := whole.find(stop)) >= 0]
        if places:
            self.found, self._waiting = True, ""
            return whole[: min(places)]
        kept = beginning_at_end(whole, self._stop)
        self._waiting = whole[len(whole) - kept :]
        return whole[: len(whole) - kept]

    def finish(self) -> str:
        held, self._waiting = self._waiting, ""
        return held


def beginning_at_end(text: str, marks: Sequence[str]) -> int:
    """How much at the end of a text may be the beginning of one of `marks`."""
    longest = min(len(text), max(map(len, marks), default=1) - 1)
    for length in range(longest, 0, -1):
        if any(mark.startswith(text[-length:]) for mark in marks):
            return length
    return 0
