"""Answers that a chat model writes in turns. Between two turns of an answer, another tenant has the
slot."""

from dataclasses import replace

from models.llm.base import GenerationDelta, GenerationRequest, TokenUsage

# The model reads the prompt and the text so far again after a pause: 200 tokens take 1 to 2 s on
# two cores (1.5 billion parameters).
TURN_S = 5.0
ALMOST_DONE = 16  # tokens: a rest this short is written sooner than a pause would end


class AnswerInTurns:
    """The answer so far, and the request for the rest of it."""

    def __init__(self, request: GenerationRequest) -> None:
        self.rest = request
        self.is_complete = False
        self._request = request
        self._texts: list[str] = []
        self._usage: TokenUsage | None = None
        self._earlier: TokenUsage | None = None  # usage of the turns that have ended
        # Grammars, tool calls and reasoning cannot be continued, and speech must not pause.
        self._is_divisible = not (request.response_format or request.is_spoken)

    @property
    def usage(self) -> TokenUsage | None:
        """Return the tokens of all turns; the prompt counts once."""
        return self._usage

    def add(self, delta: GenerationDelta) -> GenerationDelta:
        """Add a piece of this turn; return it as a piece of the answer."""
        self._texts.append(delta.text)
        if delta.tool_calls or delta.reasoning:
            self._is_divisible = False
        if delta.finish_reason is not None:
            self.is_complete = True
        if delta.usage is None:
            return delta
        self._usage = delta.usage
        if self._earlier is not None:
            tokens = self._earlier.completion_tokens + delta.usage.completion_tokens
            self._usage = replace(self._earlier, completion_tokens=tokens)
        return replace(delta, usage=self._usage)

    def may_pause_after(self, delta: GenerationDelta) -> bool:
        """Whether the rest of the answer can be written later."""
        if self.is_complete or not self._is_divisible:
            return False
        if self._usage is None or delta.usage is None or not delta.text:
            return False  # the number of tokens so far is unknown
        most = self._request.sampling.max_tokens
        return most is None or most - self._usage.completion_tokens > ALMOST_DONE

    def pause(self) -> None:
        """End a turn."""
        assert self._usage is not None
        self._earlier = self._usage
        self.rest = self._request.after("".join(self._texts), self._usage.completion_tokens)
