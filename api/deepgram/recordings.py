"""Deepgram's `POST /v1/listen`: a recording, sent as the body or fetched from a URL, and its
transcript: channels with alternatives, paragraphs and utterances."""

import asyncio
import hashlib
import uuid
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from fastapi import Query, Request
from pydantic import BaseModel

from api.deepgram import options
from api.dialects.requests import fetched
from api.http.bodies import parse_json, read_json
from api.http.errors import ApiError
from api.http.routing import OperationDep, PrincipalDep, SpeechDep, make_router
from api.http.streaming import while_connected
from api.http.uploads import BINARY, receive_file, validated
from api.services import SpeechServices
from models.base import ModelInfo
from models.stt.base import Word
from pipelines.accounts.authentication import Principal
from pipelines.audio.decode.stream import as_wav
from pipelines.billing.operation import Operation
from pipelines.errors import InvalidAudio
from pipelines.stt.file import FileTranscript
from pipelines.stt.formatting import bare_word, separator_of
from pipelines.stt.subtitles import SENTENCE_ENDS
from telemetry.tracing import request_id

Turns: TypeAlias = list[tuple[str | None, Sequence[Word]]]
PARAGRAPH_PAUSE_S, MOST_SENTENCES = 1.0, 5  # after a sentence; of a paragraph


