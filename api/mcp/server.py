"""The MCP server and its tools, on the protocol's own SDK (modelcontextprotocol/python-sdk)."""

import json
import logging
from base64 import b64decode, b64encode
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, NamedTuple

import mcp_types as wire
from anyio import to_thread
from fastapi import Request
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel, Field, model_validator
from starlette import types

from antiphon.version import __version__
from api.dialects.requests import fetched
from api.http.bodies import RequestModel
from api.http.context import context_of
from api.http.errors import ApiError, to_api_error
from api.http.routing import require_scopes, services_of
from api.http.streaming import while_connected
from api.http.uploads import UPLOAD_FOLDERS, validated
from api.native.speech import Ratio, SpokenText
from api.native.transcription import RecordingFields, transcription_result
from configs.settings import BRAND
from pipelines.accounts.authentication import Scope
from pipelines.audio.encode.encoder import CODECS, OutputFormat
from pipelines.temporary_directories import temporary_directory_in_thread
from pipelines.tts.reading import SpeechRequest

logging.getLogger("mcp").setLevel(logging.ERROR)  # it logs each request, and wrong messages

MAX_BYTES = 4 << 20  # of a message; as the SDK allows by default
MAX_SPEECH_BYTES = MAX_BYTES * 3 // 4  # base64 of it is as long as a message may be
Context = ServerRequestContext[Any, Request]


class SpeakArguments(RequestModel):
    """The text to speak, and how."""

    text: SpokenText
    voice: str | None = Field(
        default=None, max_length=200, description="Voice name or id from the tool `voices`."
    )
    speed: Ratio = Field(default=1.0, description="Tempo factor; does not change the pitch.")
    output_format: OutputFormat = Field(
        default="mp3", description="`mp3` and `ogg` fit 5000 characters, `wav` about 500."
    )


class TranscribeArguments(RecordingFields):
    """The recording, and how it is transcribed."""

    audio: str | None = Field(
        default=None, description="Recording as base64 or data URL, at most 3 MB."
    )
    url: str | None = Field(
        default=None,
        max_length=2000,
        description="Public https URL of the recording, in place of `audio`.",
    )

    @model_validator(mode="after")
    def _has_one_source(self) -> "TranscribeArguments":
        if (self.audio is None) == (self.url is None):
            raise ValueError("audio: send either audio or url")
        return self


class VoicesArguments(RequestModel):
    """Which voices are listed."""

    language: str | None = Field(
        default=None,
        max_length=35,
        description="Such as `en`: its own and custom voices, else all that can speak it.",
    )


async def _speak(request: Request, asked: SpeakArguments) -> wire.CallToolResult:
    context = context_of(request)
    workspace_id = context.principal.workspace_id
    synthesis = services_of(request).speech.synthesis
    wanted = SpeechRequest(
        text=asked.text, voice=asked.voice, speed=asked.speed, workspace_id=workspace_id
    )
    plan = await synthesis.plan(wanted, workspace_id)
    _, file = await synthesis.speak_file(
        plan, workspace_id, context.operation, asked.output_format, MAX_SPEECH_BYTES
    )
    await context.take_memory(2 * file.file.size)
    data = await to_thread.run_sync(lambda: b64encode(file.data).decode("ascii"))
    file.file.close()
    audio = wire.AudioContent(data=data, mime_type=CODECS[asked.output_format].media_type)
    said = f"{file.duration_s:.1f} seconds of speech with the voice {plan.voice.info.name}"
    if plan.unread:
        said += f"; no voice reads {', '.join(plan.unread)}"
    return wire.CallToolResult(content=[audio, wire.TextContent(text=said)])


