"""The voice for a name that clients of another API use."""

import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from models.base import VoiceGender
from pipelines.errors import VoiceNotFound, VoiceNotReady
from pipelines.tts.voices import AvailableVoice, VoiceDirectory


@dataclass(frozen=True, slots=True)
class ForeignVoice:
    """What is known of a voice of another API."""

    name: str
    language: str  # ISO 639-1
    gender: VoiceGender


async def voice_for(
    wanted: str,
    foreign: ForeignVoice | None,
    directory: VoiceDirectory,
    workspace_id: int,
    field: str = "model",
) -> AvailableVoice:
    """The voice of that name or id; a stand-in where it is the name of a `foreign` one.

    A custom voice of the workspace comes first. `field` is what the request names it. Raises
    VoiceNotFound, VoiceNotReady, EngineLost or DatabaseUnavailable.
    """
    if foreign is None:
        return await directory.find_named(wanted, workspace_id, field)
    with suppress(VoiceNotReady):
        own = await directory.find_custom(workspace_id, wanted)
        if own is not None and own.is_of(workspace_id):
            return own
    return stand_in(foreign, await directory.voices())


def stand_in(foreign: ForeignVoice, offered: Sequence[AvailableVoice]) -> AvailableVoice:
    """One of its language, and of its gender if there is any: always the same one for a name, and
    mostly different ones for different names. Raises VoiceNotFound."""
    speaking = [one for one in offered if one.voice.language == foreign.language]
    alike = [one for one in speaking if one.voice.gender == foreign.gender] or speaking
    if not alike:
        raise VoiceNotFound(f"no voice speaks {foreign.language}; GET /default-voices lists all")
    alike.sort(key=lambda one: one.voice.voice_id)
    return alike[zlib.crc32(foreign.name.encode()) % len(alike)]
