"""ElevenLabs' Scribe: `POST /v1/speech-to-text`, and the socket of live segments."""

import asyncio
import math
from base64 import b64decode
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from fastapi import Request
from pydantic import AfterValidator, Field, Json, field_validator

from api.callers import CallerDep
from api.dialects.requests import DialectQuery, SocketMessage, dialect_socket, fetched
from api.elevenlabs.options import SCHEMES, TOKEN_QUERIES
from api.http.bodies import Switch
from api.http.errors import ApiError, InvalidField, to_api_error
from api.http.routing import make_router
from api.http.uploads import MultipartForm, UploadLimits, form_schema, receive_form
from api.openai.names import OpenAINames
from api.services import Services, SpeechServices
from api.sockets.kernel import close_codes
from api.sockets.kernel.conversation import ClientFault, json_text
from api.sockets.kernel.session import SocketSession
from api.sockets.stt.listening import ListeningConversation, SocketListener
from models.stt.base import Word
from models.stt.options import LANGUAGE, KeyTerms, RecognitionOptions, named_language
from pipelines.audio.decode.stream import add_wav_header
from pipelines.errors import InsufficientCredit
from pipelines.stt.decoding import SessionOptions
from pipelines.stt.events import FailedUtterance, LiveEvent, LiveTranscript
from pipelines.stt.file import FileTranscript
from pipelines.stt.formatting import separator_of
from pipelines.stt.subtitles import to_srt
from telemetry.tracing import request_id

router = make_router("ElevenLabs' dialect", scope="stt", visitors=True, schemes=SCHEMES)

Answer = dict[str, Any]
LIMITS = UploadLimits(max_fields=200)  # each key term is a field
LISTS = frozenset({"keyterms"})
RAW_HZ = 16_000  # sample rate of `pcm_s16le_16`
Granularity = Literal["none", "word", "character"]
FileFormat = Literal["pcm_s16le_16", "other"]
FORMATS = {"srt": "text/srt", "txt": "text/plain"}


class ScribeOptions(DialectQuery):
    """Options that recordings and streams share."""

    model_id: str
    language_code: Annotated[str, AfterValidator(lambda code: named_language(code) or "")] = Field(
        default="", max_length=35, description=LANGUAGE
    )
    keyterms: KeyTerms = []

    def recognition(self) -> RecognitionOptions:
        return RecognitionOptions(words=True, keyterms=tuple(self.keyterms))


class ScribeFields(ScribeOptions):
    """Transcription options as form fields."""

    refused: ClassVar[frozenset[str]] = frozenset(
        "webhook entity_detection entity_redaction transcript_edit detect_speaker_roles "
        "use_speaker_library".split()
    )

    model_id: str = Field(max_length=100, description="A Scribe model, or a model id.")
    diarize: Switch = False
    use_multi_channel: Switch = False
    multichannel_output_style: Literal["separate", "combined"] = "separate"
    timestamps_granularity: Granularity = "word"
    numbers_format: Literal["digits", "words"] = "words"
    file_format: FileFormat = "other"
    source_url: str = Field(default="", max_length=2000)
    cloud_storage_url: str = Field(default="", max_length=2000)
    additional_formats: Json[list[dict[str, Any]]] = Field(
        default_factory=list,
        max_length=5,
        description='`srt` or `txt`, such as `[{"format": "srt"}]`.',
    )

    @field_validator("additional_formats")
    @classmethod
    def _are_formats(cls, value: list[dict[str, Any]]) -> list[dict[str, Any]]:
        if any(export.get("format") not in FORMATS for export in value):
            raise ValueError(f"formats must be of {', '.join(FORMATS)}")
        return value

    def recognition(self) -> RecognitionOptions:
        shared = super().recognition()
        return replace(
            shared,
            language=self.language_code or None,
            speakers=self.diarize and not self.use_multi_channel,
            multichannel=self.use_multi_channel,
            allows_mono=True,
            form=replace(shared.form, numerals=self.numbers_format == "digits"),
        )


@router.post(
    "/v1/speech-to-text",
    summary="Transcribe a recording, for ElevenLabs' clients",
    openapi_extra=form_schema("file", ScribeFields, is_required=False),
)
async def transcribe(request: Request, caller: CallerDep) -> Answer:
    """Transcribes `file`, or the recording at `source_url`. Stops if the client disconnects."""
    async with receive_form(request, LIMITS, caller.check_credit) as form:
        fields = form.read(ScribeFields, LISTS)
        await check_model(fields.model_id, caller.speech.openai)
        async with _recording(request, form, fields, caller.speech) as path:
            to_answer = partial(answer_of, fields)
            return await caller.transcribe(request, path, fields.recognition(), to_answer)


async def check_model(model_id: str, names: OpenAINames) -> None:
    """Accepts any Scribe model, and ids of recognisers. Raises ApiError(model_not_found)."""
    if not model_id.startswith("scribe"):
        await names.check_transcriber(model_id)