class SpeakerNumbers:
    """Labels of speakers as numbers, in order of appearance."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}

    def of(self, label: str | None) -> int | None:
        return None if label is None else self._known.setdefault(label, len(self._known))


def shown_words(
    words: Sequence[Word],
    speakers: Sequence[int | None],
    *,
    punctuated: bool,
    language: str | None = None,
) -> list[dict[str, Any]]:
    """`speakers` has one for each word, or none at all; `language` goes with each."""
    shown = []
    for place, word in enumerate(words):
        fields: dict[str, Any] = {
            "word": bare_word(word.word) or word.word,
            "start": round(word.start, 3),
            "end": round(word.end, 3),
            "confidence": round(word.confidence, 4),
        }
        if language is not None:
            fields["language"] = language
        if speakers and speakers[place] is not None:
            fields["speaker"] = speakers[place]
        if punctuated:
            fields["punctuated_word"] = word.word
        shown.append(fields)
    return shown


def metadata(request_id: str, model: ModelInfo, sha256: str, **more: Any) -> dict[str, Any]:
    """Of a recording, or of a whole stream."""
    return {
        "transaction_key": "deprecated",
        "request_id": request_id,
        "sha256": sha256,
        "created": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        **more,
        "models": [options.uuid_of(model)],
        "model_info": {options.uuid_of(model): options.described(model)},
    }


class RecordingResults:
    def __init__(self, query: options.RecordingQuery, transcript: FileTranscript) -> None:
        self._query, self._transcript = query, transcript
        self._separator = separator_of(transcript.language)
        self._language = transcript.language if query.language == options.MULTI else None

    def as_json(self) -> dict[str, Any]:
        turns: Turns = list(self._transcript.turns)
        if self._query.multichannel:  # the speakers are the channels
            channels: list[Turns] = [
                [(None, words) for who, words in turns if who == one] for one in "AB"
            ]
        else:
            channels = [turns]
        results: dict[str, Any] = {"channels": [self._channel(one) for one in channels]}
        if self._query.utterances:
            said = [one for at, turns in enumerate(channels) for one in self._utterances(turns, at)]
            results["utterances"] = sorted(said, key=lambda one: float(one["start"]))
        return results

    def _channel(self, turns: Turns) -> dict[str, Any]:
        numbers = SpeakerNumbers()
        words = [word for _, said in turns for word in said]
        speakers = [numbers.of(who) for who, said in turns for _ in said]
        whole = self._transcript.text if not self._query.multichannel else self._text(words)
        best: dict[str, Any] = {
            "transcript": whole,
            "confidence": round(self._transcript.confidence, 4),
            "words": self._shown(words, speakers),
        }
        if self._language is not None:
            best["languages"] = [self._language]
        if self._query.paragraphs or self._query.smart_format:
            best["paragraphs"] = self._paragraphs(turns)
        channel: dict[str, Any] = {"alternatives": [best]}
        if self._query.detects:
            channel["detected_language"] = self._transcript.language
        return channel

    def _utterances(self, turns: Turns, channel: int) -> Iterable[dict[str, Any]]:
        numbers, longest_s = SpeakerNumbers(), self._query.utt_split
        for who, said in turns:
            speaker = numbers.of(who)
            for words in _cut(said, lambda before, after: after.start - before.end > longest_s):
                yield {
                    "start": round(words[0].start, 3),
                    "end": round(words[-1].end, 3),
                    "confidence": round(sum(one.confidence for one in words) / len(words), 4),
                    "channel": channel,
                    "transcript": self._text(words),
                    "words": self._shown(words, [speaker] * len(words)),
                    **({} if speaker is None else {"speaker": speaker}),
                    "id": str(uuid.uuid4()),
                }

    def _paragraphs(self, turns: Turns) -> dict[str, Any]:
        numbers, shown, texts = SpeakerNumbers(), [], []
        for who, said in turns:
            speaker = numbers.of(who)
            sentences = _cut(said, lambda before, _: before.word.endswith(SENTENCE_ENDS))
            for group in _grouped(sentences):
                paragraph = {
                    "sentences": [
                        {
                            "text": self._text(one),
                            "start": round(one[0].start, 3),
                            "end": round(one[-1].end, 3),
                        }
                        for one in group
                    ],
                    **({} if speaker is None else {"speaker": speaker}),
                    "num_words": sum(map(len, group)),
                    "start": round(group[0][0].start, 3),
                    "end": round(group[-1][-1].end, 3),
                }
                shown.append(paragraph)
                text = self._separator.join(self._text(one) for one in group)
                texts.append(text if speaker is None else f"Speaker {speaker}: {text}")
        return {"transcript": "\n" + "\n\n".join(texts), "paragraphs": shown}

    def _text(self, words: Sequence[Word]) -> str:
        return self._separator.join(word.word for word in words)

    def _shown(self, words: Sequence[Word], speakers: Sequence[int | None]) -> list[dict[str, Any]]:
        punctuated = self._query.is_punctuated
        return shown_words(words, speakers, punctuated=punctuated, language=self._language)


def _cut(words: Sequence[Word], ends: Callable[[Word, Word], bool]) -> list[list[Word]]:
    """The words in parts: one ends where `ends` holds for its last word and the next."""
    parts: list[list[Word]] = []
    for word in words:
        if not parts or ends(parts[-1][-1], word):
            parts.append([])
        parts[-1].append(word)
    return parts


def _grouped(sentences: list[list[Word]]) -> list[list[list[Word]]]:
    groups: list[list[list[Word]]] = []
    for one in sentences:
        last = groups[-1] if groups else None
        pauses = last is not None and one[0].start - last[-1][-1].end > PARAGRAPH_PAUSE_S
        if last is None or pauses or len(last) == MOST_SENTENCES:
            groups.append([])
        groups[-1].append(one)
    return groups


router = make_router(
    "Deepgram's dialect", scope="stt", visitors=True, schemes=options.BEARER_OR_TOKEN
)

RECORDING = {**BINARY, "description": "A recording in a format of `POST /stt`, or raw samples in "}
RECORDING["description"] += "`encoding`. To send a `url` instead, use an `application/json` body."


class RecordingUrl(BaseModel):
    url: str


@router.post(
    "/v1/listen",
    summary="Transcribe a recording, for Deepgram's clients",
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/octet-stream": {"schema": RECORDING}},
        }
    },
)
async def transcribe_recording(
    request: Request,
    principal: PrincipalDep,
    speech: SpeechDep,
    operation: OperationDep,
    query: Annotated[options.RecordingQuery, Query()],
) -> dict[str, Any]:
    """Transcribes the recording in the body, or at a URL. Stops if the client disconnects."""
    model = await speech.live_transcription.transcriber.describe()
    options.check_recogniser(query.model, model)
    check = partial(speech.transcription.check_credit, principal.workspace_id, operation)
    work = partial(_transcribe, principal, speech, operation, query, model)
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type == "application/json":
        body = parse_json(await read_json(request))
        if not isinstance(body, dict):
            raise ApiError("validation_error", "the body must be a JSON object with a url")
        url = validated(RecordingUrl, body).url
        await check()
        async with fetched(request, speech, url) as path:
            return await while_connected(request.receive, work(path))
    if media_type == "multipart/form-data":
        message = "send the audio, or JSON with its url, as the body, not as a form"
        raise ApiError("unsupported_media_type", message)
    async with receive_file(request, before_large=check) as path:
        return await while_connected(request.receive, work(path))


async def _transcribe(
    principal: Principal,
    speech: SpeechServices,
    operation: Operation,
    query: options.RecordingQuery,
    model: ModelInfo,
    path: Path,
) -> dict[str, Any]:
    sha256 = await asyncio.to_thread(_prepare, path, query)

    def answer(transcript: FileTranscript) -> dict[str, Any]:
        duration = round(transcript.duration_s, 3)
        counts = {"duration": duration, "channels": 2 if query.multichannel else 1}
        about = metadata(request_id.get() or "", model, sha256, **counts)
        if query.tag:
            about["tags"] = query.tag
        return {"metadata": about, "results": RecordingResults(query, transcript).as_json()}

    owner = principal.workspace_id
    wanted = query.recognition()
    try:
        return await speech.transcription.transcribe(owner, operation, path, wanted, answer)
    except InvalidAudio:
        if query.encoding is None or query.sample_rate is not None:
            raise
        raise ApiError("validation_error", query.rate_missing, param="sample_rate") from None


def _prepare(path: Path, query: options.RecordingQuery) -> str:
    """The digest of the recording; raw samples become a file of their format. Blocking."""
    data = path.read_bytes()
    if query.encoding is not None and query.sample_rate is not None:
        path.write_bytes(as_wav(data, options.ENCODINGS[query.encoding], query.sample_rate))
    return hashlib.sha256(data).hexdigest()
