"""Defaults that clients may state, and refused fields, each with the begin of its error."""

from typing import Any

from tests.contract.dialect import Frame, Wrong

UNKNOWN = "no-such-thing"
JSON_FAULTS: dict[Frame, str] = {"{": "JSON", "[]": "object"}
URL = "https://example.com/hook"

DEEPGRAM_USUAL = dict.fromkeys(
    "callback diarize dictation filler_words measurements mip_opt_out multichannel numerals "
    "profanity_filter punctuate redact replace search smart_format".split(),
    "false",
)
FLUX_USUAL = dict.fromkeys(("mip_opt_out", "numerals", "profanity_filter", "redact"), "false")
DEEPGRAM_RECOGNITION_USUAL = {
    **DEEPGRAM_USUAL,
    "detect_entities": "false",
    "detect_language": "false",
    "intents": "false",
    "paragraphs": "false",
    "sentiment": "false",
    "summarize": "false",
    "topics": "false",
    "utterances": "false",
    "utt_split": "0.8",
}
DEEPGRAM_LISTEN_USUAL = {
    **DEEPGRAM_USUAL,
    "channels": "1",
    "detect_entities": "false",
    "endpointing": "10",
    "summarize": "false",
    "vad_events": "false",
}
ELEVENLABS_RECOGNITION_USUAL = {
    "diarize": "false",
    "enable_logging": "true",
    "entity_detection": "",
    "file_format": "other",
    "no_verbatim": "false",
    "tag_audio_events": "true",
    "timestamps_granularity": "word",
    "use_multi_channel": "false",
    "webhook": "false",
}