@asynccontextmanager
async def _recording(
    request: Request, form: MultipartForm, fields: ScribeFields, speech: SpeechServices
) -> AsyncIterator[Path]:
    url = fields.source_url or fields.cloud_storage_url
    if not url:
        yield await uploaded_recording(form, "file", fields.file_format)
    elif form.files:
        raise InvalidField("source_url", "send either a file or a URL, not both")
    else:
        async with fetched(request, speech, url) as path:
            yield path


async def uploaded_recording(form: MultipartForm, field: str, file_format: FileFormat) -> Path:
    """Returns the file of a form's field, with a WAV header before raw samples."""
    path = form.file(field).path
    if file_format == "pcm_s16le_16":
        await asyncio.to_thread(add_wav_header, path, "linear", RAW_HZ)
    return path


def with_words(transcript: FileTranscript) -> FileTranscript:
    """Returns the transcript. Raises ApiError(invalid_audio) if nothing was recognised; the
    recording is then free."""
    if not transcript.words:
        raise ApiError("invalid_audio", "no speech was recognised in the recording")
    return transcript


class AttributedWord(NamedTuple):
    """A word, with its speaker's label or its channel."""

    word: Word
    speaker: str | None = None
    channel: int | None = None


def answer_of(fields: ScribeFields, transcript: FileTranscript) -> Answer:
    """Converts a transcript; channels that are transcribed separately have an answer each."""
    shared: Answer = {
        "transcription_id": request_id.get() or "",
        "audio_duration_secs": round(transcript.duration_s, 3),
    }
    turns = transcript.turns
    if not fields.use_multi_channel:
        speakers = dict.fromkeys(speaker for speaker, _ in turns if speaker is not None)
        labels = {speaker: f"speaker_{number}" for number, speaker in enumerate(speakers)}
        words = [
            AttributedWord(word, speaker and labels[speaker])
            for speaker, spoken in turns
            for word in spoken
        ]
        return {**_transcript(fields, transcript, words, transcript.text), **shared}
    words = [
        AttributedWord(word, None, "AB".index(channel or "A"))
        for channel, spoken in turns
        for word in spoken
    ]
    words.sort(key=lambda word: word.word.start)
    if fields.multichannel_output_style == "combined":
        return {**_transcript(fields, transcript, words), **shared}
    indexes = range(1 if transcript.utterances is None else 2)  # a mono recording has none
    channels = [[word for word in words if word.channel == index] for index in indexes]
    transcripts = [
        {**_transcript(fields, transcript, of_channel), "channel_index": index}
        for index, of_channel in enumerate(channels)
    ]
    return {"transcripts": transcripts, **shared}


def _transcript(
    fields: ScribeFields,
    transcript: FileTranscript,
    words: Sequence[AttributedWord],
    text: str | None = None,
) -> Answer:
    separator = separator_of(transcript.language)
    if text is None:
        text = separator.join(word.word.word for word in words)
    answer: Answer = {
        "language_code": transcript.language,
        "language_probability": 1.0 if fields.language_code else round(transcript.confidence, 4),
        "text": text,
        "words": words_of(words, separator, fields.timestamps_granularity),
    }
    if fields.additional_formats:
        grouped = groupby(words, lambda word: word.speaker)
        turns = [(speaker, [word.word for word in spoken]) for speaker, spoken in grouped]
        files = {"srt": to_srt(turns, transcript.language), "txt": text}
        answer["additional_formats"] = [
            {
                "requested_format": export["format"],
                "file_extension": export["format"],
                "content_type": FORMATS[export["format"]],
                "is_base64_encoded": False,
                "content": files[export["format"]],
            }
            for export in fields.additional_formats
        ]
    return answer


def words_of(
    words: Sequence[AttributedWord], separator: str, granularity: Granularity = "word"
) -> list[Answer]:
    """Returns the entries of a transcript: words, and the spaces between them."""
    entries: list[Answer] = []
    if granularity == "none":
        return entries
    for word in words:
        if entries and separator:
            last = entries[-1]
            times = {"start": last["end"], "end": max(round(word.word.start, 3), last["end"])}
            entries.append({**last, "text": separator, **times, "type": "spacing", "logprob": 0.0})
            entries[-1].pop("characters", None)
        entries.append(_entry(word, granularity))
    return entries


def _entry(attributed: AttributedWord, granularity: Granularity) -> Answer:
    word = attributed.word
    entry: Answer = {
        "text": word.word,
        "start": round(word.start, 3),
        "end": round(word.end, 3),
        "type": "word",
        "logprob": round(math.log(max(word.confidence, 1e-6)), 4),
        "speaker_id": attributed.speaker,
    }
    if attributed.channel is not None:
        entry["channel_index"] = attributed.channel
    if granularity == "character":
        step = (word.end - word.start) / len(word.word)
        times = (word.start + step * place for place in range(len(word.word)))
        entry["characters"] = [
            {"text": letter, "start": round(at, 3), "end": round(at + step, 3)}
            for letter, at in zip(word.word, times, strict=True)
        ]
    return entry


