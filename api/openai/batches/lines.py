"""The lines of a batch, each with the body of a request, and those of its results."""

import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Literal, TypeAlias

from pydantic import Field

from api.http.bodies import MAX_JSON_BYTES, RequestModel, parse_json
from api.http.errors import ApiError, InvalidField, openai_error, to_api_error
from api.http.uploads import validated
from api.native.chat.completions import collect, to_chat_request
from api.native.chat.schemas import ChatCompletionBody
from api.openai.responses.body import ResponsesBody
from api.openai.responses.routes import begin, whole
from api.services import ChatServices
from pipelines.billing.operation import Operation
from pipelines.errors import Overloaded

MAX_CUSTOM_ID = 200  # characters


class BatchLine(RequestModel):
    """A request; `custom_id` is repeated in its result."""

    custom_id: str = Field(min_length=1, max_length=MAX_CUSTOM_ID)
    method: Literal["POST"]
    url: str
    body: dict[str, Any]


def check_ids(path: Path) -> None:
    """Raises ApiError(validation_error) where two lines have one `custom_id`: their results could
    not be told apart. Lines that cannot be read are failed ones of the result. Blocking."""
    lines: dict[str, int] = {}
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if len(line) > MAX_JSON_BYTES or not line.strip():
                continue
            try:
                custom_id = _custom_id(parse_json(line))
            except ApiError:
                continue
            if custom_id and (first := lines.setdefault(custom_id, number)) != number:
                message = f"custom_id: lines {first} and {number} both have {custom_id!r}"
                raise ApiError("validation_error", message, param="file")


def _custom_id(parsed: Any) -> str | None:
    found = parsed.get("custom_id") if isinstance(parsed, dict) else None
    return found[:MAX_CUSTOM_ID] if isinstance(found, str) else None


async def answer_line(
    chat: ChatServices, endpoint: str, line: bytes, workspace_id: int, operation: Operation
) -> tuple[bytes, bool]:
    """The line of the result, and whether it is one of an answer: a wrong request is a failed line.

    Nothing is saved. Raises failures of the service that may pass.
    """
    custom_id, status = None, 200
    try:
        if len(line) > MAX_JSON_BYTES:
            raise ApiError("file_too_large", f"a line is larger than {MAX_JSON_BYTES} bytes")
        parsed = parse_json(line)
        custom_id = _custom_id(parsed)
        asked = validated(BatchLine, parsed)
        if asked.url != endpoint:
            raise InvalidField("url", f"the batch is one of {endpoint}")
        if asked.body.get("stream"):
            raise InvalidField("stream", "a line is answered whole")
        body = await ENDPOINTS[endpoint](chat, asked.body, workspace_id, operation)
    except Exception as error:  # of any layer: a line that cannot be answered is one of the result
        shown = to_api_error(error)
        if shown.status == 503:
            raise
        if shown.status == 429:  # of a server that the model is asked of
            raise Overloaded(shown.message) from error
        status, body = shown.status, openai_error(shown)
    request_id = f"batch_req_{operation.name}"
    response = {"status_code": status, "request_id": request_id, "body": body}
    made = {"id": request_id, "custom_id": custom_id, "response": response, "error": None}
    return f"{json.dumps(made)}\n".encode(), status == 200


async def _complete(
    chat: ChatServices, body: dict[str, Any], workspace_id: int, operation: Operation
) -> dict[str, Any]:
    began, asked = time.monotonic(), validated(ChatCompletionBody, body)
    if asked.messages is None:
        raise InvalidField("messages", "a line has messages")
    request = to_chat_request(asked, workspace_id, operation, saves=False)
    return await collect(await chat.completions.start(request), began)


async def _respond(
    chat: ChatServices, body: dict[str, Any], workspace_id: int, operation: Operation
) -> dict[str, Any]:
    asked = validated(ResponsesBody, body)
    return await whole(*await begin(asked, chat, workspace_id, operation, saves=False))


Answer: TypeAlias = Callable[
    [ChatServices, dict[str, Any], int, Operation], Awaitable[dict[str, Any]]
]
ENDPOINTS: dict[str, Answer] = {"/v1/chat/completions": _complete, "/v1/responses": _respond}
