"""Which voices there are now, which one a request means, and which model speaks it."""

from collections.abc import Mapping
from dataclasses import dataclass

from configs.voices_schema import VoicesConfig
from models.errors import EngineLost
from models.info import ModelInfo, VoiceInfo
from pipelines.errors import VoiceNotFound
from pipelines.ports import Speaker, describe_all

FALLBACK_LANGUAGE = "en"


@dataclass(frozen=True, slots=True)
class OfferedVoice:
    """A voice and the model that speaks it."""

    voice: VoiceInfo
    model: ModelInfo
    speaker: str  # name of the port


class VoiceDirectory:
    """Follows the speakers; the mapping may change while it lives."""

    def __init__(self, speakers: Mapping[str, Speaker], config: VoicesConfig) -> None:
        self._speakers = speakers
        self._defaults = config.defaults
        self._seen: dict[str, ModelInfo] = {}  # outlives a lost replica: its voices answer 503

    async def offered(self) -> list[OfferedVoice]:
        """Every voice, in the order of the models. Raises EngineLost when no model is known."""
        speakers = dict(self._speakers)
        answers = await describe_all(speakers.values())  # one that is down takes no other along
        for name, info in zip(speakers, answers, strict=True):
            if info is not None:
                self._seen[name] = info
        voices = [
            OfferedVoice(voice, self._seen[name], name)
            for name in speakers
            if name in self._seen
            for voice in self._seen[name].voices
        ]
        if not voices:
            raise EngineLost("no text-to-speech model is up")
        return voices

    async def find(self, voice_id: str | None, name: str | None) -> OfferedVoice | None:
        """The voice that the caller named; `voice_id` wins. None when neither is given.

        Raises VoiceNotFound or EngineLost.
        """
        if voice_id is None and name is None:
            return None
        offered = await self.offered()
        if voice_id is not None:
            wanted = voice_id.strip().lower()
            matches = [one for one in offered if one.voice.voice_id == wanted]
        else:
            wanted = (name or "").strip().casefold()
            matches = [one for one in offered if one.voice.name.casefold() == wanted]
        if not matches:
            if any(name not in self._seen for name in self._speakers):
                raise EngineLost("a text-to-speech model is not up yet; the voice may be its own")
            field = "voice_id" if voice_id is not None else "voice"
            raise VoiceNotFound(f"no voice has that {field}; GET /default-voices lists them")
        return matches[0]

    def default(self, language: str, offered: list[OfferedVoice]) -> OfferedVoice:
        """The default voice of a language, else any voice of it, else the default of English."""
        for code in (language, FALLBACK_LANGUAGE):
            speaking = [one for one in offered if one.voice.language == code]
            chosen = self._defaults.get(code)
            for one in speaking:
                if chosen and (one.voice.engine, one.voice.key) == (chosen.engine, chosen.key):
                    return one
            if speaking:
                return speaking[0]
        return offered[0]
