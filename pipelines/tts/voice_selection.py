"""The voices that are available now: which one a request names, and which model speaks it."""

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
class AvailableVoice:
    """A voice and the model that speaks it."""

    voice: VoiceInfo
    model: ModelInfo
    model_name: str  # the key of the model's port
    custom: ReadyCustomVoice | None = None  # None for a voice of the model


class VoiceDirectory:
    """Finds voices by id, name and language; the mapping of models may change."""

    def __init__(
        self,
        models: Mapping[str, TTSModel],
        config: VoicesConfig,
        custom: ReadyCustomVoices | None = None,
    ) -> None:
        """Without `custom` there are only the voices of the models."""
        self._models = models
        self._custom = custom
        self._defaults = config.defaults
        self._seen: dict[str, ModelInfo] = {}  # outlives a lost replica: its voices answer 503

    async def model_voices(self) -> list[AvailableVoice]:
        """Every voice of the models, in their order. Raises EngineLost when no model is known."""
        await self._ask()
        voices = [
            AvailableVoice(voice, self._seen[name], name)
            for name in dict(self._models)
            if name in self._seen
            for voice in self._seen[name].voices
        ]
        if not voices:
            raise EngineLost("no text-to-speech model is up")
        return voices

    async def voices_of(self, workspace_id: int) -> list[AvailableVoice]:
        """The custom voices of the workspace, then those of the models.

        Raises EngineLost or DatabaseUnavailable.
        """
        offered = await self.model_voices()
        custom = [] if self._custom is None else await self._custom.ready(workspace_id)
        found = (self._with_model(one) for one in custom)
        return [*(one for one in found if one is not None), *offered]

    async def custom_voice_model(self, engine: str | None = None) -> ModelInfo:
        """The model that speaks custom voices: that of `engine`, if it is up, of several.

        Raises EngineLost.
        """
        await self._ask()
        taking = [info for info in self._seen.values() if info.takes_voice_packs]
        if not taking:
            raise EngineLost("no model that speaks custom voices is up")
        return next((info for info in taking if info.engine == engine), taking[0])

    async def _ask(self) -> None:
        models = dict(self._models)
        answers = await describe_all(models.values())
        for name, info in zip(models, answers, strict=True):
            if info is not None:
                self._seen[name] = info

    async def find(
        self, voice_id: str | None, name: str | None, workspace_id: int | None = None
    ) -> AvailableVoice | None:
        """The voice that the caller named; `voice_id` wins. None when neither is given.

        A custom voice of the workspace comes before others of the same name.
        Raises VoiceNotFound, VoiceNotReady, EngineLost or DatabaseUnavailable.
        """
        if voice_id is None and name is None:
            return None
        offered = await self.model_voices()
        if voice_id is None and (custom := await self._find_custom(workspace_id, name=name)):
            return custom
        if voice_id is not None:
            wanted = voice_id.strip().lower()
            matches = [one for one in offered if one.voice.voice_id == wanted]
        else:
            wanted = (name or "").strip().casefold()
            matches = [one for one in offered if one.voice.name.casefold() == wanted]
        if not matches and voice_id is not None:
            custom = await self._find_custom(workspace_id, voice_id=voice_id)
            matches = [] if custom is None else [custom]
        if not matches:
            if any(name not in self._seen for name in self._models):
                raise EngineLost("a text-to-speech model is not up yet; the voice may be its own")
            field = "voice_id" if voice_id is not None else "voice"
            raise VoiceNotFound(f"no voice has that {field}; GET /default-voices lists them")
        return matches[0]

    async def find_custom(self, workspace_id: int, name: str) -> AvailableVoice | None:
        """The custom voice of that name.

        Raises VoiceNotReady, EngineLost or DatabaseUnavailable.
        """
        await self.model_voices()
        return await self._find_custom(workspace_id, name=name)

    async def _find_custom(
        self, workspace_id: int | None, *, voice_id: str | None = None, name: str | None = None
    ) -> AvailableVoice | None:
        if self._custom is None or workspace_id is None:
            return None
        found = await self._custom.find(workspace_id, voice_id=voice_id, name=name)
        if found is None:
            return None
        voice = self._with_model(found)
        if voice is None:
            raise EngineLost("the model of the voice is not up")
        return voice

    def _with_model(self, voice: ReadyCustomVoice) -> AvailableVoice | None:
        """None when the model that speaks it was never up."""
        for name in dict(self._models):
            info = self._seen.get(name)
            if info is not None and info.takes_voice_packs and info.engine == voice.engine:
                return AvailableVoice(voice.info(), info, name, voice)
        return None

    def default(self, language: str, offered: list[AvailableVoice]) -> AvailableVoice:
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
