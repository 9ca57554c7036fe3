"""Every typed endpoint and socket of the dialects, and the type that the vendor's SDK has for it.

A new endpoint is a row of REQUESTS, a new socket a row of SOCKETS. Imported only by the interpreter
of .venv-clients.
"""

import json
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from assemblyai.streaming.v3.models import EventMessage
from cartesia.types import (
    AccessTokenCreateResponse,
    STTTranscribeResponse,
    TTSSSEEvent,
    VoiceMetadata,
    WebsocketResponse,
)
from cartesia.types import Voice as CartesiaVoice
from cartesia.types.stt import STTAutoFinalizeWebsocketResponse, STTManualFinalizeWebsocketResponse
from deepgram import types as deepgram
from deepgram.listen.v1.socket_client import V1SocketClientResponse as ListenEvent
from deepgram.listen.v2.socket_client import V2SocketClientResponse as FluxEvent
from deepgram.speak.v1.socket_client import V1SocketClientResponse as SpeakEvent
from deepgram.speak.v2.socket_client import V2SocketClientResponse as TurnEvent
from elevenlabs import types as elevenlabs
from openai import types as openai
from openai.types import audio, chat, realtime, responses
from pydantic import Discriminator, Tag

from tests.clients.openai_texts import CALL, MODEL

Json = dict[str, Any]

TEXT = "A sentence for the room. And one more."
RATE = 16_000  # Hz, of the recording
AUDIO = object()  # of the messages of a socket: the recording and silence, in pieces
KEYS = {
    "/openai/": {"Authorization": "Bearer {key}"},
    "/cartesia/": {"X-API-Key": "{key}", "Cartesia-Version": "2026-08-14"},
}
DEEPGRAM = {"Authorization": "Token {key}"}
ELEVENLABS = {"xi-api-key": "{key}"}
ASSEMBLYAI = {"Authorization": "{key}"}

# Routes without a row, and why they have no type that can be checked.
UNTYPED = {
    # Audio, a file or an SDP.
    "GET /openai/v1/files/{batch_file_id}/content",
    "POST /openai/v1/audio/speech",
    "POST /openai/v1/realtime/calls",
    "POST /cartesia/tts/bytes",
    "POST /v1/speak",
    "POST /v2/speak",
    "GET /v1/history/{history_item_id}/audio",
    "POST /v1/history/download",
    "GET /v1/pronunciation-dictionaries/{dictionary_id}/{number}/download",
    "POST /v1/text-to-speech/{voice_id}",
    "POST /v1/text-to-speech/{voice_id}/stream",
    "POST /v1/text-to-dialogue",
    "POST /v1/text-to-dialogue/stream",
    "POST /v1/speech-to-speech/{voice_id}",
    "POST /v1/speech-to-speech/{voice_id}/stream",
    "POST /v1/voice-changer/{voice_id}",
    "POST /v1/voice-changer/{voice_id}/stream",
    # Answers as the change of a voice does.
    "POST /cartesia/voices/clone",
    # The SDK reads no answer.
    "DELETE /cartesia/voices/{voice_id}",
    "DELETE /openai/v1/responses/{response_id}",
    "POST /openai/v1/realtime/calls/{call_id}/hangup",
    # Always refused, as no response runs in the background.
    "POST /openai/v1/responses/{response_id}/cancel",
    # The SDK has no type.
    "GET /v1/auth/token",
    "GET /v3/token",
    # A recording of the consent phrase is needed: test_openai_voices.py.
    "POST /openai/v1/audio/voice_consents",
    "GET /openai/v1/audio/voice_consents",
    "GET /openai/v1/audio/voice_consents/{consent_id}",
    "POST /openai/v1/audio/voice_consents/{consent_id}",
    "DELETE /openai/v1/audio/voice_consents/{consent_id}",
    "POST /openai/v1/audio/voices",
    "DELETE /openai/v1/audio/voices/{voice_id}",
    # Needs weights: test_openai_audio.py.
    "POST /openai/v1/audio/translations",
    # Also at /openai/v1, where it has a row.
    "POST /v1/chat/completions",
    # Models of pydantic 1, which assemblyai_transcripts.py checks.
    "POST /v2/upload",
    "POST /v2/transcript",
    "GET /v2/transcript",
    "GET /v2/transcript/{transcript_id}",
    "DELETE /v2/transcript/{transcript_id}",
    "GET /v2/transcript/{transcript_id}/{part}",
}