async def _transcribe(request: Request, asked: TranscribeArguments) -> wire.CallToolResult:
    context = context_of(request)
    workspace_id = context.principal.workspace_id
    speech = services_of(request).speech
    marks = asked.redaction("mark")
    known = await speech.speakers.named(context.principal, asked.known_speakers)
    await speech.transcription.check_credit(workspace_id, context.operation)
    async with AsyncExitStack() as stack:
        if asked.url is not None:
            path = await stack.enter_async_context(
                fetched(request, speech, asked.url, watches=False)
            )
        else:
            folder = temporary_directory_in_thread(UPLOAD_FOLDERS)
            path = await stack.enter_async_context(folder) / "0"
            text = (asked.audio or "").partition("base64,")
            try:
                data = await to_thread.run_sync(
                    partial(b64decode, validate=True), text[2] or text[0]
                )
            except ValueError:
                raise ApiError("validation_error", "audio: must be valid base64") from None
            await to_thread.run_sync(path.write_bytes, data)
        result = await speech.transcription.transcribe(
            workspace_id,
            context.operation,
            path,
            asked.recognition(),
            lambda transcript: transcription_result(transcript, asked.timestamps, marks),
            known=known,
        )
    return _structured(result.model_dump(exclude_none=True))


async def _voices(request: Request, asked: VoicesArguments) -> wire.CallToolResult:
    directory = services_of(request).voices.custom.directory
    found = await directory.voices(context_of(request).principal.workspace_id)
    if asked.language is not None:
        language = asked.language.lower()[:2]
        found = [one for one in found if one.speaks(language)]
        own = [one for one in found if one.custom or one.language == language]
        found = own or found
    listed = [
        {name: getattr(one.info, name) for name in ("name", "language", "gender", "accent")}
        | {"id": one.id, "is_custom": one.custom is not None}
        for one in found
    ]
    return _structured({"voices": listed})


def _structured(value: dict[str, Any]) -> wire.CallToolResult:
    """The value, and the same as text for clients that read only that."""
    text = wire.TextContent(text=json.dumps(value, ensure_ascii=False))
    return wire.CallToolResult(content=[text], structured_content=value)


class _Tool(NamedTuple):
    scope: Scope
    arguments: type[BaseModel]
    run: Callable[[Request, Any], Coroutine[Any, Any, wire.CallToolResult]]
    about: str


TOOLS = {
    "speak": _Tool(
        "tts", SpeakArguments, _speak, "Converts text to speech. Returns an audio file."
    ),
    "transcribe": _Tool("stt", TranscribeArguments, _transcribe, "Transcribes a recording."),
    "voices": _Tool("tts", VoicesArguments, _voices, "Lists the voices for `speak`."),
}


async def _list_tools(
    context: Context, _: wire.PaginatedRequestParams | None
) -> wire.ListToolsResult:
    """Those that the key may use."""
    assert context.request is not None
    hints = wire.ToolAnnotations(read_only_hint=True, open_world_hint=False)
    tools = [
        wire.Tool(
            name=name,
            description=tool.about,
            input_schema=tool.arguments.model_json_schema(),
            annotations=hints,
        )
        for name, tool in TOOLS.items()
        if tool.scope in context_of(context.request).principal.scopes
    ]
    return wire.ListToolsResult(tools=tools)


async def _call_tool(context: Context, params: wire.CallToolRequestParams) -> wire.CallToolResult:
    """A failure is a result that says so, from which a language model can learn."""
    assert context.request is not None
    request, tool = context.request, TOOLS.get(params.name)
    if tool is None:
        raise MCPError(wire.INVALID_PARAMS, f"the tools are {', '.join(TOOLS)}")
    try:
        authenticator = services_of(request).platform.accounts.authenticator
        principal = context_of(request).principal
        require_scopes(authenticator, principal, (tool.scope,), visitors=False)
        arguments = validated(tool.arguments, params.arguments or {})
        # A task of its own: the SDK cancels again and again, also what only cleans up.
        return await while_connected(request.receive, tool.run(request, arguments))
    except Exception as error:  # any: a model reads it, and the SDK would show its text
        shown = to_api_error(error)
        message = shown.message.replace("GET /default-voices", "the tool `voices`")
        text = wire.TextContent(text=f"{shown.code}: {message}")
        return wire.CallToolResult(content=[text], is_error=True)


SERVER = Server[Any](
    BRAND,
    version=__version__,
    instructions="Text to speech and speech to text of this service.",
    on_list_tools=_list_tools,
    on_call_tool=_call_tool,
)


async def handle(scope: types.Scope, receive: types.Receive, send: types.Send) -> None:
    """Answers one request of HTTP."""
    manager = StreamableHTTPSessionManager(
        SERVER, json_response=True, stateless=True, max_request_body_size=MAX_BYTES
    )
    async with manager.run():
        await manager.handle_request(scope, receive, send)
