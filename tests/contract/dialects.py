"""The dialects, one row each: a new dialect is tested by its row."""

from dataclasses import replace

from tests.contract.assemblyai import ASSEMBLYAI
from tests.contract.cartesia import CARTESIA
from tests.contract.dialect import (
    Dialect,
    Frame,
    Opening,
    Recognition,
    Socket,
    Speech,
    Work,
    base64_text,
    frames,
    pieces,
)
from tests.contract.elevenlabs_dialogue import DIALOGUE_SOCKET
from tests.contract.fields import (
    DEEPGRAM_LISTEN,
    DEEPGRAM_LISTEN_USUAL,
    DEEPGRAM_RECOGNITION,
    DEEPGRAM_RECOGNITION_USUAL,
    DEEPGRAM_SPEECH,
    ELEVENLABS_RECOGNITION,
    ELEVENLABS_RECOGNITION_USUAL,
    FLUX_USUAL,
    INWORLD_SPEECH,
    JSON_FAULTS,
    MCP_RECOGNITION,
    MCP_SPEECH,
    NATIVE_RECOGNITION,
    NATIVE_SPEECH,
    OPENAI_RECOGNITION,
    OPENAI_SPEECH,
    UNKNOWN,
)
from tests.contract.messages import (
    TWILIO_WRONG_RATE,
    WYOMING_AUDIO,
    bearer,
    deepgram_code,
    deepgram_fault,
    deepgram_recognition,
    elevenlabs_code,
    elevenlabs_fault,
    elevenlabs_hear,
    elevenlabs_place,
    elevenlabs_speech,
    form,
    inworld_body,
    inworld_create,
    inworld_fault,
    mcp_call,
    mcp_code,
    native_fault,
    native_hear,
    openai_code,
    openai_fault,
    openai_place,
    twilio_start,
    wyoming_event,
    wyoming_fault,
    wyoming_hear,
)

LINEAR = {"encoding": "linear16", "sample_rate": "16000"}

NATIVE = Dialect(
    "native",
    bearer,
    code=lambda body: body["error"],
    hint="Authorization: Bearer <",
    speech=(
        Speech(
            "/tts-synthesize",
            lambda text, voice: {"json": {"text": text, "voice_id": voice}},
            format=("json", "output_format"),
            wrong=NATIVE_SPEECH,
            is_streamed=False,
        ),
        Speech(
            "/tts-stream",
            lambda text, voice: {"json": {"text": text, "voice_id": voice}},
            format=("json", "output_format"),
            wrong=NATIVE_SPEECH,
            answers_at_once=True,
        ),
    ),
    recognition=(
        Recognition(
            "/stt",
            form("audio"),
            usual={
                "language": "auto",
                "model": "general",
                "timestamps": "false",
                "speaker_labels": "false",
                "known_speakers": "false",
                "response_format": "json",
            },
            wrong=NATIVE_RECOGNITION,
        ),
    ),
    work=(
        Work("/jobs/transcriptions", lambda recording: form("audio")(recording, {}), entries=()),
        Work(
            "/jobs/speech",
            lambda _: {"files": {"document": ("a.txt", b"A text.")}, "data": {}},
            entries=(),
        ),
    ),
    sockets=(
        Socket(
            "/ws/tts",
            "tts",
            native_fault,
            say=lambda text, voice: frames(
                {"create_context": {"voice_id": voice}},
                {"send_text": {"text": text}},
                {"flush_context": {}},
            ),
            is_end=lambda event: "flush_completed" in event,
            unknown=(Opening(frames=frames({"create_context": {"voice_id": UNKNOWN}})),),
            broken={**JSON_FAULTS, '{"sing": {}}': "unknown message", b"audio": "binary"},
        ),
        Socket(
            "/ws/stt",
            "stt",
            native_fault,
            hear=native_hear,
            end=frames({"type": "stop"}),
            is_end=lambda event: event.get("type") == "session_stopped",
            unknown=(Opening(frames=frames({"type": "start", "languages": ["tlh"]})),),
            broken={**JSON_FAULTS, '{"type": "sing"}': "type", b"audio": "start"},
        ),
    ),
)

