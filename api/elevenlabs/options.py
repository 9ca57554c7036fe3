"""Maps names and settings of ElevenLabs' requests to those of the pipelines."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import Query
from pydantic import Field

from api.callers import Caller
from api.dialects.outputs import ForeignVoice, voice_for
from api.dialects.requests import DialectQuery
from api.http.errors import ApiError, ErrorDialect
from api.native.speech import Ratio
from api.sockets.tts.events import STABILITIES, LenientModel
from configs.load import load_yaml
from configs.schema.base import StrictModel
from models.base import VoiceGender
from pipelines.audio.encode.formats import EncoderFormat, open_encoder
from pipelines.text.usual_language import FALLBACK_LANGUAGE
from pipelines.tts.dictionaries import DictionaryRef
from pipelines.tts.history import Source, SpeechRecord, SpokenLine
from pipelines.tts.reading import SpeechRequest
from pipelines.tts.session import SpeechStream
from pipelines.tts.voices import AvailableVoice

KEY_HEADER = "xi-api-key"
SCHEMES = ("bearer", KEY_HEADER)
TOKEN_QUERIES = ("token", "single_use_token")  # parameters of handshakes


class ElevenLabsNames(StrictModel):
    voices: dict[VoiceGender, str]
    statuses: dict[str, str]
    always: dict[str, dict[str, Any]]


_NAMES = load_yaml(ElevenLabsNames, str(Path(__file__).with_name("names.yaml")))
ALWAYS = _NAMES.always
_GENDERS = {voice_id: gender for gender, ids in _NAMES.voices.items() for voice_id in ids.split()}

OutputName = Literal[
    "mp3_22050_32", "mp3_24000_48", "mp3_44100_32", "mp3_44100_64", "mp3_44100_96",
    "mp3_44100_128", "mp3_44100_192", "pcm_8000", "pcm_16000", "pcm_22050", "pcm_24000",
    "pcm_32000", "pcm_44100", "pcm_48000", "wav_8000", "wav_16000", "wav_22050", "wav_24000",
    "wav_32000", "wav_44100", "wav_48000", "ulaw_8000", "alaw_8000", "opus_48000_32",
    "opus_48000_64", "opus_48000_96", "opus_48000_128", "opus_48000_192",
]  # fmt: skip
_CODECS: dict[str, tuple[EncoderFormat, str]] = {
    "mp3": ("mp3", "audio/mpeg"),
    "pcm": ("pcm", "audio/pcm"),
    "wav": ("wav", "audio/wav"),
    "ulaw": ("mulaw", "audio/basic"),
    "alaw": ("alaw", "audio/alaw"),
    "opus": ("ogg", "audio/ogg"),
}
MEDIA_TYPES = tuple(media_type for _, media_type in _CODECS.values())


class OutputQuery(DialectQuery):
    """The audio format: codec, sample rate (Hz) and, for some codecs, bit rate (kbit/s)."""

    output_format: OutputName = "mp3_44100_128"
    enable_logging: bool = Field(
        default=True, description="`false` keeps the speech out of the history."
    )

    @property
    def media_type(self) -> str:
        return _CODECS[self.output_format.partition("_")[0]][1]

    def open_stream(
        self, caller: Caller, voice: AvailableVoice, style: SpeechRequest, *, whole: bool = False
    ) -> SpeechStream:
        """Opens a stream in this format; with `whole`, the speech is sent only when complete."""
        codec, rate, *bits = self.output_format.split("_")
        bit_rate = int(bits[0]) * 1000 if bits else None
        make_encoder = partial(open_encoder, _CODECS[codec][0], int(rate), bit_rate)
        return caller.open_stream(
            voice, style, make_encoder, slow_encoder=bit_rate is not None, whole=whole
        )

    def record(
        self,
        caller: Caller,
        stream: SpeechStream,
        source: Source = "TTS",
        lines: Sequence[SpokenLine] = (),
    ) -> SpeechRecord | None:
        """Begins a record for the history; None if the request or the workspace wants none."""
        if not self.enable_logging:
            return None
        return caller.speech.history.begin(
            caller.principal, stream, self.output_format, self.media_type, source, lines
        )


Output = Annotated[OutputQuery, Query()]


class VoiceSettings(LenientModel):
    """Voice settings. Other settings, such as `similarity_boost`, have no effect."""

    stability: float = Field(
        default=0.5, ge=0, le=1, description="Lower values give more variation."
    )
    speed: Ratio = 1.0


class DictionaryLocator(LenientModel):
    """A pronunciation dictionary. The default version is the newest."""

    pronunciation_dictionary_id: str = Field(max_length=100)
    version_id: Annotated[str, Field(pattern="^[1-9][0-9]{0,8}$")] | None = None

    @property
    def ref(self) -> DictionaryRef:
        version = int(self.version_id) if self.version_id else None
        return DictionaryRef(id=self.pronunciation_dictionary_id, version=version)


class ElevenLabsVoicing(LenientModel):
    """Voice settings and pronunciations of texts."""

    voice_settings: VoiceSettings | None = None
    pronunciation_dictionary_locators: list[DictionaryLocator] = Field(default=[], max_length=5)

    def style(self, *, timings: bool, stored: Mapping[str, float] = {}) -> SpeechRequest:
        """Returns the style of speech; settings that the request lacks come from `stored`."""
        given = self.voice_settings or VoiceSettings()
        settings = VoiceSettings(**{**stored, **given.model_dump(exclude_unset=True)})
        low, high = STABILITIES
        return SpeechRequest(
            text="",
            speed=settings.speed,
            stability=min(max(0.5 + settings.stability, low), high),  # default 0.5 becomes 1.0
            timings=timings,
            pronunciations=tuple(loc.ref for loc in self.pronunciation_dictionary_locators),
            free_cues=True,
        )


async def find_voice(
    voice_id: str, caller: Caller, language: str | None = None, text: str = ""
) -> AvailableVoice:
    """Finds a voice by id or name; a stand-in for an ElevenLabs voice speaks `language`, or else
    that of `text`. Raises VoiceNotFound, VoiceNotReady, EngineLost or DatabaseUnavailable."""
    foreign = None
    if (gender := _GENDERS.get(voice_id)) is not None:
        if language:
            code = language.lower().partition("-")[0]
        elif text:
            code = await caller.directory.language_of(text, caller.workspace_id)
        else:
            code = FALLBACK_LANGUAGE
        foreign = ForeignVoice(voice_id, code, gender, is_multilingual=not language)
    return await voice_for(voice_id, foreign, caller, "voice_id")


def settings_key(voice_id: str, found_id: str) -> str:
    """Returns the id under which settings are stored: `voice_id` if it is an ElevenLabs voice,
    since its stand-in depends on the language, and otherwise `found_id`."""
    return voice_id if voice_id in _GENDERS else found_id


async def stored_settings(
    caller: Caller, voice_id: str, voice: AvailableVoice
) -> Mapping[str, float]:
    """Returns the workspace's stored settings of a voice, which the request calls `voice_id`."""
    stored = await caller.speech.voice_settings.of(caller.workspace_id)
    return stored.get(settings_key(voice_id, voice.id), {})


def elevenlabs_error(error: ApiError, request_id: str) -> tuple[dict[str, Any], dict[str, str]]:
    detail: dict[str, Any] | Sequence[dict[str, Any]]
    if error.code in INVALID:
        place = ["body", *(error.param.split(".") if error.param else ())]
        detail = [{"type": "value_error", "loc": place, "msg": error.message}]
    else:
        detail = {"status": status_of(error.code), "message": error.message}
    return {"detail": detail}, {"request-id": request_id}


def status_of(code: str) -> str:
    """Returns ElevenLabs' name for an error code."""
    return _NAMES.statuses.get(code, code)


INVALID = {"validation_error": 422, "invalid_json": 422}
ELEVENLABS_ERRORS = ErrorDialect(
    (
        "/v1/text-to-speech",
        "/v1/text-to-dialogue",
        "/v1/voice-changer",
        "/v1/speech-to-speech",
        "/v1/speech-to-text",
        "/v1/forced-alignment",
        "/v1/voices",
        "/v2/voices",
        "/v1/history",
        "/v1/pronunciation-dictionaries",
        "/v1/user",
        "/v1/single-use-token",
    ),
    elevenlabs_error,
    KEY_HEADER,
    INVALID,
)
