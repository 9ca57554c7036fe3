"""Bodies and messages that the service takes, each as deep as its schema is: conversations with
calls of tools, structured answers, SSML, scripts, rules, sessions of agents."""

import json
from base64 import b64encode
from typing import Any

from tests.hostile.audio_files import encode, tone

Ids = dict[str, str]

CITY = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 40, "pattern": "^[A-Z][a-z]+$"},
        "days": {"type": "array", "items": {"type": "integer", "minimum": 1}, "maxItems": 3},
        "unit": {"anyOf": [{"enum": ["C", "F"]}, {"type": "null"}]},
        "place": {"$ref": "#/$defs/place"},
    },
    "required": ["city"],
    "additionalProperties": False,
    "$defs": {"place": {"type": "object", "properties": {"lat": {"type": "number"}}}},
}
FUNCTION = {"name": "get_weather", "description": "The weather", "parameters": CITY, "strict": True}
TOOL = {"type": "function", "function": FUNCTION}
ARGUMENTS = '{"city": "Oslo", "days": [1, 2], "unit": "C"}'
CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "get_weather", "arguments": ARGUMENTS},
}
SCHEMA = {"name": "city", "schema": CITY, "strict": True}
SSML = (
    '<speak><p>On <say-as interpret-as="date">3/4/2025</say-as>,'
    '<break time="300ms"/> <prosody rate="90%" pitch="+2st">slowly</prosody> '
    '<phoneme alphabet="ipa" ph="təˈmeɪtoʊ">tomato</phoneme> <sub alias="doctor">Dr</sub>.'
    "</p></speak>"
)


