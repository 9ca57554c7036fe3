"""MCP server and its tools, on the official SDK (modelcontextprotocol/python-sdk)."""

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
from api.http.bodies import NullAsAbsent, RequestModel
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

logging.getLogger("mcp").setLevel(logging.ERROR)  # it logs every request and malformed message

MAX_BYTES = 4 << 20  # message size, the SDK's default
MAX_SPEECH_BYTES = MAX_BYTES * 3 // 4  # fits into a message as base64
Context = ServerRequestContext[Any, Request]


class SpeakArguments(RequestModel):
    """Text to speak, with its voice, speed and file format."""

    text: SpokenText
    voice: str | None = Field(
        default=None, max_length=200, description="Voice name or id from the tool `voices`."
    )
    speed: Ratio = Field(default=1.0, description="Tempo factor; does not change the pitch.")
    output_format: OutputFormat = Field(
        default="mp3", description="`mp3` and `ogg` hold 5000 characters of text, `wav` about 500."
    )


class TranscribeArguments(NullAsAbsent, RecordingFields):
    """Recording to transcribe, and recognition options."""

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
    """Filter of the listed voices."""

    language: str | None = Field(
        default=None,
        max_length=35,
        description="Language code such as `en`. Lists custom voices and voices made for the "
        "language or, if there are none, all that can speak it.",
    )


async def _speak(request: Request, arguments: SpeakArguments) -> wire.CallToolResult:
    context = context_of(request)
    workspace_id = context.principal.workspace_id
    synthesis = services_of(request).speech.synthesis
    speech_request = SpeechRequest(
        text=arguments.text, voice=arguments.voice, speed=arguments.speed, workspace_id=workspace_id
    )
    plan = await synthesis.plan(speech_request, workspace_id)
    _, file = await synthesis.speak_file(
        plan, workspace_id, context.operation, arguments.output_format, MAX_SPEECH_BYTES
    )
    await context.take_memory(2 * file.file.size)
    data = await to_thread.run_sync(lambda: b64encode(file.data).decode("ascii"))
    file.file.close()
    audio = wire.AudioContent(data=data, mime_type=CODECS[arguments.output_format].media_type)
    summary = f"{file.duration_s:.1f} seconds of speech with the voice {plan.voice.info.name}"
    if plan.unread:
        summary += f"; no voice reads {', '.join(plan.unread)}"
    summary += "".join(f"; {warning}" for warning in plan.warnings)
    return wire.CallToolResult(content=[audio, wire.TextContent(text=summary)])


async def _transcribe(request: Request, arguments: TranscribeArguments) -> wire.CallToolResult:
    context = context_of(request)
    workspace_id = context.principal.workspace_id
    speech = services_of(request).speech
    marks = arguments.redaction("mark")
    known_speakers = await speech.speakers.named(context.principal, arguments.known_speakers)
    await speech.transcription.check_credit(workspace_id, context.operation)
    async with AsyncExitStack() as stack:
        if arguments.url is not None:
            path = await stack.enter_async_context(
                fetched(request, speech, arguments.url, watches=False)
            )
        else:
            folder = temporary_directory_in_thread(UPLOAD_FOLDERS)
            path = await stack.enter_async_context(folder) / "0"
            head, _, tail = (arguments.audio or "").partition("base64,")  # head of a data URL
            try:
                data = await to_thread.run_sync(partial(b64decode, validate=True), tail or head)
            except ValueError:
                raise ApiError("validation_error", "audio: must be valid base64") from None
            await to_thread.run_sync(path.write_bytes, data)
        result = await speech.transcription.transcribe(
            workspace_id,
            context.operation,
            path,
            arguments.recognition(),
            lambda transcript: transcription_result(transcript, arguments.timestamps, marks),
            known=known_speakers,
        )
    return _structured(result.model_dump(exclude_none=True))


async def _voices(request: Request, arguments: VoicesArguments) -> wire.CallToolResult:
    directory = services_of(request).voices.custom.directory
    voices = await directory.voices(context_of(request).principal.workspace_id)
    if arguments.language is not None:
        language = arguments.language.lower()[:2]
        voices = [voice for voice in voices if voice.speaks(language)]
        voices = [voice for voice in voices if voice.custom or voice.language == language] or voices
    listed = [
        {name: getattr(voice.info, name) for name in ("name", "language", "gender", "accent")}
        | {"id": voice.id, "is_custom": voice.custom is not None}
        for voice in voices
    ]
    return _structured({"voices": listed})


def _structured(value: dict[str, Any]) -> wire.CallToolResult:
    """Returns structured content, and the same as text for clients that read only text."""
    text = wire.TextContent(text=json.dumps(value, ensure_ascii=False))
    return wire.CallToolResult(content=[text], structured_content=value)


class _Tool(NamedTuple):
    scope: Scope
    arguments: type[BaseModel]
    run: Callable[[Request, Any], Coroutine[Any, Any, wire.CallToolResult]]
    description: str


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
    """Lists the tools that the key may use."""
    assert context.request is not None
    hints = wire.ToolAnnotations(read_only_hint=True, open_world_hint=False)
    tools = [
        wire.Tool(
            name=name,
            description=tool.description,
            input_schema=tool.arguments.model_json_schema(),
            annotations=hints,
        )
        for name, tool in TOOLS.items()
        if tool.scope in context_of(context.request).principal.scopes
    ]
    return wire.ListToolsResult(tools=tools)


async def _call_tool(context: Context, params: wire.CallToolRequestParams) -> wire.CallToolResult:
    """Calls a tool. A failure is returned as a result, which a language model can act on."""
    assert context.request is not None
    request = context.request
    tool = TOOLS.get(params.name)
    if tool is None:
        raise MCPError(wire.INVALID_PARAMS, f"the tools are {', '.join(TOOLS)}")
    try:
        authenticator = services_of(request).platform.accounts.authenticator
        require_scopes(authenticator, context_of(request).principal, (tool.scope,), visitors=False)
        arguments = validated(tool.arguments, params.arguments or {})
        # Runs as a separate task: the SDK cancels repeatedly, which would interrupt cleanup.
        return await while_connected(request.receive, tool.run(request, arguments))
    except Exception as error:  # any layer may raise; the SDK would expose internal errors
        failure = to_api_error(error)
        message = failure.message.replace("GET /default-voices", "the tool `voices`")
        text = wire.TextContent(text=f"{failure.code}: {message}")
        return wire.CallToolResult(content=[text], is_error=True)


SERVER = Server[Any](
    BRAND,
    version=__version__,
    instructions="Text to speech and speech to text of this service.",
    on_list_tools=_list_tools,
    on_call_tool=_call_tool,
)


async def handle(scope: types.Scope, receive: types.Receive, send: types.Send) -> None:
    """Answers one HTTP request (an ASGI application)."""
    manager = StreamableHTTPSessionManager(
        SERVER, json_response=True, stateless=True, max_request_body_size=MAX_BYTES
    )
    async with manager.run():
        await manager.handle_request(scope, receive, send)
