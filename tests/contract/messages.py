"""What clients of each dialect send, and how they find an error in what they get."""

import json
from collections.abc import Mapping
from typing import Any

from tests.contract.dialect import (
    Event,
    Frame,
    Headers,
    Request,
    Speech,
    base64_text,
    frames,
    pieces,
)
from tests.contract.fields import ELEVENLABS_SPEECH

RAW = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 16_000}
WYOMING_AUDIO = {"rate": 16_000, "width": 2, "channels": 1}


def bearer(key: str) -> Headers:
    return {"Authorization": f"Bearer {key}"}


def form(field: str) -> Any:
    """A multipart form with the recording in `field`."""

    def request(recording: bytes, options: Mapping[str, str]) -> Request:
        return {"files": {field: ("a.wav", recording, "audio/wav")}, "data": dict(options)}

    return request


def native_fault(event: Event) -> str:
    error = event.get("error", "")
    return str(error if isinstance(error, str) else error["message"])


def native_hear(pcm: bytes) -> list[Frame]:
    start = {"type": "start", "config": {"continuous_mode": True}}
    audio = [
        {
            "type": "audio",
            "audio": base64_text(piece),
            "encoding": "linear",
            "sample_rate": 16_000,
        }
        for piece in pieces(pcm)
    ]
    return frames(start, *audio)


def openai_fault(event: Event) -> str:
    if event["type"] != "error":
        return ""
    return f"{event['error']['code']}: {event['error']['message']}"


def openai_code(body: Any) -> str:
    error = body["error"]
    assert (error["type"] == "server_error") == (error["code"] == "overloaded")
    return str(error["code"])


def openai_place(body: Any) -> str:
    error = body["error"]
    assert (error["message"].partition(":")[0]).startswith(error["param"]), error
    return str(error["message"])


def deepgram_code(body: Any) -> str:
    assert body["err_msg"] == body["message"] and body["request_id"]
    return str(body["err_code"])


def deepgram_fault(event: Event) -> str:
    if event["type"] not in ("Error", "Warning"):
        return ""
    assert event.get("warn_msg", event["description"]) == event["description"]
    return str(event["description"])


def deepgram_recognition(recording: bytes, options: Mapping[str, str]) -> Request:
    return {"content": recording, "headers": {"Content-Type": "audio/wav"}, "params": options}


def elevenlabs_code(body: Any) -> str:
    detail = body["detail"]
    return "validation_error" if isinstance(detail, list) else str(detail["status"])


def elevenlabs_place(body: Any) -> str:
    """The place of the field, and what is wrong with it."""
    (fault,) = body["detail"]
    assert fault["type"] == "value_error"
    return f"{'.'.join(fault['loc'][1:])}: {fault['msg']}"


def elevenlabs_fault(event: Event) -> str:
    if "error" not in event:
        return ""
    assert event.get("code", 1008) in (1008, 1011)
    return f"{event['error']}: {event['message']}" if "message" in event else str(event["error"])


def elevenlabs_hear(pcm: bytes) -> list[Frame]:
    audio = [
        {
            "message_type": "input_audio_chunk",
            "audio_base_64": base64_text(piece),
            "sample_rate": 16_000,
            "commit": False,
        }
        for piece in pieces(pcm)
    ]
    return frames(*audio)


def elevenlabs_speech(suffix: str, is_streamed: bool) -> Speech:
    return Speech(
        "/v1/text-to-speech/{voice}" + suffix,
        lambda text, _: {"json": {"text": text}, "params": {"output_format": "pcm_16000"}},
        format=("params", "output_format"),
        wrong=ELEVENLABS_SPEECH,
        usual={
            "apply_text_normalization": "auto",
            "language_code": None,
            "model_id": "eleven_multilingual_v2",
            "pronunciation_dictionary_locators": [],
            "seed": None,
            "voice_settings": {"stability": 0.5, "similarity_boost": 0.75, "speed": 1.0},
        },
        is_streamed=is_streamed,
    )


def cartesia_code(body: Any) -> str:
    assert body["title"] and body["request_id"]
    return str(body["error_code"])


def cartesia_fault(event: Event) -> str:
    return str(event["message"]) if event["type"] == "error" else ""


def cartesia_body(text: str, voice: str) -> dict[str, Any]:
    named = {"mode": "id", "id": voice}
    return {"model_id": "sonic-3", "transcript": text, "voice": named, "output_format": {**RAW}}


def inworld_body(text: str, voice: str) -> dict[str, Any]:
    audio = {"audioEncoding": "PCM", "sampleRateHertz": 16_000}
    return {"text": text, "voiceId": voice, "audioConfig": audio}


def inworld_fault(event: Event) -> str:
    status = event["result"]["status"]
    return str(status["message"]) if status["code"] else ""


def inworld_create(voice: str) -> dict[str, Any]:
    audio = {"audioEncoding": "PCM", "sampleRateHertz": 16_000}
    return {"create": {"voiceId": voice, "audioConfig": audio}, "contextId": "c"}


def assemblyai_fault(event: Event) -> str:
    return str(event.get("error") or event.get("warning") or "")


TWILIO_WRONG_RATE = {
    "event": "start",
    "start": {"streamSid": "a", "mediaFormat": {"sampleRate": 16000}},
}


def twilio_start(**parameters: str) -> list[Frame]:
    start = {"streamSid": "MZ0", "customParameters": parameters}
    return frames({"event": "start", "start": start})


def wyoming_event(kind: str, payload: bytes = b"", /, **data: Any) -> bytes:
    header = {"type": kind, "data": data, "payload_length": len(payload)}
    return json.dumps(header).encode() + b"\n" + payload


def wyoming_fault(event: Event) -> str:
    return f"{event.get('code')}: {event['text']}" if event["type"] == "error" else ""


def wyoming_hear(pcm: bytes) -> list[Frame]:
    chunks = [wyoming_event("audio-chunk", piece, **WYOMING_AUDIO) for piece in pieces(pcm)]
    return [wyoming_event("transcribe"), wyoming_event("audio-start", **WYOMING_AUDIO), *chunks]


def mcp_call(tool: str, **arguments: Any) -> Request:
    given = {name: value for name, value in arguments.items() if value is not None}
    call = {"name": tool, "arguments": given}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
    return {"json": body, "headers": {"Accept": "application/json, text/event-stream"}}


def mcp_code(body: Any) -> str:
    if "error" in body:
        assert (body["jsonrpc"], body["id"]) == ("2.0", None)
        return str(body["error"]["data"]["type"])
    assert body["result"]["isError"], body
    return str(body["result"]["content"][0]["text"].partition(":")[0])
