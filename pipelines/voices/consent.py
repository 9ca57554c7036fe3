"""Spoken consent: the speaker of a custom voice reads a new sentence of random words aloud.

The token of a sentence is its encrypted text, so that nothing is stored until it is used. Whether
the reader is the speaker of the other files is checked by `checks`."""

import base64
import binascii
import json
import secrets
import unicodedata
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Literal

from rapidfuzz import fuzz

from configs.schema.voices import ConsentConfig
from configs.settings import ConsentNeeded
from db.database import utc_now
from models.audio import Pcm
from models.speaker.base import Embedding, mean_embedding
from models.stt.base import FILE, STT_SAMPLE_RATE, TranscriptionRequest, Word
from models.stt.options import RecognitionOptions
from pipelines.errors import InvalidRequest
from pipelines.ports import STTModel
from pipelines.storage.encryption import DecryptionError, Encryption
from pipelines.text.language_names import engine_codes, iso_code
from pipelines.voices.checks import CheckedSamples, SampleChecker
from pipelines.voices.voice_object import NewVoice

ConsentPurpose = Literal["voice", "speaker"]
"""A custom voice, or an enrolled speaker; a sentence serves one of them."""

MIN_LENGTH = 0.7  # length of the transcript, as a share of the sentence's letters
MARGIN = 10  # characters before a sentence, in which a word may deny it
MAX_TOKEN = 2000  # characters
WRONG = "consent_token: it is wrong or has expired; POST /consent-sentences issues another"


@dataclass(frozen=True, slots=True)
class ConsentSentence:
    language: str  # ISO 639-1 code
    text: str
    words: tuple[str, ...]  # the random words
    expires: int  # seconds since the epoch