def whole(answer: bytes) -> list[bytes]:
    return [answer]


def lines(answer: bytes) -> list[bytes]:
    return answer.splitlines()


def events(answer: bytes) -> list[bytes]:
    """The data of server-sent events."""
    fields = (line.partition(b": ") for line in answer.splitlines())
    return [data for name, _, data in fields if name == b"data" and data != b"[DONE]"]


def items(answer: bytes) -> list[bytes]:
    """The items of a page, of which SDKs have no type of its own."""
    return [json.dumps(item).encode() for item in json.loads(answer)["data"]]


@dataclass(frozen=True)
class Request:
    """A request, and the type of each part of its answer.

    `{name}` in a path or a body is what an earlier row `keeps`.
    """

    route: str  # method and path, as in the OpenAPI document
    type: Any
    body: Json | None = None
    form: Mapping[str, Any] | None = None
    file: str | None = None  # the content of the form's file, by default the recording
    file_field: str = "file"  # the form's field of the file; without a name, no file is sent
    repeats: int = 1  # of the recording in its file
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] | None = None  # by default those of KEYS for the path
    is_recording: bool = False  # the body is the recording
    parts: Callable[[bytes], list[bytes]] = whole
    keeps: Mapping[str, str] = field(default_factory=dict)  # names, and fields of the first part
    fills: Mapping[str, str] = field(default_factory=dict)  # parts of the path, and other names


@dataclass(frozen=True)
class Socket:
    """A conversation on a socket, and the type of its events. `wrap` makes a message of audio."""

    path: str
    type: Any
    headers: Mapping[str, str]
    messages: Sequence[Any]
    is_last: Callable[[Json], bool]
    query: str = ""
    wrap: Callable[[bytes], Any] = bytes