RESPONSE = {"type": "response.create", "model": UNKNOWN, "input": "a"}
OPENAI = Dialect(
    "OpenAI",
    bearer,
    code=openai_code,
    fault=openai_place,
    hint="Authorization: Bearer <",
    speech=(
        Speech(
            "/openai/v1/audio/speech",
            lambda text, voice: {"json": {"input": text, "voice": {"id": voice}}},
            format=("json", "response_format"),
            text="input",
            wrong=OPENAI_SPEECH,
            usual={"model": "tts-1", "speed": 1.0, "stream_format": "audio", "instructions": ""},
        ),
    ),
    recognition=(
        Recognition(
            "/openai/v1/audio/transcriptions",
            lambda recording, options: form("file")(recording, {"model": "whisper-1", **options}),
            usual={"response_format": "json", "stream": "false", "temperature": "0", "prompt": ""},
            wrong=OPENAI_RECOGNITION,
        ),
    ),
    work=(
        Work("/openai/v1/embeddings", lambda _: {"json": {"input": "a b"}}, other_scope="tts"),
        Work(
            "/openai/v1/completions",
            lambda _: {"json": {"prompt": "a b", "max_tokens": 2}},
            other_scope="tts",
        ),
    ),
    sockets=(
        Socket(
            "/openai/v1/realtime",
            "chat",
            openai_fault,
            query={"model": "gpt-realtime"},
            unknown=(Opening({"model": UNKNOWN}, fault="model_not_found", ends=True),),
            wrong=({"intent": "translation"},),
            broken={**JSON_FAULTS, '{"type": "sing"}': "sing", b"audio": "binary"},
        ),
        Socket(
            "/openai/v1/responses",
            "chat",
            openai_fault,
            unknown=(Opening(frames=frames(RESPONSE), fault="no chat model has that name"),),
            broken={**JSON_FAULTS, '{"type": "sing"}': "sing", b"audio": "binary"},
        ),
    ),
)

DEEPGRAM_SPEAK = Socket(
    "/v1/speak",
    "tts",
    deepgram_fault,
    query={**LINEAR, "model": "{voice}"},
    say=lambda text, _: frames({"type": "Speak", "text": text}, {"type": "Flush"}),
    is_end=lambda event: event["type"] == "Flushed",
    flushes_sentences=True,
    unknown=(Opening({"model": UNKNOWN}, fault="voice", ends=True),),
    wrong=({"encoding": "mp3"}, {"sample_rate": "12"}, {"speed": "fast"}),
    broken={
        **JSON_FAULTS,
        '{"type": "Sing"}': "type",
        '{"type": "Speak", "text": 5}': "text: ",
        '{"type": "Speak", "txt": "Hello."}': "text: ",
        b"audio": "binary",
    },
)