@dataclass(eq=False, repr=False)
class Consent:
    """Issues sentences, and finds them in recordings."""

    _encryption: Encryption
    _config: ConsentConfig
    _stt: STTModel
    needed: ConsentNeeded = "off"

    def issue(
        self, workspace_id: int, language: str = "en", purpose: ConsentPurpose = "voice"
    ) -> tuple[ConsentSentence, str]:
        """Return a new sentence and its token. Raises InvalidRequest if the language has none."""
        offered = self._config.sentences
        code = self._code_of(language)
        random = secrets.SystemRandom()
        words = tuple(random.sample(offered[code].words, self._config.drawn_words))
        sentences = {"voice": offered[code].sentence, "speaker": offered[code].speaker_sentence}
        text = sentences[purpose].format(words=", ".join(words))
        issued = ConsentSentence(
            code, text, words, int(utc_now().timestamp() + self._config.lasts_s)
        )
        content = json.dumps(astuple(issued)).encode()
        sealed = self._encryption.encrypt(content, _about(workspace_id, purpose))
        return issued, base64.urlsafe_b64encode(sealed).decode().rstrip("=")

    def phrase(self, language: str) -> ConsentSentence:
        """Return the fixed phrase of a language, which OpenAI's clients have speakers read. Its
        longest words stand for random ones, and it never expires. Raises InvalidRequest for a
        language without a phrase."""
        code = self._code_of(language)
        text = self._config.sentences[code].phrase
        longest = sorted(set(text.split()), key=lambda word: (len(word), word))
        return ConsentSentence(code, text, tuple(longest[-self._config.drawn_words :]), expires=0)

    def _code_of(self, language: str) -> str:
        offered = self._config.sentences
        for code in map(iso_code, engine_codes(language)):
            if code in offered:
                return code
        names = ", ".join(offered)
        raise InvalidRequest(
            f"language: {language[:40]!r} has no consent sentence; available: {names}"
        )

    def required(
        self, workspace_id: int, new: NewVoice, purpose: ConsentPurpose = "voice"
    ) -> ConsentSentence | None:
        """Return the sentence with which a file must begin; None if words of consent are enough. A
        speaker is never enrolled without consent. Raises InvalidRequest."""
        if new.consent_token is not None:
            return self.open(workspace_id, new.consent_token, purpose)
        if self.needed == "spoken":
            raise InvalidRequest(
                "consent_token: one of the files must begin with a sentence that POST "
                "/consent-sentences issues together with this token"
            )
        if new.consent is None and (purpose == "speaker" or self.needed == "attest"):
            raise InvalidRequest("consent: state what the speaker agreed to")
        return None

    def open(
        self, workspace_id: int, token: str, purpose: ConsentPurpose = "voice"
    ) -> ConsentSentence:
        """Opens the sentence of a token. Raises InvalidRequest."""
        if not token.isascii() or len(token) > MAX_TOKEN:
            raise InvalidRequest(WRONG)
        try:
            sealed = base64.b64decode(token + "=" * (-len(token) % 4), b"-_", validate=True)
            content = json.loads(self._encryption.decrypt(sealed, _about(workspace_id, purpose)))
        except (binascii.Error, DecryptionError):
            raise InvalidRequest(WRONG) from None
        language, text, words, expires = content
        if expires < utc_now().timestamp():
            raise InvalidRequest(WRONG)
        return ConsentSentence(language, text, tuple(words), expires)

    async def check_reader(
        self,
        sentence: ConsentSentence,
        checked: CheckedSamples,
        checker: SampleChecker,
        workspace_id: int,
        first: int = 0,
    ) -> None:
        """Check that a file from index `first` on begins with the sentence, read by the speaker of
        the others. Raises InvalidRequest or EngineError."""
        place, pcm = await self.find(sentence, checked.openings[first:], str(workspace_id))
        await checker.check_speaker(pcm, checked, first + place, self._config.min_similarity)

    def check_same_speaker(self, reader: Embedding, checked: CheckedSamples) -> None:
        """Check that the reader of a consent phrase speaks in the files. Raises InvalidRequest."""
        likeness = checked.speakers @ reader
        is_reader = float(reader @ mean_embedding(checked.speakers)) >= self._config.min_similarity
        if not is_reader or likeness.min() < self._config.min_part_similarity:
            raise InvalidRequest("files: the speaker is not that of the consent recording")

    async def find(
        self, sentence: ConsentSentence, openings: Sequence[Pcm], owner: str = ""
    ) -> tuple[int, Pcm]:
        """Find the index of the file that begins with the sentence, and its audio. `openings` are
        16 kHz signals; `owner` is the tenant. Raises InvalidRequest or EngineError."""
        most = int(self._config.heard_seconds * STT_SAMPLE_RATE)
        for place, pcm in enumerate(openings):
            request = TranscriptionRequest(
                pcm=pcm[:most],
                language=sentence.language,
                options=RecognitionOptions(words=True),
                urgency=FILE,
                owner=owner,
            )
            transcript = await self._stt.transcribe(request)
            text = " ".join(segment.text for segment in transcript.segments)
            if self.is_said(sentence, text):
                words = [word for segment in transcript.segments for word in segment.words]
                start, end = self._span_of(sentence, words) or (0.0, self._config.heard_seconds)
                return place, pcm[int(start * STT_SAMPLE_RATE) : int(end * STT_SAMPLE_RATE)]
        raise InvalidRequest(
            "files: none was recognised as beginning with the consent sentence; one "
            f"of them must begin with: {sentence.text}"
        )

    def is_said(self, sentence: ConsentSentence, heard: str) -> bool:
        """Whether the sentence was said, by fuzzy matching (Levenshtein ratios), which tolerates
        recognition errors but not other words."""
        wanted, got = plain(sentence.text), plain(heard)
        if len(got) < MIN_LENGTH * len(wanted):
            return False
        alignment = fuzz.partial_ratio_alignment(wanted, got)
        if alignment is None or alignment.score < self._config.likeness:
            return False
        # A refusal is as similar to the sentence as a misheard sentence, and a word longer.
        around = got[max(0, alignment.dest_start - MARGIN) : alignment.dest_end].split()
        if not {*self._config.sentences[sentence.language].refusals}.isdisjoint(around):
            return False
        tokens = got.split()
        tokens += [first + second for first, second in zip(tokens, tokens[1:], strict=False)]
        matched = sum(
            any(self._is_word(word, token) for token in tokens) for word in sentence.words
        )
        return matched >= self._config.heard_words

    def _span_of(
        self, sentence: ConsentSentence, words: Sequence[Word]
    ) -> tuple[float, float] | None:
        """Return the start and end of the sentence (s): as many words as it has, up to the last
        random one. Other speech may come before and after. Returns None if no random word was
        recognised."""
        tokens = [plain(word.word) for word in words]
        is_drawn = [
            any(self._is_word(drawn, token) for drawn in sentence.words) for token in tokens
        ]
        size = len(plain(sentence.text).split())
        ends = [end for end, drawn in enumerate(is_drawn, start=1) if drawn]
        if not ends:
            return None
        end = max(ends, key=lambda stop: sum(is_drawn[max(0, stop - size) : stop]))
        return words[max(0, end - size)].start, words[end - 1].end

    def _is_word(self, word: str, heard: str) -> bool:
        return fuzz.ratio(plain(word), heard) >= self._config.word_likeness


def plain(text: str) -> str:
    """Return letters and digits without case or accents, with words separated by one space."""
    chars = unicodedata.normalize("NFKD", text.casefold())
    kept = "".join(
        char if char.isalnum() else " " for char in chars if not unicodedata.combining(char)
    )
    return " ".join(kept.split())


def _about(workspace_id: int, purpose: ConsentPurpose) -> str:
    return f"consent:{workspace_id}" + ("" if purpose == "voice" else f":{purpose}")
