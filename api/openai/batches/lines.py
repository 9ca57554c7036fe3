"""The lines of a batch file, each of which is a request, and the lines of its result files."""

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
from api.openai.responses import turns
from api.openai.responses.body import ResponsesBody
from api.services import ChatServices
from pipelines.billing.operation import Operation
from pipelines.errors import Overloaded
from pipelines.jobs.batches import numbered_lines

MAX_CUSTOM_ID = 200  # characters


class BatchLine(RequestModel):
    """A request. The line of its result repeats `custom_id`."""

    custom_id: str = Field(min_length=1, max_length=MAX_CUSTOM_ID)
    method: Literal["POST"]
    url: str
    body: dict[str, Any]


def check_ids(path: Path) -> None:
    """Checks that each `custom_id` is unique; blocking. Raises ApiError(validation_error)."""
    lines: dict[str, int] = {}
    for number, line in numbered_lines(path):
        if len(line) > MAX_JSON_BYTES:
            continue
        try:
            custom_id = _custom_id(parse_json(line))
        except ApiError:
            continue
        if custom_id and (first := lines.setdefault(custom_id, number)) != number:
            message = f"custom_id: lines {first} and {number} both have {custom_id!r}"
            raise ApiError("validation_error", message, param="file")


def _custom_id(parsed: Any) -> str | None:
    custom_id = parsed.get("custom_id") if isinstance(parsed, dict) else None
    return custom_id[:MAX_CUSTOM_ID] if isinstance(custom_id, str) else None


async def answer_line(
    chat: ChatServices, endpoint: str, line: bytes, workspace_id: int, operation: Operation
) -> tuple[bytes, bool]:
    """Answers a line; returns the line of the result, and whether it is a success. The result of an
    invalid request is its error. Raises temporary failures of the service."""
    custom_id = None
    status = 200
    try:
        if len(line) > MAX_JSON_BYTES:
            raise ApiError("file_too_large", f"a line is larger than {MAX_JSON_BYTES} bytes")
        parsed = parse_json(line)
        custom_id = _custom_id(parsed)
        request = validated(BatchLine, parsed)
        if request.url != endpoint:
            raise InvalidField("url", f"must be the endpoint of the batch, {endpoint}")
        if request.body.get("stream"):
            raise InvalidField("stream", "is not supported in a batch")
        body = await ENDPOINTS[endpoint](chat, request.body, workspace_id, operation)
    except Exception as error:  # an error of any layer becomes the line's result
        api_error = to_api_error(error)
        if api_error.status == 503:
            raise
        if api_error.status == 429:  # the model's upstream service refused
            raise Overloaded(api_error.message) from error
        status = api_error.status
        body = openai_error(api_error)
    request_id = f"batch_req_{operation.name}"
    response = {"status_code": status, "request_id": request_id, "body": body}
    result = {"id": request_id, "custom_id": custom_id, "response": response, "error": None}
    return f"{json.dumps(result)}\n".encode(), status == 200


async def _complete(
    chat: ChatServices, body: dict[str, Any], workspace_id: int, operation: Operation
) -> dict[str, Any]:
    started_at = time.monotonic()
    completion_body = validated(ChatCompletionBody, body)
    if completion_body.messages is None:
        raise InvalidField("messages", "is required in a batch")
    if completion_body.has_audio:
        raise InvalidField("audio", "is not supported in a batch")
    request = to_chat_request(completion_body, workspace_id, operation, saves=False)
    return await collect(await chat.completions.start(request), started_at)


async def _respond(
    chat: ChatServices, body: dict[str, Any], workspace_id: int, operation: Operation
) -> dict[str, Any]:
    request = await turns.to_chat_request(
        validated(ResponsesBody, body), chat, workspace_id, operation, saves=False
    )
    return await turns.whole(*await turns.start(request, chat))


Answer: TypeAlias = Callable[
    [ChatServices, dict[str, Any], int, Operation], Awaitable[dict[str, Any]]
]
ENDPOINTS: dict[str, Answer] = {"/v1/chat/completions": _complete, "/v1/responses": _respond}
