"""Deepgram's `POST /v1/listen`, which transcribes a recording in the body or at a URL."""

import asyncio
import hashlib
import json
import uuid
from collections.abc import Callable, Coroutine, Iterable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from fastapi import Query, Request
from pydantic import BaseModel

from api.callers import Caller, CallerDep
from api.deepgram import options
from api.deepgram.findings import Replacements, entities_json, search_hits
from api.dialects.requests import fetched
from api.http.bodies import ADDRESS_TOO_LONG, parse_json, read_json
from api.http.errors import ApiError, InvalidAddress, InvalidField
from api.http.routing import PlatformDep, make_router
from api.http.streaming import while_connected
from api.http.uploads import file_schema, receive_file, validated
from api.native.jobs import CONFIG, LEAST_MS
from api.services import PlatformServices
from db.database import iso_moment
from models.stt.base import Word
from pipelines.audio.decode.decoder import head_of, sniff
from pipelines.audio.decode.stream import add_wav_header
from pipelines.errors import InvalidAudio, InvalidUrl
from pipelines.jobs.transcription import TASK, TranscriptionTask
from pipelines.stt.file import FileTranscript
from pipelines.stt.formatting import bare_word, mean_confidence, separator_of
from pipelines.stt.subtitles import cut, paragraphs_of
from pipelines.webhooks.callbacks import CallbackRequest, without_password
from telemetry.tracing import request_id

Turns: TypeAlias = list[tuple[int | None, Sequence[Word]]]
"""Words of consecutive turns of one channel, with the numbers of their speakers."""

Models: TypeAlias = dict[str, dict[str, str]]  # descriptions by UUID
MAX_CALLBACK_BYTES = 8_000_000  # larger answers are fetched from the job


class SpeakerNumbers:
    """Numbers speakers by their labels, in order of appearance."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def of(self, label: str | None) -> int | None:
        """Returns a speaker's number from 0; None without a label."""
        return None if label is None else self._numbers.setdefault(label, len(self._numbers))


def words_json(
    words: Sequence[Word],
    speakers: Sequence[int | None],
    *,
    punctuated: bool,
    language: str | None = None,
) -> list[dict[str, Any]]:
    """Converts words. `speakers` has each word's speaker number, or is empty; `language`, if given,
    is repeated in each word."""
    entries = []
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
        entries.append(fields)
    return entries


def metadata(request_id: str, models: Models, sha256: str, **fields: Any) -> dict[str, Any]:
    """Returns the `metadata` of a recording or a whole stream; `fields` are added to it."""
    return {
        "transaction_key": "deprecated",
        "request_id": request_id,
        "sha256": sha256,
        "created": iso_moment(datetime.now(UTC)),
        **fields,
        "models": [*models],
        "model_info": models,
    }


def has_channels(query: options.RecordingQuery, transcript: FileTranscript) -> bool:
    """Whether two channels were transcribed; a mono recording has no utterances."""
    return query.multichannel and transcript.utterances is not None


