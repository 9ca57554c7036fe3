"""Legacy completions for OpenAI's clients: the model continues a text, without a chat template."""

import time
from collections.abc import AsyncGenerator
from secrets import token_hex
from typing import Annotated, Any, Literal

from fastapi.responses import JSONResponse
from pydantic import BaseModel, BeforeValidator, Field, model_validator
from starlette.responses import Response

from api.http.bodies import WHOLE, RequestModel
from api.http.routing import ChatDep, OperationDep, PrincipalDep, make_router
from api.http.streaming import EventStream, error_frame, event_frame
from api.native.chat.completions import DONE, usage_body
from api.native.chat.schemas import Stop, StreamOptions, UsageBody
from api.services import ChatServices
from models.llm.base import ChatMessage, GenerationRequest, SamplingOptions, TokenUsage
from pipelines.billing.operation import Operation
from pipelines.chat.pipeline import DEFAULT_MODEL, ChatRequest, Completion

router = make_router("chat", scope="chat", visitors=True)

MOST_PROMPTS = 20  # LangChain's batch
ANSWER_TOKENS = 16  # OpenAI's default

Prompt = Annotated[str, Field(min_length=1)]
Penalty = Annotated[float, Field(ge=-2, le=2)]


class TextCompletionBody(RequestModel):
    """Texts to continue."""

    model: Annotated[str, Field(max_length=200)] | None = DEFAULT_MODEL
    prompt: Annotated[
        list[Prompt],
        Field(min_length=1, max_length=MOST_PROMPTS),
        BeforeValidator(
            lambda prompt: [prompt] if isinstance(prompt, str) else prompt,
            json_schema_input_type=Prompt | list[Prompt],
        ),
    ]
    max_tokens: Annotated[int, Field(ge=1, le=1_000_000), WHOLE] | None = ANSWER_TOKENS
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    stop: Stop | None = None
    seed: Annotated[int, Field(ge=-(2**63), le=2**63 - 1), WHOLE] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    n: Annotated[int, Field(ge=1, le=1), WHOLE] | None = None
    best_of: Annotated[int, Field(ge=1, le=1), WHOLE] | None = None
    echo: bool | None = None
    logprobs: int | None = None
    suffix: str | None = None
    logit_bias: dict[str, Any] | None = None
    user: str | None = None

    @model_validator(mode="after")
    def _is_supported(self) -> "TextCompletionBody":
        for name in ("echo", "logprobs", "suffix", "logit_bias"):
            if (value := getattr(self, name)) or (name == "logprobs" and value is not None):
                raise ValueError(f"{name}: is not supported; omit this field")
        return self

    def generation(self, prompt: str) -> GenerationRequest:
        """Makes the engine's request for the continuation of a prompt."""
        names = {"temperature", "top_p", "seed", "presence_penalty", "frequency_penalty"}
        options = self.model_dump(include=names, exclude_none=True)
        most = self.max_tokens or ANSWER_TOKENS
        sampling = SamplingOptions(**options, max_tokens=most, stop=tuple(self.stop or ()))
        return GenerationRequest((ChatMessage("user", prompt),), sampling, is_raw=True)


class TextChoice(BaseModel):
    index: int
    text: str
    finish_reason: Literal["stop", "length"] | None
    logprobs: dict[str, Any] | None = None  # never given


class TextCompletion(BaseModel):
    """The continuations of all prompts."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: list[TextChoice]
    usage: UsageBody | None = None


@router.post(
    "/openai/v1/completions",
    summary="Create a text completion, for OpenAI's clients",
    responses=EventStream.documented(
        TextCompletion, "The continuations; with `stream`, their pieces as server-sent events"
    ),
)
async def continue_text(
    body: TextCompletionBody, principal: PrincipalDep, chat: ChatDep, operation: OperationDep
) -> Response:
    """Prompts of a list are continued one after the other. Each continuation is charged when it is
    complete, even if a later one fails."""
    texts = _Texts(body, principal.workspace_id, chat, operation)
    completion = await texts.start(0)  # an early error sets the HTTP status
    if body.stream:
        return EventStream(texts.frames(completion), completion)
    choices = []
    for index in range(len(body.prompt)):
        completion = completion if index == 0 else await texts.start(index)
        async for _ in completion.deltas(is_whole=True):
            pass
        texts.usage += completion.whole_usage
        answer = completion.answer
        choices.append(texts.choice(index, answer.text, answer.finish_reason))
    return JSONResponse(texts.body(choices, texts.usage))


class _Texts:
    """The continuations of a request's prompts, and what they share."""

    def __init__(
        self, body: TextCompletionBody, workspace_id: int, chat: ChatServices, operation: Operation
    ) -> None:
        self._request, self._workspace_id = body, workspace_id
        self._chat, self._operation = chat, operation
        self._head = {"id": f"cmpl-{token_hex(12)}", "object": "text_completion"}
        self._created = int(time.time())
        self._model = ""
        self.usage = TokenUsage(0, 0)

    async def start(self, index: int) -> Completion:
        """Begins a continuation. Raises as `ChatPipeline.start`."""
        completion = await self._chat.completions.start(
            ChatRequest(
                self._workspace_id,
                self._request.generation(self._request.prompt[index]),
                model=self._request.model or DEFAULT_MODEL,
                save_chat=False,
                operation=self._operation,
            )
        )
        self._model = completion.model
        return completion

    def choice(self, index: int, text: str, finish_reason: str | None) -> dict[str, Any]:
        return {"index": index, "text": text, "finish_reason": finish_reason, "logprobs": None}

    def body(self, choices: list[dict[str, Any]], usage: TokenUsage | None) -> dict[str, Any]:
        used = None if usage is None else usage_body(usage)
        named = {**self._head, "created": self._created, "model": self._model}
        return {**named, "choices": choices, "usage": used}

    async def frames(self, completion: Completion) -> AsyncGenerator[bytes, None]:
        """Yields the events of a stream, whose last has the usage. A failure becomes an event."""
        try:
            for index in range(len(self._request.prompt)):
                completion = completion if index == 0 else await self.start(index)
                deltas = completion.deltas()
                try:
                    async for delta in deltas:
                        ended = delta.finish_reason is not None
                        if ended:
                            self.usage += completion.whole_usage
                        if delta.text or ended:
                            choice = self.choice(index, delta.text, delta.finish_reason)
                            is_last = ended and index + 1 == len(self._request.prompt)
                            yield event_frame(self.body([choice], self.usage if is_last else None))
                finally:
                    await deltas.aclose()
        except Exception as error:  # the status line was sent: every failure becomes an event
            yield error_frame(error)
        finally:
            await completion.aclose()  # if the client left before the first delta
        yield DONE
