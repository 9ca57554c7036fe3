"""Maps OpenAI's names of models and voices to the models and voices of this service."""

from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from api.http.errors import ApiError
from configs.schema.voices import OpenAIConfig, OpenAIVoice, Tier
from models.base import ModelInfo, ModelKind
from pipelines.chat.pipeline import DEFAULT_MODEL
from pipelines.errors import ModelNotFound, VoiceNotFound, VoiceNotReady
from pipelines.ports import ModelList
from pipelines.tts.voices import AvailableVoice, VoiceDirectory

DEFAULT_AGENT = "gpt-realtime"  # of a session that names no model
_WORK = {"tts": "speaks", "stt": "transcribes", "chat": "chats"}


@dataclass(frozen=True, slots=True)
class OpenAINames:
    """Looks up models and voices by the names that OpenAI's clients use."""

    config: OpenAIConfig
    models: ModelList
    voices: VoiceDirectory

    async def speech_tier(self, model: str | None) -> Tier | None:
        """The tier of voice that a model stands for; None for any tier.

        Raises ApiError(model_not_found).
        """
        if model is None:
            return None
        known = self.config.speech_models.get(model)
        return known or (await self._find_model(model, "tts")).tier

    async def agent_model(self, model: str) -> tuple[str, Tier | None]:
        """The chat model that a model of voice agents stands for, and the tier of its voices.

        Raises ApiError(model_not_found).
        """
        if model in self.config.realtime_models:
            return DEFAULT_MODEL, self.config.realtime_models[model]
        return (await self._find_model(model, "chat")).id, None

    async def check_transcriber(self, model: str) -> None:
        """Raises ApiError(model_not_found) when no recogniser has that name."""
        if model not in self.config.transcription_models:
            await self._find_model(model, "stt")

    async def choose_voice(
        self,
        wanted: str | None,
        tier: Tier | None,
        text: str,
        workspace_id: int,
        *,
        language: str | None = None,
        field: str = "voice",
    ) -> str | None:
        """The id of the voice for one of OpenAI's voice names, or for a name or id of this service.

        `language`, ISO 639-1, is that of the text if it is known. None lets it decide. `field` is
        what the request names it. Raises ApiError(voice_not_found), VoiceNotReady, EngineLost or
        DatabaseUnavailable.
        """
        if wanted is None:
            return None
        known = self.config.voices.get(wanted.strip().lower())
        if known is None:
            return (await self._find_voice(wanted, workspace_id, field)).id
        # Some clients accept only OpenAI's names, so a workspace may give a voice such a name.
        with suppress(VoiceNotReady):
            own = await self.voices.find_custom(workspace_id, wanted)
            if own is not None and own.is_of(workspace_id):
                return own.id
        offered = await self.voices.voices()
        language = language or await self.voices.language_of(text, workspace_id)
        chosen = _stand_in(known, tier, language, offered)
        return None if chosen is None else chosen.id

    async def _find_model(self, model: str, kind: ModelKind) -> ModelInfo:
        """The model of that id or alias and of that kind. Raises ApiError(model_not_found)."""
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
    """The answer to a name that no model has, or none of that kind."""
    does = "" if kind is None else f" that {_WORK[kind]}"
    message = f"no model{does} has that id; GET /openai/v1/models lists all"
    return ApiError("model_not_found", message, param="model")


def aliases_of(config: OpenAIConfig, models: Sequence[ModelInfo]) -> dict[str, list[str]]:
    """OpenAI's model names, by the id of the model that they stand for.

    A voice of another model is spoken by that model, whatever model was named.
    """
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
    known: OpenAIVoice, tier: Tier | None, language: str, offered: list[AvailableVoice]
) -> AvailableVoice | None:
    """The first of its voices that speaks the language, else one of its gender that does."""
    for ref in known.refs(tier):
        for one in offered:
            if (one.info.engine, one.info.key) == (ref.engine, ref.key) and one.speaks(language):
                return one
    speaking = [one for one in offered if one.language == language]
    return next((one for one in speaking if one.info.gender == known.gender), None)