DEEPGRAM = Dialect(
    "Deepgram",
    lambda key: {"Authorization": f"Token {key}"},
    code=deepgram_code,
    fault=lambda body: str(body["err_msg"]),
    hint="Authorization: Token <",
    other_keys=(bearer,),
    reasons={
        "unauthorized": "INVALID_AUTH",
        "validation_error": "Bad Request",
        "invalid_json": "Bad Request",
        "unsupported_media_type": "Bad Request",
        "invalid_audio": "Bad Request",
        "model_not_found": "MODEL_NOT_FOUND",
        "voice_not_found": "VOICE_NOT_FOUND",
        "insufficient_credit": "INSUFFICIENT_PERMISSIONS",
        "insufficient_scope": "INSUFFICIENT_PERMISSIONS",
        "rate_limited": "TOO_MANY_REQUESTS",
        "overloaded": "SERVICE_UNAVAILABLE",
    },
    speech=(
        Speech(
            "/v1/speak",
            lambda text, voice: {"params": {"model": voice}, "json": {"text": text}},
            format=("params", "encoding"),
            wrong=DEEPGRAM_SPEECH,
            options=("params",),
        ),
    ),
    recognition=(
        Recognition(
            "/v1/listen",
            deepgram_recognition,
            usual=DEEPGRAM_RECOGNITION_USUAL,
            wrong=DEEPGRAM_RECOGNITION,
        ),
    ),
    work=(
        Work(
            "/v1/listen",
            lambda recording: deepgram_recognition(
                recording, {"callback": "https://example.com/transcripts"}
            ),
            entries=(),
        ),
    ),
    sockets=(
        DEEPGRAM_SPEAK,
        replace(
            DEEPGRAM_SPEAK,
            path="/v2/speak",
            is_end=lambda event: event["type"] == "SpeechMetadata",
            broken={
                **JSON_FAULTS,
                '{"type": "Sing"}': "type",
                '{"type": "Speak", "text": 5}': "text: ",
                '{"type": "Interrupt", "playback_offset": {"value": -1}}': "value",
                b"audio": "binary",
            },
        ),
        Socket(
            "/v1/listen",
            "stt",
            deepgram_fault,
            query=LINEAR,
            hear=pieces,
            end=frames({"type": "CloseStream"}),
            is_end=lambda event: event["type"] == "Metadata",
            unknown=(
                Opening({"language": "tlh"}, fault="language", ends=True),
                Opening({"model": UNKNOWN}, fault="model: ", ends=True),
            ),
            wrong=DEEPGRAM_LISTEN,
            usual=DEEPGRAM_LISTEN_USUAL,
            broken={
                **JSON_FAULTS,
                '{"type": "Sing"}': "type",
                '{"type": "Finalize", "channel": "one"}': "channel",
            },
        ),
        Socket(
            "/v2/listen",
            "stt",
            deepgram_fault,
            query={**LINEAR, "model": "flux-general-en"},
            hear=pieces,
            end=frames({"type": "CloseStream"}),
            wrong=({"encoding": "speex"}, {"eot_threshold": "2"}),
            usual={**FLUX_USUAL, "eot_threshold": "0.7", "eot_timeout_ms": "5000"},
            broken={**JSON_FAULTS, '{"type": "Sing"}': "type"},
        ),
    ),
)

ELEVENLABS_BROKEN: dict[Frame, str] = {
    **JSON_FAULTS,
    '{"text": 5}': "text: ",
    '{"text": null}': "text: ",
    '{"txt": "Hello."}': "text: ",
    "{}": "text: ",
    b"audio": "binary",
}

