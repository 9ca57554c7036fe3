"""The response object of the Responses dialect, and the events that build it, item by item."""

from collections.abc import Iterator
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel, Field

from api.http.errors import to_api_error
from models.llm.base import FinishReason, GenerationDelta, TokenUsage

ItemStatus = Literal["in_progress", "completed", "incomplete"]
ResponseStatus = Literal["in_progress", "completed", "incomplete", "cancelled", "failed"]
Event: TypeAlias = dict[str, Any]


class OutputText(BaseModel):
    type: Literal["output_text"] = "output_text"
    text: str = ""
    annotations: list[dict[str, Any]] = []
    logprobs: list[dict[str, Any]] = []


class ReasoningText(BaseModel):
    type: Literal["reasoning_text"] = "reasoning_text"
    text: str = ""


class OutputMessage(BaseModel):
    type: Literal["message"] = "message"
    id: str
    status: ItemStatus = "in_progress"
    role: Literal["assistant"] = "assistant"
    content: list[OutputText] = []


class OutputCall(BaseModel):
    type: Literal["function_call"] = "function_call"
    id: str
    status: ItemStatus = "in_progress"
    call_id: str
    name: str
    arguments: str = Field(default="", description="Arguments as JSON, valid for the tool.")


class OutputReasoning(BaseModel):
    type: Literal["reasoning"] = "reasoning"
    id: str
    status: ItemStatus = "in_progress"
    summary: list[dict[str, Any]] = []
    content: list[ReasoningText] = []


class ResponseUsage(BaseModel):
    input_tokens: int
    input_tokens_details: dict[Literal["cached_tokens", "cache_write_tokens"], int]
    output_tokens: int
    output_tokens_details: dict[Literal["reasoning_tokens"], int]
    total_tokens: int


class ResponseObject(BaseModel):
    """A response that is in progress or has ended."""

    id: str
    object: Literal["response"] = "response"
    created_at: int  # Unix seconds
    status: ResponseStatus = "in_progress"
    model: str  # id of the model that answers, whatever name the request used
    output: list[OutputMessage | OutputCall | OutputReasoning] = []
    usage: ResponseUsage | None = None
    error: dict[Literal["code", "message"], str] | None = None
    incomplete_details: dict[Literal["reason"], Literal["max_output_tokens"]] | None = None
    background: bool = False
    store: bool = Field(description="True if the response is stored.")
    # The options of the request, with defaults filled in.
    instructions: str | None
    max_output_tokens: int | None
    metadata: dict[str, str]
    parallel_tool_calls: bool
    previous_response_id: str | None
    reasoning: dict[str, str | None]
    temperature: float | None  # None: the model's default
    text: dict[str, dict[str, Any]]
    tool_choice: str | dict[str, str]
    tools: list[dict[str, Any]]
    top_p: float | None
    truncation: Literal["auto", "disabled"]


