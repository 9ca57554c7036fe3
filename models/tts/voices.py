"""From the voices of a configuration to what the engine offers."""

from collections.abc import Iterable, Mapping

from configs.tts_schema import VoiceConfig
from models.errors import UnknownVoice
from models.info import VoiceInfo


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