ELEVENLABS = Dialect(
    "ElevenLabs",
    lambda key: {"xi-api-key": key},
    code=elevenlabs_code,
    fault=elevenlabs_place,
    hint="xi-api-key: <",
    other_keys=(bearer,),
    reasons={
        "unauthorized": "invalid_api_key",
        "insufficient_scope": "missing_permissions",
        "rate_limited": "too_many_requests",
        "overloaded": "system_busy",
        "invalid_json": "validation_error",
        "insufficient_credit": "quota_exceeded",
    },
    statuses={"validation_error": 422, "invalid_json": 422},
    speech=(
        elevenlabs_speech("", is_streamed=True),
        elevenlabs_speech("/stream", is_streamed=True),
        elevenlabs_speech("/with-timestamps", is_streamed=False),
        elevenlabs_speech("/stream/with-timestamps", is_streamed=True),
        Speech(
            "/v1/text-to-dialogue",
            lambda text, voice: {
                "json": {"inputs": [{"text": text, "voice_id": voice}]},
                "params": {"output_format": "pcm_16000"},
            },
            format=("params", "output_format"),
            text="inputs",
        ),
    ),
    recognition=(
        Recognition(
            "/v1/speech-to-text",
            lambda recording, options: form("file")(
                recording, {"model_id": "scribe_v1", **options}
            ),
            model="model_id",
            language="language_code",
            usual=ELEVENLABS_RECOGNITION_USUAL,
            wrong=ELEVENLABS_RECOGNITION,
        ),
    ),
    work=(
        Work(
            "/v1/forced-alignment",
            lambda recording: form("file")(recording, {"text": "the quick brown fox"}),
        ),
        Work(
            "/v1/speech-to-speech/{voice}",
            lambda recording: {
                **form("audio")(recording, {"model_id": "eleven_multilingual_sts_v2"}),
                "params": {"output_format": "pcm_16000"},
            },
            entries=("hold", "capture", "hold", "capture"),
        ),
    ),
    sockets=(
        Socket(
            "/v1/text-to-speech/{voice}/stream-input",
            "tts",
            elevenlabs_fault,
            query={"output_format": "pcm_16000"},
            say=lambda text, _: frames({"text": " "}, {"text": text}, {"text": ""}),
            is_end=lambda event: bool(event.get("isFinal")),
            flushes_sentences=True,
            unknown=(Opening(voice=UNKNOWN, fault="voice_not_found", ends=True),),
            wrong=({"output_format": "pcm_1"}, {"inactivity_timeout": "500"}),
            broken=ELEVENLABS_BROKEN,
            takes_first_key=True,
        ),
        Socket(
            "/v1/text-to-speech/{voice}/multi-stream-input",
            "tts",
            elevenlabs_fault,
            query={"output_format": "pcm_16000"},
            say=lambda text, _: frames(
                {"text": text, "context_id": "a", "flush": True},
                {"context_id": "a", "close_context": True},
            ),
            is_end=lambda event: bool(event.get("isFinal")),
            flushes_sentences=True,
            unknown=(Opening(voice=UNKNOWN, fault="voice_not_found", ends=True),),
            wrong=({"auto_mode": "maybe"},),
            broken=ELEVENLABS_BROKEN,
            takes_first_key=True,
        ),
        DIALOGUE_SOCKET,
        Socket(
            "/v1/speech-to-text/realtime",
            "stt",
            elevenlabs_fault,
            hear=elevenlabs_hear,
            end=frames({"message_type": "input_audio_chunk", "audio_base_64": "", "commit": True}),
            is_end=lambda event: event["message_type"] == "committed_transcript",
            unknown=(
                Opening({"language_code": "tlh"}, fault="language", ends=True),
                Opening({"model_id": UNKNOWN}, fault="model", ends=True),
            ),
            wrong=(
                {"audio_format": "opus"},
                {"commit_strategy": "never"},
                {"entity_detection": "all"},
                {"transcript_edit": "shorten"},
                {"vad_silence_threshold_secs": "9"},
            ),
            usual={
                "audio_format": "pcm_16000",
                "commit_strategy": "manual",
                "include_timestamps": "false",
            },
            broken={**JSON_FAULTS, '{"message_type": "sing"}': "message_type"},
        ),
    ),
)

INWORLD = Dialect(
    "Inworld",
    lambda key: {"Authorization": f"Basic {key}"},
    code=lambda body: body["error"],
    hint="Authorization: Basic <",
    other_keys=(bearer,),
    speech=(
        Speech(
            "/tts/v1/voice",
            lambda text, voice: {"json": inworld_body(text, voice)},
            format=("json", "audioConfig", "audioEncoding"),
            wrong=INWORLD_SPEECH,
            is_streamed=False,
        ),
        Speech(
            "/tts/v1/voice:stream",
            lambda text, voice: {"json": inworld_body(text, voice)},
            format=("json", "audioConfig", "audioEncoding"),
            wrong=INWORLD_SPEECH,
        ),
    ),
    sockets=(
        Socket(
            "/tts/v1/voice:streamBidirectional",
            "tts",
            inworld_fault,
            say=lambda text, voice: frames(
                inworld_create(voice),
                {"send_text": {"text": text, "flush_context": {}}, "contextId": "c"},
            ),
            is_end=lambda event: "flushCompleted" in event["result"],
            unknown=(Opening(frames=frames(inworld_create(UNKNOWN))),),
            broken={
                **JSON_FAULTS,
                '{"contextId": "c"}': "exactly one of create",
                '{"create": {}, "contextId": "c"}': "create.voiceId",
                '{"create": {"voiceId": "v", "audioConfig": {"audioEncoding": "A"}}}': "MP3",
                '{"create": {"voiceId": "v", "audioConfig": {"sampleRateHertz": 7}}}': "8000",
                '{"create": {"voiceId": "v", "temperature": "warm"}}': "create.temperature",
                '{"send_text": {"text": 5}}': "send_text.text",
                '{"contextId": 5, "flush_context": {}}': "contextId",
                b"\x00": "binary",
            },
        ),
    ),
)

