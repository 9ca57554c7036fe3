"""Which voices there are now, which one a request means, and which model speaks it."""

from collections.abc import Mapping
from dataclasses import dataclass

from configs.schema.voices import VoicesConfig
from models.errors import EngineLost
from models.info import ModelInfo, VoiceInfo
from pipelines.errors import VoiceNotFound
from pipelines.ports import TTSModel, describe_all
from pipelines.tts.custom_voices import ReadyCustomVoice, ReadyCustomVoices

FALLBACK_LANGUAGE = "en"


@dataclass(frozen=True, slots=True)
class OfferedVoice:
    """A voice and the model that speaks it."""

    voice: VoiceInfo
    model: ModelInfo
    speaker: str  # name of the port
    own: ReadyCustomVoice | None = None  # of the workspace that asks; None for a voice of the model


class VoiceDirectory:
    """Follows the speakers; the mapping may change while it lives."""

    def __init__(
        self,
        speakers: Mapping[str, TTSModel],
        config: VoicesConfig,
        own: ReadyCustomVoices | None = None,
    ) -> None:
        """Without `own` there are only the voices of the models."""
        self._speakers = speakers
        self._own = own
        self._defaults = config.defaults
        self._seen: dict[str, ModelInfo] = {}  # outlives a lost replica: its voices answer 503

    async def offered(self) -> list[OfferedVoice]:
        """Every voice of the models, in their order. Raises EngineLost when no model is known."""
        await self._ask()
        voices = [
            OfferedVoice(voice, self._seen[name], name)
            for name in dict(self._speakers)
            if name in self._seen
            for voice in self._seen[name].voices
        ]
        if not voices:
            raise EngineLost("no text-to-speech model is up")
        return voices

    async def offered_to(self, workspace_id: int) -> list[OfferedVoice]:
        """The same, and the workspace's own. Raises EngineLost or DatabaseUnavailable."""
        offered = await self.offered()
        own = [] if self._own is None else await self._own.ready(workspace_id)
        placed = (self._placed(one) for one in own)
        return [*(one for one in placed if one is not None), *offered]

    async def taking_packs(self, engine: str | None = None) -> ModelInfo:
        """The model that speaks voices which workspaces have made. Raises EngineLost.

        Of several it is that of `engine`, which new voices are made for.
        """
        await self._ask()
        taking = [info for info in self._seen.values() if info.takes_voice_packs]
        if not taking:
            raise EngineLost("no model that speaks custom voices is up")
        return next((info for info in taking if info.engine == engine), taking[0])

    async def _ask(self) -> None:
        speakers = dict(self._speakers)
        answers = await describe_all(speakers.values())  # one that is down takes no other along
        for name, info in zip(speakers, answers, strict=True):
            if info is not None:
                self._seen[name] = info

    async def find(
        self, voice_id: str | None, name: str | None, workspace_id: int | None = None
    ) -> OfferedVoice | None:
        """The voice that the caller named; `voice_id` wins. None when neither is given.

        Of the workspace's own, if it is given, one of that name goes before others of the name.
        Raises VoiceNotFound, VoiceNotReady, EngineLost or DatabaseUnavailable.
        """
        if voice_id is None and name is None:
            return None
        offered = await self.offered()
        if voice_id is None and (own := await self._find_own(workspace_id, name=name)):
            return own
        if voice_id is not None:
            wanted = voice_id.strip().lower()
            matches = [one for one in offered if one.voice.voice_id == wanted]
        else:
            wanted = (name or "").strip().casefold()
            matches = [one for one in offered if one.voice.name.casefold() == wanted]
        if not matches and voice_id is not None:
            own = await self._find_own(workspace_id, voice_id=voice_id)
            matches = [] if own is None else [own]
        if not matches:
            if any(name not in self._seen for name in self._speakers):
                raise EngineLost("a text-to-speech model is not up yet; the voice may be its own")
            field = "voice_id" if voice_id is not None else "voice"
            raise VoiceNotFound(f"no voice has that {field}; GET /default-voices lists them")
        return matches[0]

    async def find_own(self, workspace_id: int, name: str) -> OfferedVoice | None:
        """The workspace's own voice of that name.

        Raises VoiceNotReady, EngineLost or DatabaseUnavailable.
        """
        await self.offered()
        return await self._find_own(workspace_id, name=name)

    async def _find_own(
        self, workspace_id: int | None, *, voice_id: str | None = None, name: str | None = None
    ) -> OfferedVoice | None:
        if self._own is None or workspace_id is None:
            return None
        found = await self._own.find(workspace_id, voice_id=voice_id, name=name)
        if found is None:
            return None
        placed = self._placed(found)
        if placed is None:
            raise EngineLost("the model of the voice is not up")
        return placed

    def _placed(self, own: ReadyCustomVoice) -> OfferedVoice | None:
        """With the model that speaks it, if that was ever up."""
        for name in dict(self._speakers):
            info = self._seen.get(name)
            if info is not None and info.takes_voice_packs and info.engine == own.engine:
                return OfferedVoice(own.info(), info, name, own)
        return None

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