def by_schema(ids: Ids) -> dict[str, list[dict[str, Any]]]:
    """Bodies by the name of their schema; `ids` has objects that are there."""
    voice, dictionary = ids["speaking_voice"], ids["dictionary_id"]
    speech = {
        "text": "Hello there. It is 8:30.",
        "voice_id": voice,
        "speed": 1.1,
        "pitch": 0.9,
        "output_format": "mp3",
        "pronunciations": [{"id": dictionary, "version": 1}],
        "timestamps": True,
    }
    script = {"script": [{"text": "Hello.", "voice": "Alto"}, {"text": "Hi.", "voice": "Alto"}]}
    eleven = {
        "text": "Hello there.",
        "model_id": "eleven_multilingual_v2",
        "language_code": "en",
        "voice_settings": {"stability": 0.5, "similarity_boost": 0.7, "speed": 1.1},
        "pronunciation_dictionary_locators": [
            {"pronunciation_dictionary_id": dictionary, "version_id": "1"}
        ],
        "previous_text": "Before.",
        "seed": 7,
    }
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Weather?"}]},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "Sun."}]},
        {"role": "assistant", "content": "Sunny.", "tool_calls": []},
        {"role": "user", "content": "Thanks"},
    ]
    chat: dict[str, Any] = {
        "messages": messages,
        "tools": [TOOL],
        "tool_choice": {"type": "function", "function": {"name": "get_weather"}},
        "parallel_tool_calls": False,
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 5,
        "seed": 1,
        "stop": ["\n\n", "END"],
        "max_tokens": 20,
        "stream": True,
        "stream_options": {"include_usage": True},
        "chat_template_kwargs": {"enable_thinking": False},
        "save_chat": False,
    }
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": "Weather?"}]},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]},
        {
            "type": "function_call",
            "call_id": "call_1",
            "name": "get_weather",
            "arguments": ARGUMENTS,
        },
        {"type": "function_call_output", "call_id": "call_1", "output": "Sun."},
        {"role": "assistant", "content": [{"type": "output_text", "text": "Sunny."}]},
        {"type": "item_reference", "id": ids["input[].id"]},
        {"type": "message", "role": "user", "content": "Thanks"},
    ]
    responses: dict[str, Any] = {
        "input": items,
        "instructions": "Be brief.",
        "tools": [{"type": "function", **FUNCTION}],
        "tool_choice": {"type": "function", "name": "get_weather"},
        "reasoning": {"effort": "low", "summary": "auto"},
        "metadata": {"topic": "weather"},
        "max_output_tokens": 20,
        "store": False,
        "stream": True,
        "include": [],
        "truncation": "disabled",
    }
    session = realtime_session()
    return {
        "SynthesisBody": [speech, {"text": SSML, "voice_id": voice}, script],
        "StreamBody": [speech, {"text": SSML, "voice_id": voice}, script],
        "ExplainBody": [{"text": SSML}, script, {"text": "It is 8:30.", "language": "en"}],
        "OpenAISpeechBody": [
            {
                "model": "tts-1",
                "input": "Hello there.",
                "voice": {"id": voice},
                "response_format": "wav",
                "speed": 1.25,
                "stream_format": "sse",
                "pronunciations": [{"id": dictionary}],
            }
        ],
        "InworldBody": [
            {
                "text": "Hello there.",
                "voiceId": voice,
                "modelId": "inworld-tts-1",
                "audioConfig": {
                    "audioEncoding": "LINEAR16",
                    "sampleRateHertz": 16000,
                    "speakingRate": 1.1,
                },
                "timestampType": "WORD",
                "temperature": 1.1,
                "pronunciations": [{"id": dictionary}],
            }
        ],
        "DeepgramText": [{"text": "Hello there."}],
        "ElevenLabsText": [eleven],
        "DictionaryRules": [
            {
                "name": "Names",
                "rules": [
                    {"type": "alias", "string_to_replace": "Nginx", "alias": "engine X"},
                    {
                        "type": "phoneme",
                        "string_to_replace": "tomato",
                        "phoneme": "təˈmeɪtoʊ",
                        "alphabet": "ipa",
                    },
                ],
            }
        ],
        "DictionaryBody": [
            {
                "name": "Names",
                "entries": [
                    {"grapheme": "Nginx", "alias": "engine X", "phoneme": "ˈɛn", "language": "en"},
                    {"grapheme": "GIF", "phoneme": "dZIf", "alphabet": "x-sampa"},
                ],
            }
        ],
        "CartesiaText": [
            {
                "model_id": "sonic-3",
                "transcript": "Hello there.",
                "voice": {"mode": "id", "id": voice},
                "output_format": {
                    "container": "raw",
                    "encoding": "pcm_s16le",
                    "sample_rate": 16000,
                },
                "language": "en",
                "generation_config": {"speed": 1.1, "volume": 1.0},
                "add_timestamps": True,
                "pronunciation_dict_id": dictionary,
            }
        ],
        "ChatCompletionBody": [
            chat,
            {**without(chat, "tools", "tool_choice"), "chat_id": ids["chat_id"]},
            {
                **without(chat, "tools", "tool_choice", "parallel_tool_calls"),
                "response_format": {"type": "json_schema", "json_schema": SCHEMA},
            },
            {**chat, "redact": ["all"], "stream": False, "tool_choice": "auto"},
            {
                "text": "he go to school",
                "dictionary": [{"term": "school", "replacement": "College"}],
                "style": {"tone": "formal", "autoCapitalize": True},
                "appContext": "email",
                "save_chat": False,
            },
        ],
        "ResponsesBody": [
            responses,
            {
                **without(responses, "tools", "tool_choice"),
                "text": {"format": {"type": "json_schema", **SCHEMA}},
                "previous_response_id": ids["previous_response_id"],
            },
        ],
        "ClientSecretBody": [
            {"expires_after": {"anchor": "created_at", "seconds": 600}, "session": session}
        ],
        "NewWebhook": [
            {"url": "https://example.com/h", "events": ["tts.completed"], "secret": "s" * 12}
        ],
        "JsonRpc": [
            {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            for number, (method, params) in enumerate(mcp_messages())
        ],
        "NewApiKey": [
            {"name": "k", "scopes": ["tts", "stt"], "expires_at": "2035-01-01T00:00:00Z"}
        ],
    }


def mcp_messages() -> list[tuple[str, dict[str, Any]]]:
    """Methods and parameters of MCP."""
    client = {"name": "tests", "version": "1"}
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}
    speak = {"text": "Hello there.", "voice": "Alto", "speed": 1.1, "output_format": "mp3"}
    audio = b64encode(encode("wav", tone(0.2))).decode()
    transcribe = {"audio": audio, "language": "en", "redact": ["all"], "keyterms": ["Ann"]}
    return [
        ("initialize", hello),
        ("tools/list", {}),
        ("tools/call", {"name": "speak", "arguments": speak, "_meta": {"progressToken": 1}}),
        ("tools/call", {"name": "transcribe", "arguments": transcribe}),
        ("tools/call", {"name": "voices", "arguments": {"language": "en"}}),
        ("notifications/cancelled", {"requestId": 1, "reason": "a"}),
    ]