NATIVE_SPEECH: tuple[Wrong, ...] = (
    ({"text": "   "}, "text"),
    ({"text": None}, "text"),
    ({"text": "\U0001f600 \u200b !!!"}, "text must have a letter or a digit"),
    (
        {"text": "x" * 5001},
        "text: has 5001 characters, and at most 5000 are allowed; the WebSocket /ws/tts",
    ),
    ({"speed": 0.49}, "speed: Input should be greater than or equal to 0.5"),
    ({"speed": 2.01}, "speed"),
    ({"speed": "1.0"}, "speed"),
    ({"pitch": 3}, "pitch"),
    ({"enhance": "true"}, "enhance"),
    ({"enhance": 1}, "enhance"),
    ({"timestamps": 1}, "timestamps"),
    ({"output_format": "aac"}, "output_format: Input should be 'mp3'"),
    ({"voice": 7}, "voice"),
    ({"voice": "x" * 201}, "voice: has 201 characters, and at most 200 are allowed"),
)
NATIVE_RECOGNITION: tuple[Wrong, ...] = (
    ({"timestamps": "perhaps"}, "timestamps"),
    ({"speaker_labels": "perhaps"}, "speaker_labels"),
    ({"response_format": "xml"}, "response_format"),
    ({"numerals": "perhaps"}, "numerals"),
    ({"punctuate": "2"}, "punctuate"),
    ({"profanity_filter": "x"}, "profanity_filter"),
    ({"redact": "names"}, "redact"),
    ({"redact": "all", "redact_mode": "x"}, "redact_mode"),
    ({"keyterms": ["x" * 101]}, "keyterms"),
    ({"keyterms": ["x"] * 101}, "keyterms"),
    ({"keyterms[]": ["x", ""]}, "keyterms"),
)
OPENAI_SPEECH: tuple[Wrong, ...] = (
    ({"speed": 0.2}, "speed: Input should be greater than or equal to 0.25"),
    ({"speed": "1"}, "speed: Input should be a valid number"),
    ({"response_format": "ogg"}, "response_format: Input should be 'mp3', 'opus'"),
    ({"stream_format": "ndjson"}, "stream_format: Input should be 'audio' or 'sse'"),
    ({"voice": 3}, "voice"),
    ({"voice": {"name": "x"}}, "voice"),
    ({"instructions": "x" * 4097}, "instructions: has 4097 characters"),
)
OPENAI_RECOGNITION: tuple[Wrong, ...] = (
    ({"response_format": "xml"}, "response_format: Input should be 'json'"),
    ({"temperature": "1.5"}, "temperature"),
    ({"temperature": "warm"}, "temperature: Input should be a valid number"),
    ({"stream": "maybe"}, "stream: Input should be a valid boolean"),
    ({"stream": "true", "response_format": "srt"}, "stream: srt cannot be streamed"),
    ({"timestamp_granularities[]": ["letter"]}, "timestamp_granularities: "),
    ({"keywords[]": ["x" * 101]}, "keywords: has 101 characters"),
    ({"keyterms[]": ["x" * 101]}, "keyterms: has 101 characters"),
    ({"keyterms[]": [" "]}, "keyterms"),
    ({"keyterms[]": ["x"] * 101}, "keyterms"),
)
DEEPGRAM_SPEECH: tuple[Wrong, ...] = (
    ({"encoding": "mp3", "sample_rate": 8000}, "sample_rate"),
    ({"encoding": "mp3", "bit_rate": 33_000}, "bit_rate"),
    ({"encoding": "linear16", "bit_rate": 32_000}, "bit_rate"),
    ({"encoding": "opus", "bit_rate": 300_000}, "bit_rate"),
    ({"speed": 3}, "speed"),
    ({"callback": URL}, "callback"),
)
DEEPGRAM_RECOGNITION: tuple[Wrong, ...] = (
    ({"callback": "http://example.com/hook"}, "callback"),
    ({"callback": URL, "callback_method": "GET"}, "callback_method"),
    ({"summarize": "v2"}, "summarize"),
    ({"topics": "true"}, "topics"),
    ({"search": "x" * 201}, "search"),
    ({"redact": "everything"}, "redact"),
    ({"utt_split": "-1"}, "utt_split"),
    ({"diarize": "perhaps"}, "diarize"),
    ({"sample_rate": "5"}, "sample_rate"),
)
DEEPGRAM_LISTEN: tuple[dict[str, str], ...] = (
    {"encoding": "g729"},
    {"sample_rate": "1"},
    {"redact": "everything"},
    {"channels": "2"},
    {"callback": URL},
    {"summarize": "v2"},
    {"interim_results": "perhaps"},
    {"endpointing": "-1"},
    {"keyterm": "x" * 101},
)
ELEVENLABS_SPEECH: tuple[Wrong, ...] = (
    ({"voice_settings": {"stability": 2}}, "voice_settings.stability"),
    ({"voice_settings": {"speed": 9}}, "voice_settings.speed"),
    (
        {"pronunciation_dictionary_locators": [{"pronunciation_dictionary_id": 5}]},
        "pronunciation_dictionary_locators.0.pronunciation_dictionary_id",
    ),
)
ELEVENLABS_RECOGNITION: tuple[Wrong, ...] = (
    ({"webhook": "true"}, "webhook"),
    ({"entity_detection": '"all"'}, "entity_detection"),
    ({"entity_redaction": '["pii"]'}, "entity_redaction"),
    ({"transcript_edit": "shorten"}, "transcript_edit"),
    ({"detect_speaker_roles": "true"}, "detect_speaker_roles"),
    ({"use_speaker_library": "true"}, "use_speaker_library"),
    ({"diarize": "perhaps"}, "diarize"),
    ({"timestamps_granularity": "sentence"}, "timestamps_granularity"),
    ({"additional_formats": '[{"format": "pdf"}]'}, "additional_formats"),
    ({"additional_formats": "srt"}, "additional_formats"),
    ({"keyterms": "x" * 101}, "keyterms"),
)
CARTESIA_LISTEN = {"model": "ink-2", "encoding": "pcm_s16le", "sample_rate": "16000"}
CARTESIA_SPEECH: tuple[Wrong, ...] = (
    ({"voice": {"mode": "embedding", "embedding": [0.1]}}, "voice"),
    ({"voice": None}, "voice"),
    ({"output_format": {"container": "ogg"}}, "output_format.container"),
    ({"output_format": {"container": "raw", "encoding": "pcm_s24le"}}, "output_format.encoding"),
    ({"output_format": {"container": "raw", "sample_rate": 11_025}}, "sample_rate"),
    ({"output_format": {"container": "raw", "sample_rate": "16000"}}, "output_format.sample_rate"),
    ({"generation_config": {"speed": 9}}, "generation_config.speed"),
    ({"speed": "fastest"}, "speed"),
)
INWORLD_SPEECH: tuple[Wrong, ...] = (
    ({"voiceId": None}, "voiceId"),
    ({"audioConfig": {"audioEncoding": "AIFF"}}, "audioConfig.audioEncoding"),
    ({"audioConfig": {"sampleRateHertz": 96_000}}, "audioConfig.sampleRateHertz: "),
    ({"timestampType": "SYLLABLE"}, "timestampType"),
)
MCP_SPEECH: tuple[Wrong, ...] = (
    ({"text": None}, "text: "),
    ({"speed": 9}, "speed: "),
    ({"output_format": "exe"}, "output_format: "),
)
MCP_RECOGNITION: tuple[Wrong, ...] = (
    ({"audio": None}, "audio: "),
    ({"audio": "a", "url": "https://a.b"}, "audio: "),
    ({"audio": "no base64!"}, "audio: "),
)
ASSEMBLYAI_LISTEN: tuple[dict[str, Any], ...] = (
    {"sample_rate": "5"},
    {"encoding": "opus"},
    {"keyterms_prompt": "[1"},
    {"keyterms_prompt": "[" * 1000},
    {"keyterms_prompt": f'["{"x" * 101}"]'},
    {"end_of_turn_confidence_threshold": "high"},
    {"redact_pii": "true"},
    {"webhook_url": URL},
    {"llm_gateway": '{"model": "x"}'},
    {"inactivity_timeout": "1"},
)
