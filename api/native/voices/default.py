"""The voices that there are."""

from typing import Literal

from pydantic import BaseModel, Field

from api.http.routing import PrincipalDep, VoicesDep, make_router
from configs.settings import BRAND
from pipelines.text.language_names import name_language
from pipelines.tts.voice_selection import AvailableVoice

router = make_router("voices", scope="voices")


class VoiceLabels(BaseModel):
    language: str = Field(description="ISO 639-1 code.")
    language_name: str
    gender: Literal["male", "female"]
    accent: Literal["American", "British", "Indian", "Neutral"]


class DefaultVoice(BaseModel):
    """One voice of the list."""

    voice_id: str
    name: str
    model: str
    labels: VoiceLabels
    description: str | None
    categories: list[str]
    voice_type: Literal["cloned", "professional"]
    is_native: bool = Field(description="Whether the platform brings it; false for a user's own.")
    available_tiers: list[str]


class DefaultVoices(BaseModel):
    """Every voice that a request may name."""

    success: Literal[True] = True
    message: str
    data: list[DefaultVoice]


@router.get("/default-voices", summary="List the voices that can speak")
async def list_default_voices(principal: PrincipalDep, voices: VoicesDep) -> DefaultVoices:
    """Every voice of the deployed models, and the workspace's own, by language and name."""
    listed = [_item(one) for one in await voices.catalogue.voices(principal.workspace_id)]
    listed.sort(key=lambda voice: (voice.labels.language_name, voice.name, voice.voice_id))
    return DefaultVoices(message=f"{len(listed)} voices", data=listed)


def _item(one: AvailableVoice) -> DefaultVoice:
    voice = one.voice
    return DefaultVoice(
        voice_id=voice.voice_id,
        name=voice.name,
        model=f"{BRAND} {(one.model.tier or 'quality').capitalize()}",
        labels=VoiceLabels(
            language=voice.language,
            language_name=name_language(voice.language).name,
            gender=voice.gender,
            accent=voice.accent,
        ),
        description=voice.description,
        categories=list(voice.categories),
        voice_type="professional" if one.custom is None else "cloned",
        is_native=one.custom is None,
        available_tiers=[],
    )