USER = [{"role": "user", "content": TEXT}]
CALLER = [{"role": "user", "content": CALL}]
FUNCTION = {
    "name": "weather",
    "description": "The weather of a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}
CHAT_TOOLS = {"tools": [{"type": "function", "function": FUNCTION}]}
TOOLS = {"tools": [{"type": "function", **FUNCTION}]}
STREAM = {"stream": True}
USAGE = {**STREAM, "stream_options": {"include_usage": True}}
BATCH = {"endpoint": "/v1/chat/completions", "completion_window": "24h"}
BATCH_LINE = {
    "custom_id": "1",
    "method": "POST",
    "url": BATCH["endpoint"],
    "body": {"model": MODEL, "messages": USER},
}

CHAT = "POST /openai/v1/chat/completions"
RESPONSES = "POST /openai/v1/responses"
COMPLETIONS = "POST /openai/v1/completions"
EMBEDDINGS = "POST /openai/v1/embeddings"
EMBEDDER = "text-embedding-3-small"
TRANSCRIPTIONS = "POST /openai/v1/audio/transcriptions"
SECRETS = "POST /openai/v1/realtime/client_secrets"
VERBOSE = {"response_format": "verbose_json", "timestamp_granularities[]": ["word", "segment"]}
DIARIZED = {"model": "gpt-4o-transcribe-diarize", "response_format": "diarized_json"}
WHISPER = {"model": "whisper-1"}
FILE_IDS = {"input_file_id": "id", "batch_file_id": "id"}

OPENAI = (
    Request("GET /openai/v1/models", openai.Model, parts=items, keeps={"model_id": "id"}),
    Request("GET /openai/v1/models/{model_id}", openai.Model),
    Request(CHAT, chat.ChatCompletion, {"model": MODEL, "messages": USER}),
    Request(CHAT, chat.ChatCompletion, {"model": MODEL, "messages": CALLER, **CHAT_TOOLS}),
    Request(
        CHAT,
        chat.ChatCompletionChunk,
        {"model": MODEL, "messages": CALLER, **CHAT_TOOLS, **USAGE},
        parts=events,
    ),
    Request(
        RESPONSES, responses.Response, {"model": MODEL, "input": TEXT}, keeps={"response_id": "id"}
    ),
    Request("GET /openai/v1/responses/{response_id}", responses.Response),
    Request("GET /openai/v1/responses/{response_id}/input_items", responses.ResponseItemList),
    Request(
        f"{RESPONSES}/input_tokens",
        responses.InputTokenCountResponse,
        {"model": MODEL, "input": TEXT},
    ),
    Request(RESPONSES, responses.Response, {"model": MODEL, "input": CALL, **TOOLS}),
    Request(
        RESPONSES,
        responses.ResponseStreamEvent,
        {"model": MODEL, "input": f"Look: {CALL}", **TOOLS, **STREAM},
        parts=events,
    ),
    Request(COMPLETIONS, openai.Completion, {"model": MODEL, "prompt": TEXT}),
    # Not of a stream: the type has no null as finish_reason, which OpenAI sends before the last.
    Request(EMBEDDINGS, openai.CreateEmbeddingResponse, {"model": EMBEDDER, "input": TEXT}),
    Request(
        EMBEDDINGS, openai.CreateEmbeddingResponse, {"model": EMBEDDER, "input": [[1, 2], [3]]}
    ),
    Request(TRANSCRIPTIONS, audio.Transcription, form=WHISPER),
    Request(TRANSCRIPTIONS, audio.TranscriptionVerbose, form={**WHISPER, **VERBOSE}),
    Request(TRANSCRIPTIONS, audio.TranscriptionDiarized, form=DIARIZED),
    Request(
        TRANSCRIPTIONS,
        audio.TranscriptionStreamEvent,
        form={"model": "gpt-4o-transcribe", "stream": "true"},
        parts=events,
    ),
    Request(
        "POST /openai/v1/files",
        openai.FileObject,
        form={"purpose": "batch"},
        file=json.dumps(BATCH_LINE),
        keeps=FILE_IDS,
    ),
    Request("GET /openai/v1/files", openai.FileObject, parts=items),
    Request("GET /openai/v1/files/{batch_file_id}", openai.FileObject),
    Request(
        "POST /openai/v1/batches",
        openai.Batch,
        {**BATCH, "input_file_id": "{input_file_id}"},
        keeps={"batch_id": "id"},
    ),
    Request("GET /openai/v1/batches", openai.Batch, parts=items),
    Request("GET /openai/v1/batches/{batch_id}", openai.Batch),
    Request("POST /openai/v1/batches/{batch_id}/cancel", openai.Batch),
    Request("DELETE /openai/v1/files/{batch_file_id}", openai.FileDeleted),
    Request(SECRETS, realtime.ClientSecretCreateResponse, {"session": {"type": "realtime"}}),
    Request(SECRETS, realtime.ClientSecretCreateResponse, {"session": {"type": "transcription"}}),
)

DICTIONARIES = "/v1/pronunciation-dictionaries"
RULES = [{"type": "alias", "string_to_replace": "IP", "alias": "internet protocol"}]
PLS = """<?xml version="1.0" encoding="UTF-8"?>
<lexicon version="1.0" alphabet="ipa" xml:lang="en"
  xmlns="http://www.w3.org/2005/01/pronunciation-lexicon">
  <lexeme><grapheme>IP</grapheme><alias>internet protocol</alias></lexeme>
</lexicon>"""
SPEAKS = "POST /v1/text-to-speech/{voice_id}"
DIALOGUES = "POST /v1/text-to-dialogue"
DIALOGUE = {"inputs": [{"text": TEXT, "voice_id": "{voice_id}"}] * 2}
OF_CLONE = {"voice_id": "clone_id"}
OF_HISTORY = {"history_item_id": "last_history_item_id"}
CLONE = {"name": "Ann", "labels": '{"language": "en", "gender": "female"}'}
CLONE_REPEATS = 10  # of the recording: over ten seconds


def xi(route: str, type: Any, body: Json | None = None, **options: Any) -> Request:
    return Request(route, type, body, headers=ELEVENLABS, **options)


ELEVENLABS_ROWS = (
    xi("GET /v1/voices", elevenlabs.GetVoicesResponse),
    xi("GET /v2/voices", elevenlabs.GetVoicesV2Response),
    xi("GET /v1/voices/{voice_id}", elevenlabs.Voice),
    xi("GET /v1/models", list[elevenlabs.Model]),
    xi("GET /v1/user", elevenlabs.User),
    xi("GET /v1/user/subscription", elevenlabs.Subscription),
    xi(f"{SPEAKS}/with-timestamps", elevenlabs.AudioWithTimestampsResponse, {"text": TEXT}),
    xi(
        f"{SPEAKS}/stream/with-timestamps",
        elevenlabs.StreamingAudioChunkWithTimestampsResponse,
        {"text": TEXT},
        parts=lines,
    ),
    xi(
        "POST /v1/speech-to-text",
        elevenlabs.SpeechToTextChunkResponseModel,
        form={"model_id": "scribe_v1", "diarize": "true"},
    ),
    xi(
        f"POST {DICTIONARIES}/add-from-rules",
        elevenlabs.AddPronunciationDictionaryResponseModel,
        {"name": "Names", "rules": RULES},
        keeps={"dictionary_id": "id"},
    ),
    xi(
        f"POST {DICTIONARIES}/add-from-file",
        elevenlabs.AddPronunciationDictionaryResponseModel,
        form={"name": "Names"},
        file=PLS,
    ),
    xi(f"GET {DICTIONARIES}", elevenlabs.GetPronunciationDictionariesMetadataResponseModel),
    xi(
        f"GET {DICTIONARIES}/{{dictionary_id}}",
        elevenlabs.GetPronunciationDictionaryWithRulesResponseModel,
    ),
    *(
        xi(
            f"POST {DICTIONARIES}/{{dictionary_id}}/{name}",
            elevenlabs.PronunciationDictionaryRulesResponseModel,
            body,
        )
        for name, body in (
            ("set-rules", {"rules": RULES}),
            ("add-rules", {"rules": [{**RULES[0], "string_to_replace": "HTTP"}]}),
            ("remove-rules", {"rule_strings": ["HTTP"]}),
        )
    ),
    xi("GET /v2/voices", elevenlabs.GetVoicesV2Response, query={"search": "a", "page_size": "2"}),
    xi("GET /v1/voices/settings/default", elevenlabs.VoiceSettings),
    xi("GET /v1/voices/{voice_id}/settings", elevenlabs.VoiceSettings),
    xi(
        "POST /v1/voices/{voice_id}/settings/edit",
        elevenlabs.EditVoiceSettingsResponseModel,
        {},
    ),
    xi("POST /v1/single-use-token/{token_type}", elevenlabs.SingleUseTokenResponseModel),
    xi("POST /v1/forced-alignment", elevenlabs.ForcedAlignmentResponseModel, form={"text": TEXT}),
    xi(
        f"{DIALOGUES}/with-timestamps",
        elevenlabs.AudioWithTimestampsAndVoiceSegmentsResponseModel,
        DIALOGUE,
    ),
    xi(
        f"{DIALOGUES}/stream/with-timestamps",
        elevenlabs.StreamingAudioChunkWithTimestampsAndVoiceSegmentsResponseModel,
        DIALOGUE,
        parts=lines,
    ),
    xi(
        "POST /v1/voices/add",
        elevenlabs.AddVoiceIvcResponseModel,
        form=CLONE,
        file_field="files",
        repeats=CLONE_REPEATS,
        keeps={"clone_id": "voice_id"},
    ),
    xi("GET /v1/voices/{voice_id}", elevenlabs.Voice, fills=OF_CLONE),
    xi("GET /v2/voices", elevenlabs.GetVoicesV2Response, query={"category": "cloned"}),
    xi("GET /v1/voices/{voice_id}/settings", elevenlabs.VoiceSettings, fills=OF_CLONE),
    xi(
        "POST /v1/voices/{voice_id}/edit",
        elevenlabs.EditVoiceResponseModel,
        form={"name": "Bea"},
        file_field="",
        fills=OF_CLONE,
    ),
    # The answer of a clone of Cartesia's is that of a change, with another type.
    Request("PATCH /cartesia/voices/{voice_id}", VoiceMetadata, {"name": "Cid"}, fills=OF_CLONE),
    Request(
        "PATCH /cartesia/voices/{voice_id}",
        CartesiaVoice,
        {"description": "His", "gender": None},
        fills=OF_CLONE,
    ),
    xi("DELETE /v1/voices/{voice_id}", elevenlabs.DeleteVoiceResponseModel, fills=OF_CLONE),
    xi("GET /v1/history", elevenlabs.GetSpeechHistoryResponse, keeps=OF_HISTORY),
    xi("GET /v1/history/{history_item_id}", elevenlabs.SpeechHistoryItemResponse),
    xi("DELETE /v1/history/{history_item_id}", elevenlabs.DeleteHistoryItemResponse),
)


def dg(route: str, type: Any, body: Json | None = None, **options: Any) -> Request:
    return Request(route, type, body, headers=DEEPGRAM, **options)


DEEPGRAM_ROWS = (
    dg(
        "POST /v1/listen",
        deepgram.ListenV1Response,
        query=dict.fromkeys(("smart_format", "utterances", "diarize", "paragraphs"), "true"),
        is_recording=True,
    ),
    dg(
        "POST /v1/listen",
        deepgram.ListenV1Response,
        query={"detect_entities": "true", "search": "sentence", "replace": "room:hall"},
        is_recording=True,
    ),
    dg(
        "POST /v1/listen",
        deepgram.ListenV1AcceptedResponse,
        query={"callback": "https://receiver.invalid/hook"},
        is_recording=True,
    ),
    dg("GET /v1/models", deepgram.ListModelsV1Response),
    dg("GET /v1/projects", deepgram.ListProjectsV1Response),
    dg("GET /v1/projects/{project_id}", deepgram.GetProjectV1Response),
    dg("POST /v1/auth/grant", deepgram.GrantV1Response, {"ttl_seconds": 30}),
)

CARTESIA_SPEECH = {
    "model_id": "sonic-3",
    "transcript": TEXT,
    "voice": {"mode": "id", "id": "6ccbfb76-1fc6-48f7-b71d-91ac6298247b"},
    "output_format": {"container": "raw", "encoding": "pcm_s16le", "sample_rate": RATE},
    "add_timestamps": True,
}

CARTESIA = (
    Request("GET /cartesia/voices", CartesiaVoice, parts=items),
    Request("GET /cartesia/voices/{voice_id}", CartesiaVoice),
    Request("POST /cartesia/tts/sse", TTSSSEEvent, CARTESIA_SPEECH, parts=events),
    Request(
        "POST /cartesia/access-token",
        AccessTokenCreateResponse,
        {"grants": {"tts": True}, "expires_in": 60},
    ),
    Request(
        "POST /cartesia/stt",
        STTTranscribeResponse,
        form={"model": "ink-whisper", "timestamp_granularities[]": ["word"]},
    ),
)


REQUESTS = (*OPENAI, *ELEVENLABS_ROWS, *DEEPGRAM_ROWS, *CARTESIA)


def is_type(*kinds: str) -> Callable[[Json], bool]:
    return lambda event: event.get("type") in kinds


def spoken(output: Any, final: Any) -> Any:
    """The type of an event that has audio or ends a text; the fields of the latter are optional."""
    members = Annotated[output, Tag("audio")] | Annotated[final, Tag("final")]
    return Annotated[
        members, Discriminator(lambda event: "audio" if event.get("audio") else "final")
    ]


def base64(piece: bytes) -> str:
    return b64encode(piece).decode()


def appended(piece: bytes) -> Json:
    return {"type": "input_audio_buffer.append", "audio": base64(piece)}


def chunk(piece: bytes) -> Json:
    return {"message_type": "input_audio_chunk", "audio_base_64": base64(piece)}


INK = f"model=ink-2&encoding=pcm_s16le&sample_rate={RATE}"
LINEAR = f"encoding=linear16&sample_rate={RATE}"
TURN = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": TEXT}]}
TRANSCRIBING = {
    "type": "transcription",
    "audio": {"input": {"transcription": {"model": "whisper-1"}}},
}
SPEAK = [{"text": " "}, {"text": TEXT}, {"text": ""}]
SPEAK_MULTI = [
    {"text": " ", "context_id": "a"},
    {"text": TEXT, "context_id": "a", "flush": True},
    {"context_id": "a", "close_context": True},
]
FIRST_LINES = {**DIALOGUE, "voices": ["{voice_id}"], "context_id": "a", "flush": True}
COMMIT = {**chunk(b""), "commit": True}
SCRIBE = (
    elevenlabs.SessionStartedPayload
    | elevenlabs.PartialTranscriptPayload
    | elevenlabs.CommittedTranscriptPayload
    | elevenlabs.CommittedTranscriptWithTimestampsPayload
)

SOCKETS = (
    Socket(
        "/openai/v1/realtime",
        realtime.RealtimeServerEvent,
        KEYS["/openai/"],
        [
            {"type": "session.update", "session": {"type": "realtime", **TOOLS}},
            {"type": "conversation.item.create", "item": TURN},
            {"type": "response.create"},
        ],
        is_type("response.done"),
        query="model=gpt-realtime",
    ),
    Socket(
        "/openai/v1/realtime",
        realtime.RealtimeServerEvent,
        KEYS["/openai/"],
        [{"type": "session.update", "session": TRANSCRIBING}, AUDIO],
        is_type("conversation.item.input_audio_transcription.completed"),
        query="intent=transcription",
        wrap=appended,
    ),
    Socket(
        "/v1/listen",
        ListenEvent,
        DEEPGRAM,
        [AUDIO, {"type": "Finalize"}, {"type": "CloseStream"}],
        is_type("Metadata"),
        query=f"{LINEAR}&interim_results=true&vad_events=true&utterance_end_ms=1000",
    ),
    Socket(
        "/v2/listen",
        FluxEvent,
        DEEPGRAM,
        [AUDIO, {"type": "CloseStream"}],
        lambda event: event.get("event") == "EndOfTurn",
        query=f"{LINEAR}&model=flux-general-en",
    ),
    Socket(
        "/v1/speak",
        SpeakEvent,
        DEEPGRAM,
        [{"type": "Speak", "text": TEXT}, {"type": "Flush"}],
        is_type("Flushed"),
    ),
    Socket(
        "/v2/speak",
        TurnEvent,
        DEEPGRAM,
        [
            {"type": "Configure", "speed": 9},
            {"type": "Configure", "speed": 1.1},
            {"type": "Interrupt"},
            {"type": "Speak", "text": TEXT},
            {"type": "Close"},
        ],
        is_type("SessionMetadata"),
        query="model=flux-alexis-en",
    ),
    Socket(
        "/v1/text-to-speech/{voice_id}/stream-input",
        spoken(elevenlabs.AudioOutput, elevenlabs.FinalOutput),
        ELEVENLABS,
        SPEAK,
        lambda event: bool(event.get("isFinal")),
    ),
    Socket(
        "/v1/text-to-speech/{voice_id}/multi-stream-input",
        spoken(elevenlabs.AudioOutputMulti, elevenlabs.FinalOutputMulti),
        ELEVENLABS,
        SPEAK_MULTI,
        lambda event: bool(event.get("isFinal")),
    ),
    Socket(
        "/v1/text-to-dialogue/multi-stream-input",
        elevenlabs.TextToDialogueWebsocketAudioChunkMulti
        | elevenlabs.TextToDialogueWebsocketFinalAudioForTurnMulti
        | elevenlabs.TextToDialogueWebsocketFinalMulti,
        ELEVENLABS,
        [FIRST_LINES, SPEAK_MULTI[-1]],
        lambda event: bool(event.get("is_final")),
        query="sync_alignment=true",
    ),
    Socket(
        "/v1/speech-to-text/realtime",
        SCRIBE,
        ELEVENLABS,
        [AUDIO, COMMIT],
        lambda event: event["message_type"] == "committed_transcript_with_timestamps",
        query="model_id=scribe_v2_realtime&include_timestamps=true",
        wrap=chunk,
    ),
    Socket(
        "/cartesia/tts/websocket",
        WebsocketResponse,
        KEYS["/cartesia/"],
        [{**CARTESIA_SPEECH, "context_id": "a", "flush": True}],
        is_type("done"),
    ),
    Socket(
        "/cartesia/stt/websocket",
        STTManualFinalizeWebsocketResponse,
        KEYS["/cartesia/"],
        [AUDIO, "finalize", "close"],
        is_type("done"),
        query=INK,
    ),
    Socket(
        "/cartesia/stt/turns/websocket",
        STTAutoFinalizeWebsocketResponse,
        KEYS["/cartesia/"],
        [AUDIO, {"type": "close"}],
        is_type("turn.end"),
        query=INK,
    ),
    Socket(
        "/v3/ws",
        EventMessage,
        ASSEMBLYAI,
        [AUDIO, {"type": "ForceEndpoint"}, {"type": "Terminate"}],
        is_type("Termination"),
        query=f"sample_rate={RATE}",
    ),
)