class RecordingResults:
    """Converts the transcript of a recording to the `results` that the query asks for."""

    def __init__(self, query: options.RecordingQuery, transcript: FileTranscript) -> None:
        self._query = query
        self._transcript = transcript
        self._has_channels = has_channels(query, transcript)
        self._separator = separator_of(transcript.language)
        self._language = transcript.language if query.language == options.MULTI else None
        self._replacements = Replacements(query.replace)

    def as_json(self) -> dict[str, Any]:
        turns = [
            (label, [word for _, word in self._replacements.of(words)])
            for label, words in self._transcript.turns
        ]
        numbers = SpeakerNumbers()
        channels: list[Turns] = [[(numbers.of(label), words) for label, words in turns]]
        if self._has_channels:  # each speaker has the label of a channel
            channels = [
                [(None, words) for label, words in turns if label == channel] for channel in "AB"
            ]
        results: dict[str, Any] = {"channels": [self._channel(channel) for channel in channels]}
        if self._query.utterances:
            utterances = [
                utterance
                for number, channel in enumerate(channels)
                for utterance in self._utterances(channel, number)
            ]
            results["utterances"] = sorted(utterances, key=lambda entry: float(entry["start"]))
        return results

    def _channel(self, turns: Turns) -> dict[str, Any]:
        words = [word for _, spoken in turns for word in spoken]
        speakers = [speaker for speaker, spoken in turns for _ in spoken]
        is_whole = not (self._has_channels or self._replacements)
        alternative: dict[str, Any] = {
            "transcript": self._transcript.text if is_whole else self._text(words),
            "confidence": round(self._transcript.confidence, 4),
            "words": self._words(words, speakers),
        }
        if self._language is not None:
            alternative["languages"] = [self._language]
        if self._query.paragraphs or self._query.smart_format:
            alternative["paragraphs"] = self._paragraphs(turns)
        if self._query.detect_entities:
            language = self._transcript.language
            alternative["entities"] = entities_json(words, self._separator, language)
        channel: dict[str, Any] = {"alternatives": [alternative]}
        if self._query.search:
            channel["search"] = search_hits(words, self._query.search, self._separator)
        if self._query.detects:
            channel["detected_language"] = self._transcript.language
        return channel

    def _utterances(self, turns: Turns, channel: int) -> Iterable[dict[str, Any]]:
        longest_s = self._query.utt_split
        for speaker, spoken in turns:
            for words in cut(spoken, lambda part, word: word.start - part[-1].end > longest_s):
                yield {
                    "start": round(words[0].start, 3),
                    "end": round(words[-1].end, 3),
                    "confidence": mean_confidence(words),
                    "channel": channel,
                    "transcript": self._text(words),
                    "words": self._words(words, [speaker] * len(words)),
                    **({} if speaker is None else {"speaker": speaker}),
                    "id": str(uuid.uuid4()),
                }

    def _paragraphs(self, turns: Turns) -> dict[str, Any]:
        paragraphs = []
        texts = []
        for speaker, spoken in turns:
            for group in paragraphs_of(spoken, self._transcript.language):
                paragraph = {
                    "sentences": [
                        {
                            "text": self._text(sentence),
                            "start": round(sentence[0].start, 3),
                            "end": round(sentence[-1].end, 3),
                        }
                        for sentence in group
                    ],
                    **({} if speaker is None else {"speaker": speaker}),
                    "num_words": sum(map(len, group)),
                    "start": round(group[0][0].start, 3),
                    "end": round(group[-1][-1].end, 3),
                }
                paragraphs.append(paragraph)
                text = self._separator.join(self._text(sentence) for sentence in group)
                texts.append(text if speaker is None else f"Speaker {speaker}: {text}")
        return {"transcript": "\n" + "\n\n".join(texts), "paragraphs": paragraphs}

    def _text(self, words: Sequence[Word]) -> str:
        return self._separator.join(word.word for word in words)

    def _words(self, words: Sequence[Word], speakers: Sequence[int | None]) -> list[dict[str, Any]]:
        punctuated = self._query.is_punctuated
        return words_json(words, speakers, punctuated=punctuated, language=self._language)


router = make_router(
    "Deepgram's dialect", scope="stt", visitors=True, schemes=options.BEARER_OR_TOKEN
)


class RecordingUrl(BaseModel):
    url: str


@router.post(
    "/v1/listen",
    summary="Transcribe a recording, for Deepgram's clients",
    openapi_extra=file_schema(
        "A recording in a format of `POST /stt`, or raw samples in `encoding`. To send a `url` "
        "instead, use an `application/json` body."
    ),
    responses=ADDRESS_TOO_LONG,
)
async def transcribe_recording(
    request: Request,
    caller: CallerDep,
    platform: PlatformDep,
    query: Annotated[options.RecordingQuery, Query()],
) -> dict[str, Any]:
    """Transcribes the recording in the body, or at a URL. Stops if the client disconnects.

    With a `callback`, the answer has only the `request_id`. A job then transcribes the recording,
    and the transcript is sent to that address.
    """
    model = await caller.speech.live_transcription.transcriber.describe()
    options.check_recogniser(query.model, model)
    models = options.model_info(model)
    begin = await _new_job(caller, query, platform, models) if query.calls_back else None
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type == "application/json":
        body = parse_json(await read_json(request))
        if not isinstance(body, dict):
            raise ApiError("validation_error", "the body must be a JSON object with a url")
        url = validated(RecordingUrl, body).url
        if begin is not None:
            return await begin(None, url)
        await caller.check_credit()
        async with fetched(request, caller.speech, url) as path:
            return await _transcribe(request, caller, query, models, path)
    if media_type == "multipart/form-data":
        message = "send the audio, or JSON with its url, as the body, not as a form"
        raise ApiError("unsupported_media_type", message)
    async with receive_file(request, caller.check_credit) as path:
        if begin is not None:
            return await while_connected(request.receive, begin(path, ""))
        return await _transcribe(request, caller, query, models, path)


