"""The protocol of `/ws/tts`, in which clients create, fill, flush and close contexts."""

import uuid
from functools import partial
from typing import Any, get_args

from api.http.errors import CODED, to_api_error
from api.sockets.kernel.conversation import ClientFault, checked
from api.sockets.kernel.routes import SocketRoute, socket_routes
from api.sockets.tts.contexts import ContextsConversation
from api.sockets.tts.events import (
    MESSAGES,
    AudioConfig,
    CreateContext,
    SendText,
    TTSClientMessage,
    TtsWire,
    context_event,
    excerpt,
    parse_message,
    pitch_ratio,
    tts_error,
)
from pipelines.audio.encode.formats import AudioEncoding, open_socket_encoder, usable_pair
from pipelines.tts.reading import SpeechRequest
from pipelines.tts.session import MAX_CONTEXTS, ContextFault, SpeakingContext, SpeechStream

ENCODINGS = get_args(AudioEncoding)
SAMPLE_RATES = (8000, 16_000, 24_000, 48_000)


class TtsConversation(ContextsConversation):
    """One socket, with up to five contexts, each of which has a task that speaks. Clients flush the
    buffers themselves. The socket closes with its last context."""

    async def receive_text(self, text: str) -> None:
        name, body = parse_message(text)
        try:
            message = checked(MESSAGES[name], body, name)
        except ClientFault as fault:
            raise self._with_context(fault, body) from None
        if isinstance(message, CreateContext):
            await self._create(message)
            return
        context = self._find(message)
        try:
            if isinstance(message, SendText):
                context.add_text(message.text)
            elif name == "flush_context":
                context.flush()
            else:
                context.close()
        except ContextFault as fault:
            text = str(fault)
            raise ClientFault(text, tts_error(text, context.context_id)) from None

    def error(self, message: str) -> str:
        return tts_error(message)

    async def _create(self, message: CreateContext) -> None:
        context_id = message.context_id or str(uuid.uuid4())
        if context_id in self.contexts:
            text = "a context with this context_id is open already"
            raise ClientFault(text, tts_error(text, context_id))
        if self.contexts.is_full:
            raise ClientFault(f"a socket has at most {MAX_CONTEXTS} open contexts")
        if not (message.voice_id or "").strip():
            raise ClientFault("voice_id required")
        encoding, sample_rate_hz = _format_of(message.audio_config)
        encoding, sample_rate_hz = usable_pair(encoding, sample_rate_hz)
        style = SpeechRequest(
            text="",
            speed=message.speaking_rate,
            pitch=pitch_ratio(message.pitch),
            stability=message.stability,
            timings=message.timestamps,
            pronunciations=message.pronunciations,
        )
        caller = self.caller
        try:
            voice = await caller.directory.find_named(message.voice_id or "", caller.workspace_id)
        except CODED as error:
            raise ClientFault(to_api_error(error).message) from None
        stream = SpeechStream(
            synthesis=caller.speech.synthesis,
            workspace_id=caller.workspace_id,
            voice=voice,
            style=style,
            make_encoder=partial(open_socket_encoder, encoding, sample_rate_hz),
            operation=caller.operation,
            boost_volume=message.boost_volume,
            slow_encoder=encoding == "OGG_OPUS",
        )
        wire = TtsWire(context_id, stream.unread, stream.warnings)
        context = SpeakingContext(context_id, stream, wire, self.session.send_speech)
        self.contexts.open(context)
        await self.session.send(context_event("context_created", context_id))
        self.contexts.start(context)

    def on_closed(self, context_id: str) -> None:
        if not self.contexts:
            self.session.finish()

    def _with_context(self, fault: ClientFault, body: Any) -> ClientFault:
        """Adds the id of the context in the body to a fault, if that context is open."""
        context_id = body.get("context_id") if isinstance(body, dict) else None
        if isinstance(context_id, str) and context_id in self.contexts:
            return ClientFault(fault.message, tts_error(fault.message, context_id))
        return fault

    def _find(self, message: TTSClientMessage) -> SpeakingContext:
        """Finds the context of a message; the only open one needs no id. Raises ClientFault."""
        context_id = message.context_id
        context = self.contexts.find(context_id)
        if context is not None:
            return context
        if not self.contexts and not self.contexts.closed_ids:
            raise ClientFault("create_context must come first")
        if context_id is None:
            raise ClientFault("context_id required: several contexts are open")
        text = f"no context has the context_id {excerpt(context_id)}"
        was_open = context_id in self.contexts.closed_ids
        raise ClientFault(text, tts_error(text, context_id if was_open else None))


def _format_of(config: AudioConfig) -> tuple[AudioEncoding, int]:
    """Returns the encoding and sample rate (Hz). Raises ClientFault if one is not supported."""
    encoding = config.audio_encoding
    rate = config.sample_rate_hertz
    if encoding not in ENCODINGS:
        raise ClientFault(f"Unsupported audio_encoding: {excerpt(encoding)}")
    if rate not in SAMPLE_RATES:  # may be a float: JSON does not distinguish 16000 from 16000.0
        raise ClientFault(f"Unsupported sample_rate_hertz: {excerpt(rate)}")
    return encoding, int(rate)


routes = socket_routes("/ws/tts", SocketRoute("tts", TtsConversation, ("tts",), visitors=True))
