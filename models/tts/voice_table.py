"""From the voices of a configuration to what the engine offers."""

from collections.abc import Iterable, Mapping

from configs.schema.models.tts import VoiceConfig
from models.errors import UnknownVoice, UnsupportedLanguage
from models.info import VoiceInfo
from models.tts.base import SynthesisRequest


class VoiceTable(dict[str, VoiceInfo]):
    """The voices of one engine by key; an unknown key raises UnknownVoice."""

    def __missing__(self, key: str) -> VoiceInfo:
        raise UnknownVoice(f"no voice {key!r}")


def voice_table(voices: Iterable[VoiceConfig], engine: str) -> Mapping[str, VoiceInfo]:
    """`voices` as the engine of that registry name offers them."""
    return VoiceTable(
        (
            voice.key,
            VoiceInfo(
                engine=engine,
                key=voice.key,
                name=voice.name,
                language=voice.language,
                gender=voice.gender,
                accent=voice.accent,
                description=voice.description,
                categories=voice.categories,
            ),
        )
        for voice in voices
    )


def one_language_voice(table: Mapping[str, VoiceInfo], request: SynthesisRequest) -> VoiceInfo:
    """The voice that is asked for, of an engine whose voices speak their own language only.

    Raises UnknownVoice or UnsupportedLanguage.
    """
    voice = table[request.voice]
    if request.language != voice.language:
        raise UnsupportedLanguage(
            f"voice {voice.name!r} speaks {voice.language!r}, not {request.language!r}"
        )
    return voice