INTERIM_MS = 500
WHOLE_S = 3.0  # silence after which the speech so far is decoded, before the client commits it


class LiveQuery(ScribeOptions):
    refused: ClassVar[frozenset[str]] = frozenset(
        {"entity_detection", "entity_redaction", "transcript_edit"}
    )

    model_id: str = Field(default="scribe_v2_realtime", max_length=100)
    audio_format: Literal[
        "pcm_8000", "pcm_16000", "pcm_22050", "pcm_24000", "pcm_44100", "pcm_48000", "ulaw_8000"
    ] = "pcm_16000"
    commit_strategy: Literal["manual", "vad"] = "manual"
    vad_silence_threshold_secs: float = Field(default=1.5, ge=0.3, le=3.0)
    secondary_languages: list[str] = Field(default=[], max_length=20)
    include_timestamps: bool = False
    include_language_detection: bool = False

    def recognition(self) -> RecognitionOptions:
        languages = tuple(filter(None, (self.language_code, *self.secondary_languages)))
        return replace(super().recognition(), languages=languages)

    def to_options(self) -> SessionOptions:
        silence_s = self.vad_silence_threshold_secs if self.commit_strategy == "vad" else WHOLE_S
        return SessionOptions(
            recognition=self.recognition(),
            utterance_end_ms=round(1000 * silence_s),
            interim_ms=INTERIM_MS,
        )


class AudioMessage(SocketMessage):
    """A piece of audio, which may be empty; `commit` ends the segment after it."""

    message_type: Literal["input_audio_chunk"]
    audio_base_64: str = ""
    commit: bool = False


class LiveConversation(ListeningConversation):
    """Sends the text of each segment while it grows, and when it is committed."""

    silence = 60.0, "no message came for 60 seconds", close_codes.POLICY

    def __init__(self, socket: SocketSession, services: Services) -> None:
        super().__init__(socket, services)
        self.query = LiveQuery.of_socket(socket.query)
        self._listener = SegmentListener(self)
        self.listeners = [self._listener]
        self._kind = "input_error"

    async def begin(self) -> None:
        await check_model(self.query.model_id, self.speech.openai)
        await self._listener.start(self.query.to_options())
        config = self.query.model_dump()
        await self.send_event("session_started", session_id=self.request_id, config=config)

    async def handle(self, text: str) -> bool:
        message = AudioMessage.parse(text)
        try:
            data = b64decode(message.audio_base_64, validate=True)
        except ValueError:  # invalid base64, or characters outside ASCII
            raise ClientFault("audio_base_64: is not base64") from None
        if data:
            await self.accept(data)
        if message.commit:
            self._listener.commit()
        return False

    async def accept(self, data: bytes) -> bool:
        codec, _, rate = self.query.audio_format.partition("_")
        try:
            await self._listener.input.accept(
                data, "linear" if codec == "pcm" else "mulaw", int(rate)
            )
        except InsufficientCredit:
            self._kind = "quota_exceeded"
            raise
        return False

    def fell_silent(self) -> None:
        if self.query.commit_strategy == "manual":
            self._listener.commit()

    async def send_event(self, kind: str, **fields: Any) -> None:
        await self.socket.send(json_text({"message_type": kind, **fields}))

    def error(self, message: str) -> str:
        return json_text({"message_type": self._kind, "error": message})


class SegmentListener(SocketListener):
    """Joins the utterances of a segment, which has one or several."""

    def __init__(self, stream: LiveConversation) -> None:
        super().__init__(stream.socket, stream.speech, stream.listener_ended)
        self._stream = stream
        self._finals: list[LiveTranscript] = []  # of this segment

    async def emit(self, event: LiveEvent) -> None:
        if isinstance(event, FailedUtterance):
            message = to_api_error(event.error).message
            await self._stream.send_event("transcriber_error", error=message)
        elif isinstance(event, LiveTranscript):
            separator = separator_of(event.language)
            texts = [part.text for part in (*self._finals, event) if part.text]
            text = separator.join(texts)
            query = self._stream.query
            if event.final:
                self._finals.append(event)
            is_committed = event.sentence_id in self.committed or query.commit_strategy == "vad"
            if event.final and is_committed and not event.cut:
                await self._commit(text, event.language, separator)
            elif text:
                await self._stream.send_event("partial_transcript", text=text)

    async def _commit(self, text: str, language: str, separator: str) -> None:
        words = [AttributedWord(word) for final in self._finals for word in final.words]
        self._finals = []
        query = self._stream.query
        await self._stream.send_event("committed_transcript", text=text)
        if query.include_timestamps or query.include_language_detection:
            await self._stream.send_event(
                "committed_transcript_with_timestamps",
                text=text,
                language_code=language,
                words=words_of(words, separator) if query.include_timestamps else None,
            )


routes = dialect_socket(
    "/v1/speech-to-text/realtime",
    "stt",
    LiveConversation,
    LiveQuery.of_socket,
    SCHEMES,
    key_queries=TOKEN_QUERIES,
)