TWILIO = Dialect(
    "Twilio",
    bearer,
    code=lambda body: body["error"],
    hint="Authorization: Bearer <",
    sockets=(
        Socket(
            "/telephony/twilio",
            "chat",
            lambda event: str(event["message"]) if event["event"] == "error" else "",
            unknown=(
                Opening(frames=twilio_start(voice=UNKNOWN), fault="voice", ends=True),
                Opening(frames=twilio_start(model=UNKNOWN), fault="model", ends=True),
                Opening(
                    frames=frames({"event": "start", "start": {}}), fault="streamSid", ends=True
                ),
                Opening(frames=frames(TWILIO_WRONG_RATE), fault="sampleRate", ends=True),
            ),
            broken={
                **JSON_FAULTS,
                '{"event": "dance"}': "event: must be one of connected, start",
                '{"event": "media", "media": {"payload": "AAAA"}}': "start first",
                b"\xff": "binary",
            },
        ),
    ),
)

WYOMING = Dialect(  # its gateway has the key
    "Wyoming",
    bearer,
    code=lambda body: body["code"],
    hint="",
    sockets=(
        Socket(
            "",
            "tts",
            wyoming_fault,
            say=lambda text, _: [wyoming_event("synthesize", text=text)],
            is_end=lambda event: event["type"] == "audio-stop",
            unknown=[
                Opening(
                    frames=[wyoming_event("synthesize", text="A.", voice=voice)],
                    fault="voice_not_found",
                )
                for voice in ({"name": UNKNOWN}, {"language": "tlh"})
            ],
        ),
        Socket(
            "",
            "stt",
            wyoming_fault,
            hear=wyoming_hear,
            end=(wyoming_event("audio-stop"),),
            is_end=lambda event: event["type"] == "transcript",
            unknown=[
                Opening(
                    frames=[
                        wyoming_event("transcribe", **asked),
                        wyoming_event("audio-start", **WYOMING_AUDIO),
                    ],
                    fault=fault,
                )
                for asked, fault in (
                    ({"language": "tlh"}, "validation_error"),
                    ({"name": UNKNOWN}, "model_not_found"),
                )
            ],
        ),
    ),
)

IN_RESULT = (
    "insufficient_credit",
    "insufficient_scope",
    "invalid_audio",
    "model_not_found",
    "overloaded",
    "validation_error",
    "voice_not_found",
)
MCP = Dialect(
    "MCP",
    bearer,
    code=mcp_code,
    fault=lambda body: str(body["result"]["content"][0]["text"]).partition(": ")[2],
    hint="Authorization: Bearer <",
    statuses=dict.fromkeys(IN_RESULT, 200),
    speech=(
        Speech(
            "/mcp",
            lambda text, voice: mcp_call("speak", text=text, voice=voice),
            format=("json", "params", "arguments", "output_format"),
            wrong=MCP_SPEECH,
            options=("json", "params", "arguments"),
            is_streamed=False,
        ),
    ),
    recognition=(
        Recognition(
            "/mcp",
            lambda recording, options: mcp_call(
                "transcribe", **{"audio": base64_text(recording), **options}
            ),
            wrong=MCP_RECOGNITION,
        ),
    ),
)

DIALECTS = (
    NATIVE,
    OPENAI,
    DEEPGRAM,
    ELEVENLABS,
    CARTESIA,
    INWORLD,
    ASSEMBLYAI,
    TWILIO,
    WYOMING,
    MCP,
)