async def _transcribe(
    request: Request, caller: Caller, query: options.RecordingQuery, models: Models, path: Path
) -> dict[str, Any]:
    sha256 = await asyncio.to_thread(_prepare, path, query)
    answer = partial(_answer, request_id.get() or "", models, sha256, query)
    try:
        return await caller.transcribe(request, path, query.recognition(), answer)
    except InvalidAudio:
        if query.encoding is None or query.sample_rate is not None:
            raise
        raise ApiError("validation_error", query.rate_missing, param="sample_rate") from None


def _answer(
    request: str,
    models: Models,
    sha256: str,
    query: options.RecordingQuery,
    transcript: FileTranscript,
) -> dict[str, Any]:
    fields = metadata(
        request,
        models,
        sha256,
        duration=round(transcript.duration_s, 3),
        channels=2 if has_channels(query, transcript) else 1,
    )
    if query.tag:
        fields["tags"] = query.tag
    if query.extra:
        pairs = (pair.partition(":") for pair in query.extra)
        fields["extra"] = {key: value for key, _, value in pairs}
    return {"metadata": fields, "results": RecordingResults(query, transcript).as_json()}


BeginJob: TypeAlias = Callable[[Path | None, str], Coroutine[Any, Any, dict[str, Any]]]
"""Begins the job of a recording in a file or at a URL, whose transcript is sent later."""


class CallbackTask(BaseModel):
    """A request with a callback, as stored with its job."""

    request_id: str
    models: Models
    sha256: str  # empty for a recording that the job fetches
    query: options.RecordingQuery


async def _new_job(
    caller: Caller, query: options.RecordingQuery, platform: PlatformServices, models: Models
) -> BeginJob:
    """Checks the callback and the room for a job; returns the function that begins the job."""
    principal = caller.principal
    operation = caller.operation
    speech = caller.speech
    if principal.is_visitor:
        raise ApiError("insufficient_scope", "callback: browser tokens cannot begin jobs")
    address, password = without_password(query.callback)
    request = CallbackRequest(
        failed={"request_id": "{name}", "err_code": "{error}", "err_msg": "{message}"},
        method=query.callback_method,
        headers={**password, "dg-token": str(principal.key_id or "")},
    )
    try:
        callback = platform.webhooks.callback(principal, address, request)
    except InvalidUrl as error:
        raise InvalidAddress("callback", error) from None
    await speech.jobs.check_room(principal, "transcription", LEAST_MS, operation)

    async def begin(path: Path | None, url: str) -> dict[str, Any]:
        if url:
            speech.check_url(url)
            if query.encoding is not None:
                raise InvalidField("encoding", "cannot be combined with a url and a callback")
        recognition = await speech.transcription.pipeline.resolve(query.recognition())
        task = CallbackTask(
            request_id=request_id.get() or "",
            models=models,
            sha256="" if path is None else await asyncio.to_thread(_prepare, path, query),
            query=query.model_copy(update={"callback": ""}),
        )
        job = TranscriptionTask(
            request=recognition,
            url=url,
            most_s=CONFIG.most_hours * 3600,
            window_s=CONFIG.window_s,
            callback=task.model_dump_json(),
        )
        begun = await speech.jobs.create(
            principal,
            operation,
            kind="transcription",
            name=task.request_id,
            options=TASK.dump_json(job),
            upload=path,
            is_fetched=path is None,
            callback=callback,
        )
        return {"request_id": begun.name}

    return begin


def answer_callback(callback: str, path: Path, transcript: FileTranscript) -> dict[str, Any]:
    """Makes the answer to a request with a callback; an error if it is too large; blocking."""
    task = CallbackTask.model_validate_json(callback)
    sha256 = task.sha256
    if not sha256:
        with path.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    answer = _answer(task.request_id, task.models, sha256, task.query, transcript)
    if len(json.dumps(answer, ensure_ascii=False).encode()) <= MAX_CALLBACK_BYTES:
        return answer
    return {
        "request_id": task.request_id,
        "err_code": "answer_too_large",
        "err_msg": "the transcript is too large for a callback: get it from its job",
    }


def _prepare(path: Path, query: options.RecordingQuery) -> str:
    """Returns the SHA-256 digest of a recording, and adds a WAV header to raw samples; blocking.
    Raises ApiError(validation_error) for raw samples without a sample rate."""
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    if query.encoding is not None and query.sample_rate is not None:
        add_wav_header(path, options.ENCODINGS[query.encoding], query.sample_rate)
    elif query.encoding is not None:
        try:
            sniff(head_of(path))
        except InvalidAudio:
            raise ApiError("validation_error", query.rate_missing, param="sample_rate") from None
    return sha256
