"""The voices of one engine by their keys."""

from collections.abc import Iterable

from configs.schema.models.tts import VoiceConfig
from models.errors import UnknownVoice, UnsupportedLanguage
from models.info import VoiceInfo


class VoiceTable(dict[str, VoiceInfo]):
    """Voices by key; an unknown key raises UnknownVoice."""

    def __init__(self, voices: Iterable[VoiceConfig] = (), engine: str = "") -> None:
        """`voices` of a configuration, as the engine of that registry name offers them."""
        super().__init__(
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

    def __missing__(self, key: str) -> VoiceInfo:
        raise UnknownVoice(f"no voice {key!r}")

    @property
    def languages(self) -> tuple[str, ...]:
        """ISO 639-1 codes, sorted."""
        return tuple(sorted({voice.language for voice in self.values()}))

    def speaking(self, key: str, language: str) -> VoiceInfo:
        """The voice of that key, where each voice speaks its own language only.

        Raises UnknownVoice or UnsupportedLanguage.
        """
        voice = self[key]
        if language != voice.language:
            raise UnsupportedLanguage(
                f"voice {voice.name!r} speaks {voice.language!r}, not {language!r}"
            )
        return voice
