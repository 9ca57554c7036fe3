"""AssemblyAI's shapes of a transcript: words, utterances, sentences, paragraphs and matches."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

from pydantic import BaseModel

from api.assemblyai.options import ENGLISH, Status, TranscriptOptions
from api.http.errors import InvalidField
from models.stt.base import Word
from pipelines.jobs.jobs import RequestedJob
from pipelines.stt.file import FileTranscript
from pipelines.stt.formatting import bare_word, mean_confidence, separator_of
from pipelines.stt.subtitles import MAX_CUE_CHARACTERS, paragraphs_of, sentences_of, to_srt, to_vtt

Answer = dict[str, Any]
CHANNELS = {"A": "1", "B": "2"}
DELETED_URL = "http://deleted_by_user"
DELETED_TEXT = "Deleted by user."
MAX_PHRASES = 100  # phrases of a search
MAX_MATCHES = 20_000  # matches of all phrases of a search


class StoredRequest(BaseModel):
    """What a client asked for, which is kept with its job."""

    options: TranscriptOptions
    model: str  # id of the recogniser


TOMBSTONE = StoredRequest(options=TranscriptOptions(audio_url=DELETED_URL), model="")


def status_of(requested: RequestedJob) -> Status:
    return "error" if requested.stage == "failed" else requested.stage


class ShownTranscript:
    """The words of a finished transcript, in the form that its options request."""

    def __init__(self, options: TranscriptOptions, transcript: FileTranscript) -> None:
        self._options = options
        self._transcript = transcript
        self._separator = separator_of(transcript.language)
        self._turns = [
            (label, [Word(options.written(w.word), w.start, w.end, w.confidence) for w in words])
            for label, words in transcript.turns
        ]

    def fields(self) -> Answer:
        """Returns the fields that a transcript has once it is complete."""
        labels = self._transcript.utterances is not None or self._options.has_channels
        entries = [self._entry(words, label) for label, words in self._turns if words]
        return {
            "text": self._options.written(self._transcript.text),
            "words": [word for entry in entries for word in entry["words"]],
            "utterances": entries if labels else None,
            "confidence": round(self._transcript.confidence, 4),
            "audio_duration": round(self._transcript.duration_s),
            "language_code": self._options.language_code or self._transcript.language,
        }

    def sentences(self) -> list[Answer]:
        return [
            self._entry(sentence, label)
            for label, words in self._turns
            for sentence in sentences_of(words, self._transcript.language)
        ]

    def paragraphs(self) -> list[Answer]:
        return [
            self._entry([*chain.from_iterable(sentences)], label)
            for label, words in self._turns
            for sentences in paragraphs_of(words, self._transcript.language)
        ]

    def captions(self, form: str, most: int | None) -> str:
        """Writes "srt" or "vtt" with at most `most` characters per caption."""
        write = to_srt if form == "srt" else to_vtt
        turns = [(None, words) for _, words in self._turns]
        return write(turns, self._transcript.language, most or MAX_CUE_CHARACTERS)

    def matches(self, phrases: Iterable[str]) -> list[Answer]:
        """Finds each different phrase, ignoring capitals and punctuation. Raises InvalidField."""
        texts: dict[tuple[str, ...], str] = {}
        for phrase in phrases:
            texts.setdefault(tuple(map(bare_word, phrase.split())), phrase.strip())
        texts.pop((), None)
        if len(texts) > MAX_PHRASES:
            raise InvalidField("words", f"at most {MAX_PHRASES} different phrases are searched")
        words = [word for _, words in self._turns for word in words]
        bare = [bare_word(word.word) for word in words]
        places = defaultdict[str, list[int]](list)
        for place, text in enumerate(bare):
            places[text].append(place)
        matches = []
        total = 0
        for wanted, text in texts.items():
            size = len(wanted)
            first = places.get(wanted[0], [])
            starts = [at for at in first if tuple(bare[at : at + size]) == wanted]
            total += len(starts)
            if total > MAX_MATCHES:
                raise InvalidField("words", f"more than {MAX_MATCHES} matches; search fewer words")
            if starts:
                times = [[_ms(words[at].start), _ms(words[at + size - 1].end)] for at in starts]
                match = {"text": text, "count": len(starts), "timestamps": times}
                matches.append({**match, "indexes": starts})
        return matches

    def _entry(self, words: Sequence[Word], label: str | None) -> Answer:
        """Describes consecutive words of one speaker."""
        speaker: Answer = {"speaker": label}
        if self._options.has_channels:
            channel = CHANNELS.get(label or "", "1")
            speaker = {"speaker": channel, "channel": channel}
        return {
            "text": self._separator.join(word.word for word in words),
            "start": _ms(words[0].start),
            "end": _ms(words[-1].end),
            "confidence": mean_confidence(words),
            **speaker,
            "words": [
                {
                    "text": word.word,
                    "start": _ms(word.start),
                    "end": _ms(word.end),
                    "confidence": round(word.confidence, 4),
                    **speaker,
                }
                for word in words
            ],
        }


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def transcript_json(
    requested: RequestedJob, stored: StoredRequest, transcript: FileTranscript | None
) -> Answer:
    """Returns a transcript as `GET /v2/transcript/{id}` shows it, with the result if it has one."""
    options = stored.options
    language = None if options.language_detection or options.language_codes else ENGLISH
    answer: Answer = {
        **options.model_dump(),
        "id": str(requested.job.id),
        "status": status_of(requested),
        "error": requested.job.reason if requested.stage == "failed" else None,
        "language_code": options.language_code or language,
        "language_confidence": None,
        "language_confidence_threshold": None,
        "punctuate": options.punctuate is not False,
        "format_text": options.format_text is not False,
        "redact_pii": bool(options.redact_pii),
        "audio_channels": 2 if options.has_channels else None,
        "webhook_auth": bool(options.webhook_auth_header_name),
        "webhook_status_code": requested.callback_status,
        "acoustic_model": stored.model,
        "language_model": stored.model,
        "speech_model_used": stored.model or None,
        "auto_highlights": False,
        "summarization": False,
        "text": None,
        "words": None,
        "utterances": None,
        "confidence": None,
        "audio_duration": None,
    }
    if options.audio_url == DELETED_URL:
        return {**answer, "text": DELETED_TEXT}
    if transcript is not None:
        if options.has_channels and transcript.utterances is None:  # a mono recording
            answer["audio_channels"] = 1
        answer |= ShownTranscript(options, transcript).fields()
    return answer


def list_item(requested: RequestedJob, url: str) -> Answer:
    """Returns a transcript's entry in lists; `url` is the base address of transcripts."""
    job = requested.job
    return {
        "id": str(job.id),
        "resource_url": f"{url}/{job.id}",
        "status": status_of(requested),
        "created": job.created_at.isoformat(),
        "completed": job.finished_at and job.finished_at.isoformat(),
        "audio_url": StoredRequest.model_validate_json(requested.request).options.audio_url,
        "error": job.reason if requested.stage == "failed" else None,
    }
