"""Parses tokens into reasoning, text and tool calls, within their budget (budgeted completion)."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from models.llm.base import FinishReason, GenerationDelta, GenerationRequest, TokenUsage
from models.llm.structured_output.answer import (
    is_constrained_throughout,
    is_json_or_calls,
    may_call_tools,
)
from models.llm.structured_output.ast import Grammar
from models.llm.structured_output.llguidance import TextMatcher
from models.llm.structured_output.parser_state import ParserState
from models.llm.tool_calls import MARK, CallDelta, ToolTextReader, partial_suffix
from models.llm.unmarked_calls import UnmarkedCallFinder

THINK, END_OF_THINKING = "<think>", "</think>"
UNFINISHED = "\ufffd"  # the replacement character, which decoders write for a partial character


class TokenText:
    """Incremental detokenizer; returns a character of several tokens when it is complete."""

    def __init__(self, decode: Callable[[list[int]], str]) -> None:
        self._decode = decode
        self._tokens: list[int] = []
        self._from = 0  # first token of the context for decoding new tokens
        self._read = 0  # tokens whose text has been returned

    def add(self, token: int) -> str:
        self._tokens.append(token)
        text = self._new()
        if text.endswith(UNFINISHED):
            return ""
        self._from, self._read = self._read, len(self._tokens)
        return text

    def finish(self) -> str:
        """Returns the text held back, even of an incomplete character."""
        return self._new()

    def _new(self) -> str:
        # Some tokenizers decode a token differently after others, for example with a space.
        before = self._decode(self._tokens[self._from : self._read])
        return self._decode(self._tokens[self._from :])[len(before) :]


class AnswerReader:
    """Parser of an answer while it is generated; completes it within its token budget."""

    def __init__(
        self,
        stop: Sequence[str] = (),
        *,
        thinking: bool | None = False,
        tools: ToolTextReader | None = None,
        unmarked: UnmarkedCallFinder | None = None,
        budget: "BudgetedCompletion | CheckedAnswer | None" = None,
        loops: "LoopDetector | None" = None,
    ) -> None:
        """`thinking`: whether the prompt opened the reasoning; None if the engine separates it."""
        self.stopped = False  # a `stop` text has occurred: the rest is dropped
        self._thoughts = None if thinking is None else _ThoughtReader(begun=thinking)
        self._tools = tools
        self._unmarked = unmarked
        self._stop = _StopReader(stop)
        self._budget = budget
        self._loops = loops

    @classmethod
    def of(
        cls,
        request: GenerationRequest,
        grammar: Grammar | TextMatcher | None,
        context_tokens: int,
        *,
        stop: Sequence[str] = (),
        thinking: bool | None,
        ends_loops: bool = False,
        finds_unmarked: bool = False,
    ) -> "AnswerReader":
        """Makes the reader for an answer that `grammar` constrains. With `finds_unmarked`, the text
        ends at a tool call without the marker, whose function is `unmarked_call`."""
        tools = None
        unmarked = None
        budget: BudgetedCompletion | CheckedAnswer | None = None
        loops = LoopDetector() if ends_loops and not isinstance(grammar, Grammar) else None
        if may_call_tools(request):
            tools = ToolTextReader(json_or_calls=is_json_or_calls(request))
            if finds_unmarked and not is_constrained_throughout(request):
                names = [tool["function"]["name"] for tool in request.tools]
                unmarked = UnmarkedCallFinder(names)
        if isinstance(grammar, Grammar):
            budget = BudgetedCompletion(grammar, request.sampling.max_tokens, context_tokens)
        elif grammar is not None:
            budget = CheckedAnswer(grammar)
        return cls(
            stop, thinking=thinking, tools=tools, unmarked=unmarked, budget=budget, loops=loops
        )

    @property
    def calls(self) -> int:
        """Number of complete tool calls."""
        return self._tools.whole if self._tools is not None else 0

    @property
    def unmarked_call(self) -> str | None:
        """Function of a tool call without a marker, at which the returned text ends."""
        return None if self._unmarked is None else self._unmarked.called

    @property
    def repeats_itself(self) -> FinishReason | None:
        """Reason to end the answer early, if any: the model left its grammar, or repeated a tool
        call or a text, which small models then do endlessly."""
        if self._tools is not None and self._tools.repeated:
            return "tool_calls"
        is_lost = isinstance(self._budget, CheckedAnswer) and self._budget.lost
        return "length" if is_lost or (self._loops is not None and self._loops.found) else None

    def feed(self, text: str, usage: TokenUsage | None = None) -> GenerationDelta:
        """Parses text and returns the new deltas; `usage` covers the answer up to its end."""
        if self._budget is not None and text and usage is not None:
            text = self._budget.feed(text, usage)
        return self._read(*(self._thoughts.feed(text) if self._thoughts else ("", text)))

    def finish(self, finish: FinishReason | None = None, unfinished: str = "") -> GenerationDelta:
        """Returns the rest and the finish reason; `unfinished` is the incomplete last character."""
        is_cut_off = finish == "length"
        if self._budget is not None:  # its completion replaces an unfinished character
            unfinished, finish = self._budget.end(finish, self.calls)
            is_cut_off = is_cut_off or finish == "length"
        piece = self.feed(unfinished)
        if self._thoughts is not None:
            piece += self._read(*self._thoughts.finish())
        if not self.stopped:
            # The beginning of a tag that was cut off is no text.
            held = "" if self._tools is None or is_cut_off else self._tools.finish()
            if self._unmarked is not None:
                held = self._unmarked.finish() + held
            piece += GenerationDelta(self._stop.feed(held) + self._stop.finish())
            self.stopped = self._stop.found
        called = finish == "stop" and self.calls
        return replace(piece, finish_reason="tool_calls" if called else finish)

    def _read(self, reasoning: str, answer: str) -> GenerationDelta:
        if self.stopped:
            return GenerationDelta()
        calls: tuple[CallDelta, ...] = ()
        if self._tools is not None and answer:
            answer, calls = self._tools.feed(answer)
        if self._unmarked is not None and not self.calls:
            answer = self._unmarked.feed(answer)
        text = self._stop.feed(answer)
        self.stopped = self._stop.found
        if self._loops is not None:
            self._loops.feed(text)
        return GenerationDelta(text, tool_calls=calls, reasoning=reasoning)


class LoopDetector:
    """Detector of degenerate repetition, of the last 1 to MOST characters of an answer."""

    MOST = 300
    LEAST = 80  # characters that have to recur
    TIMES = 4  # occurrences of a text that make a loop
    EVERY = 16  # new characters between checks

    def __init__(self) -> None:
        self.found = False
        self._end = ""  # tail of the text
        self._new = 0  # characters since the last check

    def feed(self, text: str) -> None:
        self._end = (self._end + text)[-(self.TIMES + 1) * self.MOST :]
        self._new += len(text)
        if self._new >= self.EVERY and not self.found:
            self._new = 0
            self.found = any(map(self._repeats, self._periods()))

    def _periods(self) -> Iterator[int]:
        """Periods at which the last LEAST characters recur; trying all takes 0.1 ms."""
        last = self._end[-self.LEAST :]
        at = self._end.rfind(last, 0, -1)
        while at >= 0 and (period := len(self._end) - len(last) - at) <= self.MOST:
            yield period
            at = self._end.rfind(last, 0, at + len(last) - 1)

    def _repeats(self, period: int) -> bool:
        length = max(self.LEAST, (self.TIMES - 1) * period)
        again = self._end[-length - period : -period]
        return len(again) == length and self._end.endswith(again)


class BudgetedCompletion:
    """Budget that passes text on while the remaining tokens can complete the answer (a safe point).
    Text after a safe point is held until the next one, or until the model ends by itself. If the
    tokens are spent before that, the answer gets its shortest completion from the last safe
    point."""

    def __init__(self, grammar: Grammar, max_tokens: int | None, context_tokens: int) -> None:
        self._has_free_text = not grammar.root.min_bytes
        self._state = ParserState.start(grammar)
        self._safe: ParserState | None = None  # state after the text passed on, once there is any
        self._held = ""
        self._first = ""  # first character passed on
        self._begun = False
        self._max_tokens = math.inf if max_tokens is None else max_tokens
        self._context_tokens = context_tokens

    def feed(self, text: str, usage: TokenUsage) -> str:
        """Returns the text to pass on; `usage` covers the answer up to the end of `text`."""
        left = min(
            self._max_tokens - usage.completion_tokens, self._context_tokens - usage.total_tokens
        )
        if not self._begun and self._state.min_bytes <= left + usage.completion_tokens:
            self._safe = self._state
        self._begun = True
        self._held += text
        self._state = self._state.advance(text)
        if self._state.min_bytes <= left:  # a token has at least one byte
            self._safe = self._state
        elif math.isinf(self._state.min_bytes):  # the text left its grammar: no completion is known
            self._safe = None
        elif self._safe is not None:
            return ""
        held, self._held = self._held, ""
        self._first = self._first or held[:1]
        return held

    def end(self, finish: FinishReason | None, calls: int) -> tuple[str, FinishReason | None]:
        """Returns the rest of the answer and its finish reason; `calls` counts complete calls."""
        held, self._held = self._held, ""
        if finish != "length":
            return held, finish
        if calls:
            return "", "stop"  # the dropped text belongs to a later call, which is not returned
        if self._safe is None:  # no end ever fitted the budget, so nothing was held
            return "", finish
        completion = self._safe.completion()
        if not self._has_free_text and (self._first or completion[:1]) != MARK[0]:
            return completion, "stop"  # it is JSON
        # The arguments of a call may be incomplete: `length` warns the client.
        return completion, finish


class CheckedAnswer:
    """Budget that passes text on while it obeys a grammar without a known completion. An answer
    that is incomplete, or that the engine no longer constrains, ends with `length`."""

    def __init__(self, matcher: TextMatcher) -> None:
        self.lost = False  # the text has left the grammar; the rest is dropped
        self._matcher = matcher

    def feed(self, text: str, usage: TokenUsage) -> str:
        self.lost = self.lost or not self._matcher.feed(text)
        return "" if self.lost else text

    def end(self, finish: FinishReason | None, calls: int) -> tuple[str, FinishReason | None]:
        """Returns the rest and the finish reason, as `BudgetedCompletion.end`."""
        if calls and (self.lost or finish == "length"):
            return "", "stop"
        complete = not self.lost and self._matcher.is_complete
        return "", finish if complete or finish != "stop" else "length"


class _ThoughtReader:
    """Separator of the reasoning and its tags, with the line ends beside them, from the answer."""

    def __init__(self, *, begun: bool) -> None:
        self._thinking: bool | None = True if begun else None  # None until the text decides
        self._waiting = ""
        self._trimming = begun  # drops new lines before the reasoning or before the answer

    def feed(self, text: str) -> tuple[str, str]:
        """Splits `text` into reasoning and answer."""
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
            kept = partial_suffix(self._waiting, (END_OF_THINKING,))
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
        """Consumes and returns `length` characters, trimmed."""
        text, self._waiting = self._waiting[:length], self._waiting[length:]
        if self._trimming:
            text = text.lstrip("\n")
            self._trimming = not text
        return text


class _StopReader:
    """Filter that passes text on up to the first stop text."""

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
        kept = partial_suffix(whole, self._stop)
        self._waiting = whole[len(whole) - kept :]
        return whole[: len(whole) - kept]

    def finish(self) -> str:
        held, self._waiting = self._waiting, ""
        return held