def without(body: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: field for name, field in body.items() if name not in names}


def realtime_session() -> dict[str, Any]:
    """A session of an agent with every part."""
    return {
        "type": "realtime",
        "instructions": "Be brief.",
        "output_modalities": ["text"],
        "audio": {
            "input": {
                "format": {"type": "audio/pcm", "rate": 24000},
                "noise_reduction": {"type": "near_field"},
                "transcription": {"model": "whisper-1", "language": "en", "prompt": "Names"},
                "turn_detection": {
                    "type": "server_vad",
                    "threshold": 0.5,
                    "prefix_padding_ms": 300,
                    "silence_duration_ms": 500,
                    "create_response": False,
                },
            },
            "output": {"format": {"type": "audio/pcmu"}, "voice": "alloy", "speed": 1.1},
        },
        "tools": [{"type": "function", "name": "get_weather", "parameters": CITY}],
        "tool_choice": "auto",
        "max_output_tokens": 50,
        "truncation": {"type": "retention_ratio", "retention_ratio": 0.8},
        "include": ["item.input_audio_transcription.logprobs"],
        "metadata": {"a": "b"},
    }


def forms() -> dict[str, tuple[dict[str, Any], dict[str, tuple[str, bytes]]]]:
    """Fields and files of forms by path; every other form has those of its schema."""
    wav = encode("wav", tone(0.5))
    listening = {
        "language": "en",
        "timestamps": "true",
        "speaker_labels": "true",
        "keyterms": ["Ann", "Oslo"],
        "redact": ["all"],
        "redact_mode": "mask",
        "response_format": "json",
        "numerals": "true",
    }
    return {
        "/stt": (listening, {"audio": ("a.wav", wav)}),
        "/audio/verify": ({}, {"audio": ("a.wav", wav)}),
        "/openai/v1/audio/transcriptions": (
            {
                "model": "whisper-1",
                "language": "en",
                "prompt": "Ann, Oslo",
                "response_format": "verbose_json",
                "timestamp_granularities[]": ["word", "segment"],
                "temperature": "0.2",
            },
            {"file": ("a.wav", wav)},
        ),
        "/openai/v1/audio/translations": ({"model": "whisper-1"}, {"file": ("a.wav", wav)}),
        "/v1/speech-to-text": (
            {
                "model_id": "scribe_v1",
                "language_code": "en",
                "diarize": "true",
                "timestamps_granularity": "word",
                "additional_formats": '[{"format": "srt", "max_characters_per_line": 40}]',
            },
            {"file": ("a.wav", wav)},
        ),
        "/jobs/transcriptions": (listening, {"audio": ("a.wav", wav)}),
        "/jobs/speech": (
            {
                "title": "A book",
                "voice": "Alto",
                "speed": "1.1",
                "output_format": "mp3",
            },
            {"document": ("a.md", b"# One\n\nText.\n\n# Two\n\nMore.")},
        ),
        "/jobs/speech/estimate": (
            {
                "title": "A book",
                "speed": "1.1",
                "chapters": "1-2,2",
            },
            {"document": ("a.md", b"# One\n\nText.\n\n# Two\n\nMore.")},
        ),
        "/openai/v1/files": ({"purpose": "batch"}, {"file": ("a.jsonl", batch_line({}))}),
        "/v1/pronunciation-dictionaries/add-from-file": (
            {"name": "Names"},
            {
                "file": (
                    "a.pls",
                    b'<lexicon version="1.0" xmlns="http://www.w3.org/2005/01/pronunciation-lexicon"'
                    b' alphabet="ipa" xml:lang="en"><lexeme><grapheme>a</grapheme>'
                    b"<alias>b</alias></lexeme></lexicon>",
                )
            },
        ),
    }


def batch_line(body: dict[str, Any], url: str = "/v1/chat/completions") -> bytes:
    return json.dumps({"custom_id": "1", "method": "POST", "url": url, "body": body}).encode()
