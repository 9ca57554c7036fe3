"""Tools, their calls, and structured answers, as chat bodies have them."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from api.http.schemas import RequestModel

MAX_TOOLS = 128
MAX_CALLS = 128  # in one message

FunctionName = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]
JsonSchema = dict[str, Any]


class CalledFunction(RequestModel):
    name: Annotated[str, Field(min_length=1, max_length=64)]
    arguments: str  # JSON


class ToolCall(RequestModel):
    id: Annotated[str, Field(min_length=1, max_length=200)]
    type: Literal["function"] = "function"
    function: CalledFunction


class Tool(RequestModel):
    """A function that the model may call; `parameters` is a JSON schema of its arguments."""

    name: FunctionName
    description: Annotated[str, Field(max_length=4096)] | None = None
    parameters: JsonSchema | None = None

    def to_openai(self) -> dict[str, Any]:
        """What engines and templates read: nothing that the caller left out is in it."""
        return {"type": "function", "function": self.model_dump(exclude_none=True)}


class OpenAITool(RequestModel):
    """The same in OpenAI's shape."""

    type: Literal["function"]
    function: Tool


class NamedFunction(RequestModel):
    name: FunctionName


class NamedTool(RequestModel):
    type: Literal["function"] = "function"
    function: NamedFunction


ToolChoice = Literal["none", "auto", "required"] | NamedTool


class NamedSchema(RequestModel):
    name: FunctionName
    description: Annotated[str, Field(max_length=4096)] | None = None
    # `schema` is taken by pydantic's own class.
    json_schema: Annotated[JsonSchema, Field(alias="schema")]
    strict: bool | None = None  # answers always obey the schema


class TextFormat(RequestModel):
    type: Literal["text"]


class JsonObjectFormat(RequestModel):
    type: Literal["json_object"]


class JsonSchemaFormat(RequestModel):
    type: Literal["json_schema"]
    json_schema: NamedSchema


ResponseFormat = Annotated[
    TextFormat | JsonObjectFormat | JsonSchemaFormat, Field(discriminator="type")
]


class AnsweredFunction(BaseModel):
    name: str
    arguments: str = Field(description="JSON that obeys the parameters of the tool.")


class AnsweredCall(BaseModel):
    id: str
    type: Literal["function"] = "function"
    function: AnsweredFunction
