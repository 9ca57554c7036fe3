"""Transcripts in the formats of OpenAI's API."""

import json
import zlib
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any

from fastapi.responses import JSONResponse, PlainTextResponse
from starlette.responses import Response

from api.http.errors import to_api_error
from api.http.sse import error_frame
from api.openai.transcription.form import OpenAITranscriptionFields
from models.stt.base import Segment
from pipelines.stt.diarization import SpeakerUtterance
from pipelines.stt.file import FileTranscript, HeardText, separator_of
from pipelines.stt.subtitles import to_srt, to_vtt
from pipelines.text.language_names import name_language


def whole_answer(transcript: FileTranscript, fields: OpenAITranscriptionFields) -> Response:
    """The answer in the format that was asked for."""
    separator = separator_of(transcript.language)
    match fields.response_format:
        case "text":
            return PlainTextResponse(f"{transcript.text}\n")
        case "srt":
            return PlainTextResponse(to_srt(transcript.turns, separator))
        case "vtt":
            return Response(to_vtt(transcript.turns, separator), media_type="text/vtt")
        case "verbose_json":
            return JSONResponse(_verbose(transcript, fields))
        case "diarized_json":
            return JSONResponse(_diarized(transcript))
        case "json":
            return JSONResponse(_plain(transcript))


async def transcript_events(
    first: HeardText | FileTranscript,
    rest: AsyncGenerator[HeardText | FileTranscript, None],
    fields: OpenAITranscriptionFields,
) -> AsyncGenerator[bytes, None]:
    """An event for each speech segment, then the whole; a failure is the last event.

    The caller closes `rest`.
    """
    try:
        yield _events_of(first, fields)
        async for item in rest:
            yield _events_of(item, fields)
    except Exception as error:  # any failure becomes an event: the status is sent already
        with suppress(Exception):  # releases the charge; the error itself is reported below
            await rest.athrow(error)
        yield error_frame(to_api_error(error))


def _events_of(item: HeardText | FileTranscript, fields: OpenAITranscriptionFields) -> bytes:
    if isinstance(item, HeardText):
        return _event({"type": "transcript.text.delta", "delta": item.text})
    done = _event({"type": "transcript.text.done", **_plain(item)})
    if fields.response_format != "diarized_json":
        return done
    return b"".join([*map(_event, _speakers(item)), done])


def _event(event: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(event)}\n\n".encode()


def _plain(transcript: FileTranscript) -> dict[str, Any]:
    known = [{"code": transcript.language}] if transcript.segments else []
    return {"text": transcript.text, "languages": known, "usage": _usage(transcript)}


def _verbose(transcript: FileTranscript, fields: OpenAITranscriptionFields) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "task": "transcribe",
        "language": name_language(transcript.language).name.lower(),
        "duration": round(transcript.duration_s, 3),
        "text": transcript.text,
    }
    if fields.words:
        answer["words"] = [
            {"word": word.word, "start": word.start, "end": word.end} for word in transcript.words
        ]
    if not fields.words or "segment" in fields.timestamp_granularities:
        answer["segments"] = [
            _segment(number, segment) for number, segment in enumerate(transcript.segments)
        ]
    return {**answer, "usage": _usage(transcript)}


def _segment(number: int, segment: Segment) -> dict[str, Any]:
    text = segment.text.encode()
    return {
        "id": number,
        "seek": round(segment.start * 100),  # Whisper counts in frames of 10 ms
        "start": round(segment.start, 2),
        "end": round(segment.end, 2),
        "text": segment.text,
        "tokens": [],  # the recogniser does not report them
        "temperature": 0.0,
        "avg_logprob": round(segment.avg_logprob, 4),
        "compression_ratio": round(len(text) / len(zlib.compress(text)), 4),
        "no_speech_prob": round(segment.no_speech_prob, 4),
    }


def _diarized(transcript: FileTranscript) -> dict[str, Any]:
    return {
        "task": "transcribe",
        "duration": round(transcript.duration_s, 3),
        "text": transcript.text,
        "segments": _speakers(transcript),
        "usage": _usage(transcript),
    }


def _speakers(transcript: FileTranscript) -> list[dict[str, Any]]:
    return [
        _speaker(number, utterance) for number, utterance in enumerate(transcript.utterances or ())
    ]


def _speaker(number: int, utterance: SpeakerUtterance) -> dict[str, Any]:
    return {
        "type": "transcript.text.segment",
        "id": f"seg_{number}",
        "start": round(utterance.start, 2),
        "end": round(utterance.end, 2),
        "text": utterance.text,
        "speaker": utterance.speaker,
    }


def _usage(transcript: FileTranscript) -> dict[str, Any]:
    return {"type": "duration", "seconds": round(transcript.duration_s, 3)}