class ResponseWriter:
    """Adds an answer to its response; each method returns the events of that change."""

    def __init__(self, response: ResponseObject, digits: str) -> None:
        """Begins with an empty response; the ids of all its items contain `digits`."""
        self.response = response
        self._digits = digits
        self._events = 0
        self._pieces: list[str] = []  # deltas of the last item
        self._call = -1  # index of the call in progress

    def begin(self) -> list[Event]:
        return [self._state("created"), self._state("in_progress")]

    def push(self, delta: GenerationDelta) -> list[Event]:
        return [*self._push(delta)]

    def end(self, reason: FinishReason | None, usage: TokenUsage) -> list[Event]:
        """Ends the response; `reason` is None if the client left before the end."""
        response = self.response
        status: ItemStatus = "incomplete" if reason in (None, "length") else "completed"
        response.status = status
        if reason == "length":
            response.incomplete_details = {"reason": "max_output_tokens"}
        response.usage = ResponseUsage(
            input_tokens=usage.prompt_tokens,
            # Writing a prompt cache costs nothing here.
            input_tokens_details={"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
            output_tokens=usage.completion_tokens,
            output_tokens_details={"reasoning_tokens": 0},  # engines do not count them separately
            total_tokens=usage.total_tokens,
        )
        events: list[Event] = []
        if reason == "stop":  # clients then expect a text, even if it is empty
            events += self._open_text(OutputMessage)
        return [*events, *self._close(status), self._state(status)]

    def cancel(self) -> list[Event]:
        """Ends the response at the client's request. The API has no event for this, so the last
        event is `response.incomplete`, with the status "cancelled"."""
        self.response.status = "cancelled"
        return [*self._close("incomplete"), self._state("incomplete")]

    def fail(self, error: Exception) -> list[Event]:
        api_error = to_api_error(error)
        code = "server_error" if api_error.status >= 500 else api_error.code
        self.response.status = "failed"
        self.response.error = {"code": code, "message": api_error.message}
        return [*self._close("incomplete"), self._state("failed")]

    def _push(self, delta: GenerationDelta) -> Iterator[Event]:
        if delta.reasoning:
            yield from self._open_text(OutputReasoning)
            yield self._piece("reasoning_text", delta.reasoning, content_index=0)
        if delta.text:
            yield from self._open_text(OutputMessage)
            yield self._piece("output_text", delta.text, content_index=0, logprobs=[])
        for call in delta.tool_calls:
            if call["index"] != self._call:
                yield from self._open_call(call)
            if arguments := call["function"].get("arguments"):
                yield self._piece("function_call_arguments", arguments)

    def _open_text(self, kind: type[OutputMessage] | type[OutputReasoning]) -> Iterator[Event]:
        """Opens an item of that kind, unless the last item is one and can be continued."""
        output = self.response.output
        if output and isinstance(output[-1], kind):
            return
        count = sum(isinstance(item, kind) for item in output)
        prefix = "msg" if kind is OutputMessage else "rs"
        number = f"_{count}" if count else ""
        yield from self._open(kind(id=f"{prefix}_{self._digits}{number}"))
        part = OutputText() if kind is OutputMessage else ReasoningText()
        yield self._event("content_part.added", content_index=0, part=part.model_dump())

    def _open_call(self, call: dict[str, Any]) -> Iterator[Event]:
        number = call["index"]
        name = call["function"]["name"]
        item = OutputCall(id=f"fc_{self._digits}_{number}", call_id=call["id"], name=name)
        yield from self._open(item)
        self._call = number

    def _open(self, item: OutputMessage | OutputCall | OutputReasoning) -> Iterator[Event]:
        yield from self._close("completed")
        self.response.output.append(item)
        self._pieces = []
        self._call = -1
        yield self._numbered("output_item.added", output_index=self._index, item=item.model_dump())

    def _piece(self, kind: str, text: str, **fields: Any) -> Event:
        self._pieces.append(text)
        return self._event(f"{kind}.delta", delta=text, **fields)

    def _close(self, status: ItemStatus) -> Iterator[Event]:
        """Ends the last item."""
        if not self.response.output:
            return
        item = self.response.output[-1]
        text = "".join(self._pieces)
        item.status = status
        match item:
            case OutputCall():
                item.arguments = text
                yield self._event("function_call_arguments.done", name=item.name, arguments=text)
            case OutputMessage():
                item.content = [OutputText(text=text)]
                yield self._event("output_text.done", content_index=0, text=text, logprobs=[])
            case OutputReasoning():
                item.content = [ReasoningText(text=text)]
                yield self._event("reasoning_text.done", content_index=0, text=text)
        if not isinstance(item, OutputCall):
            part = item.content[0].model_dump()
            yield self._event("content_part.done", content_index=0, part=part)
        yield self._numbered("output_item.done", output_index=self._index, item=item.model_dump())

    @property
    def _index(self) -> int:
        return len(self.response.output) - 1

    def _event(self, kind: str, **fields: Any) -> Event:
        """Makes an event about the last item."""
        item_id = self.response.output[-1].id
        return self._numbered(kind, item_id=item_id, output_index=self._index, **fields)

    def _state(self, kind: str) -> Event:
        return self._numbered(kind, response=self.response.model_dump())

    def _numbered(self, kind: str, **fields: Any) -> Event:
        event = {"type": f"response.{kind}", "sequence_number": self._events, **fields}
        self._events += 1
        return event
