"""The body of POST /openai/v1/responses."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PrivateAttr, ValidationError, model_validator

from api.http.bodies import WHOLE, RequestModel, refused
from api.http.errors import first_fault
from api.native.chat.schemas import (
    MAX_TOOLS,
    AnswerFields,
    Effort,
    FunctionName,
    JsonObjectFormat,
    NamedSchema,
    TextFormat,
    Tool,
)
from api.openai.realtime.session_object import Metadata
from api.openai.responses.items import ResponseInput
from api.sockets.tts.events import excerpt
from models.llm.structured_output.keywords import enforced

LOGPROBS = "message.output_text.logprobs"


def _only_function(value: Any) -> Any:
    """Refuses tools of other types, such as web_search, with a message that names the type."""
    if isinstance(value, dict) and (kind := value.get("type")) != "function":
        raise ValueError(f"'{excerpt(kind)}' is not supported, only 'function'")
    return value


class FunctionTool(Tool):
    """A function that the client runs. Its arguments match the schema in `parameters`."""

    type: Literal["function"]

    @property
    def is_strict(self) -> bool:
        """Whether the whole schema is enforced. OpenAI's default in this API depends on the schema:
        https://developers.openai.com/api/docs/guides/function-calling#strict-mode"""
        if self.strict is None:
            return bool(enforced(self.parameters) == self.parameters)
        return self.strict


class ChosenFunction(RequestModel):
    """The function that the model must call."""

    type: Literal["function"]
    name: FunctionName


class NamedSchemaFormat(NamedSchema):
    """A JSON answer that matches `schema`."""

    type: Literal["json_schema"]


class TextOptions(RequestModel):
    """The format of the answer."""

    format: (
        Annotated[TextFormat | JsonObjectFormat | NamedSchemaFormat, Field(discriminator="type")]
        | None
    ) = None


class ReasoningOptions(RequestModel):
    """Reasoning of models that support it. It is on if the effort is `low` or higher."""

    effort: Effort | None = None


class ResponsesBody(RequestModel):
    """A turn of a chat: the input, the options, and the response that it continues."""

    of_visitors = {"store": False, "previous_response_id": None}

    model: Annotated[str, Field(max_length=200)] | None = None
    input: ResponseInput
    instructions: str | None = None
    previous_response_id: Annotated[str, Field(max_length=200)] | None = None
    store: bool | None = None
    stream: bool | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    max_output_tokens: Annotated[int, Field(ge=1, le=1_000_000), WHOLE] | None = None
    tools: (
        Annotated[
            list[Annotated[FunctionTool, BeforeValidator(_only_function)]],
            Field(max_length=MAX_TOOLS),
        ]
        | None
    ) = None
    tool_choice: Annotated[
        Literal["none", "auto", "required"] | ChosenFunction | None, BeforeValidator(_only_function)
    ] = None
    parallel_tool_calls: bool | None = None
    text: TextOptions | None = None
    reasoning: ReasoningOptions | None = None
    metadata: Metadata | None = None
    truncation: Literal["auto", "disabled"] | None = None
    include: Annotated[list[Annotated[str, Field(max_length=64)]], Field(max_length=20)] | None = (
        None
    )
    top_logprobs: Annotated[int, Field(ge=0, le=0), WHOLE] | None = None
    background: Annotated[None, refused("background responses are not supported; use stream")] = (
        None
    )
    conversation: Annotated[None, refused("is not supported; send previous_response_id")] = None
    prompt: Annotated[None, refused("is not supported; send instructions and input")] = None

    _answer: AnswerFields = PrivateAttr()

    @model_validator(mode="after")
    def _is_answerable(self) -> "ResponsesBody":
        if LOGPROBS in (self.include or ()):
            raise ValueError(f"include: {LOGPROBS} is not supported; omit it")
        try:
            self._answer = AnswerFields.model_validate(self._fields())
        except ValidationError as error:
            field, text = first_fault(error)
            raise ValueError(f"{field}: {text}" if field else text) from None
        return self

    @property
    def answer(self) -> AnswerFields:
        return self._answer

    def response_fields(self) -> dict[str, Any]:
        """Returns the options as they appear in the response, with defaults filled in."""
        sampling = self._answer.sampling()
        text = self.text and self.text.format
        return {
            "instructions": self.instructions,
            "max_output_tokens": self.max_output_tokens,
            "metadata": self.metadata or {},
            "parallel_tool_calls": self.parallel_tool_calls is not False,
            "previous_response_id": self.previous_response_id,
            "reasoning": {"effort": self.reasoning and self.reasoning.effort, "summary": None},
            "temperature": sampling.temperature,
            "text": {"format": (text or TextFormat(type="text")).model_dump(by_alias=True)},
            "tool_choice": self.tool_choice.model_dump()
            if isinstance(self.tool_choice, ChosenFunction)
            else self.tool_choice or "auto",
            "tools": [{**tool.model_dump(), "strict": tool.is_strict} for tool in self.tools or ()],
            "top_p": sampling.top_p,
            "truncation": self.truncation or "disabled",
        }

    def _fields(self) -> dict[str, Any]:
        choice: Any = self.tool_choice
        if isinstance(choice, ChosenFunction):
            choice = {"type": "function", "function": {"name": choice.name}}
        form: Any = self.text and self.text.format
        if isinstance(form, NamedSchemaFormat):
            schema = form.model_dump(by_alias=True, exclude={"type"}, exclude_none=True)
            form = {"type": "json_schema", "json_schema": schema}
        elif form is not None:
            form = form.model_dump()
        return {
            "temperature": self.temperature,
            "top_p": self.top_p,
            "max_tokens": self.max_output_tokens,
            "tools": [
                {"type": "function", "function": tool.model_dump(exclude={"type"})}
                for tool in self.tools or ()
            ],
            "tool_choice": choice,
            "parallel_tool_calls": self.parallel_tool_calls,
            "response_format": form,
            "reasoning_effort": self.reasoning and self.reasoning.effort,
        }
