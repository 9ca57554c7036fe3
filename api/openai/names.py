"""Maps OpenAI's names of models and voices to the models and voices of this service."""

from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from api.http.errors import ApiError
from configs.schema.voices import OpenAIConfig, OpenAIVoice, Tier
from models.base import ModelInfo, ModelKind
from pipelines.chat.pipeline import DEFAULT_MODEL
from pipelines.errors import ModelNotFound, VoiceNotFound, VoiceNotReady
from pipelines.ports import ModelList, undated
from pipelines.tts.voices import AvailableVoice, VoiceDirectory

DEFAULT_AGENT = "gpt-realtime"  # model of a Realtime session that names none
_VERBS = {"tts": "speaks", "stt": "transcribes", "chat": "chats", "embedding": "embeds"}


@dataclass(frozen=True, slots=True)
class OpenAINames:
    """Finds models and voices by the names that OpenAI's clients use."""

    config: OpenAIConfig
    models: ModelList
    voices: VoiceDirectory

    async def speech_tier(self, model: str | None) -> Tier | None:
        """Returns the voice tier that a speech model's name stands for; None allows any tier.
        Raises ApiError(model_not_found)."""
        if model is None:
            return None
        tier = self.config.speech_models.get(undated(model))
        return tier or (await self._find_model(model, "tts")).tier

    async def agent_model(self, model: str) -> tuple[str, Tier | None]:
        """Returns a Realtime model's chat model and tier. Raises ApiError(model_not_found)."""
        if tier := self.config.realtime_models.get(undated(model)):
            return DEFAULT_MODEL, tier
        return (await self._find_model(model, "chat")).id, None

    async def check_transcriber(self, model: str) -> None:
        """Raises ApiError(model_not_found) if no recogniser has that name."""
        if undated(model) not in self.config.transcription_models:
            await self._find_model(model, "stt")

    async def choose_voice(
        self,
        wanted: str | None,
        tier: Tier | None,
        workspace_id: int,
        *,
        language: str | None = None,
        text: str = "",
        field: str = "voice",
    ) -> AvailableVoice | None:
        """Returns the voice by OpenAI's name, or by its name or id in this service; None if the
        language decides. `language` (ISO 639-1) is that of the text, or None to detect it in
        `text`. Errors name `field`. Raises ApiError(voice_not_found), VoiceNotReady, EngineLost or
        DatabaseUnavailable."""
        if wanted is None:
            return None
        openai_voice = self.config.voices.get(wanted.strip().lower())
        if openai_voice is None:
            return await self._find_voice(wanted, workspace_id, field)
        # Some clients accept only OpenAI's names, so a workspace may give one to its own voice.
        with suppress(VoiceNotReady):
            custom_voice = await self.voices.find_custom(workspace_id, wanted)
            if custom_voice is not None and custom_voice.is_of(workspace_id):
                return custom_voice
        available = await self.voices.voices()
        language = language or await self.voices.language_of(text, workspace_id)
        voice = _stand_in(openai_voice, tier, language, available)
        if voice is None:
            return None
        offered = {(each.info.engine, each.info.key) for each in available}
        for ref in openai_voice.refs(tier):
            if (ref.engine, ref.key) == (voice.info.engine, voice.info.key):
                break
            if (ref.engine, ref.key) not in offered:
                voice = self.voices.makeshift(voice)
        return replace(voice.in_language(language), is_stand_in=True)

    async def find_voice(
        self, wanted: str | None, tier: Tier | None, workspace_id: int, language: str, field: str
    ) -> AvailableVoice:
        """Returns the voice that `choose_voice` chooses, or else the language's default voice. It
        also speaks other languages, as OpenAI's does. Raises the errors of `choose_voice`."""
        voice = await self.choose_voice(wanted, tier, workspace_id, language=language, field=field)
        if voice is None:
            voice = self.voices.default(language, await self.voices.voices())
            voice = replace(voice, is_stand_in=True)
        return voice

    async def _find_model(self, model: str, kind: ModelKind) -> ModelInfo:
        """Returns the model of a kind by its id or alias. Raises ApiError(model_not_found)."""
        with suppress(ModelNotFound):
            info = (await self.models.find(model)).info
            if info.kind == kind:
                return info
        raise unknown_model(kind)

    async def _find_voice(self, wanted: str, workspace_id: int, field: str) -> AvailableVoice:
        with suppress(VoiceNotFound):
            return await self.voices.find_named(wanted, workspace_id)
        message = "no voice has that name or id; GET /default-voices lists them; "
        message += f"supported OpenAI names: {', '.join(self.config.voices)}"
        raise ApiError("voice_not_found", message, param=field)


def unknown_model(kind: ModelKind | None = None) -> ApiError:
    """Returns the error for a name that no model, or none of that kind, has."""
    ability = "" if kind is None else f" that {_VERBS[kind]}"
    message = f"no model{ability} has that id; GET /openai/v1/models lists all"
    return ApiError("model_not_found", message, param="model")


def aliases_of(config: OpenAIConfig, models: Sequence[ModelInfo]) -> dict[str, list[str]]:
    """Returns OpenAI's model names by the id of the model that they stand for. A voice is always
    spoken by its own model, whatever model the request names."""
    names: defaultdict[str, list[str]] = defaultdict(list)
    speaking = [info for info in models if info.kind == "tts"]
    for name, tier in config.speech_models.items():
        of_tier = [info for info in speaking if info.tier == tier]
        for info in (of_tier or speaking)[:1]:
            names[info.id].append(name)
    for info in [info for info in models if info.kind == "stt"][:1]:
        names[info.id] += config.transcription_models
    chats = [info for info in models if info.kind == "chat"]
    default = [info for info in chats if DEFAULT_MODEL in (info.id, *info.aliases)]
    for info in (default or chats)[:1]:
        names[info.id] += config.realtime_models
    return names


def _stand_in(
    openai_voice: OpenAIVoice, tier: Tier | None, language: str, voices: list[AvailableVoice]
) -> AvailableVoice | None:
    """Returns the first substitute that speaks the language, else its first voice of the gender."""
    for ref in openai_voice.refs(tier):
        for voice in voices:
            is_substitute = (voice.info.engine, voice.info.key) == (ref.engine, ref.key)
            if is_substitute and voice.speaks(language):
                return voice
    speaking = [voice for voice in voices if voice.language == language]
    return next((voice for voice in speaking if voice.info.gender == openai_voice.gender), None)
