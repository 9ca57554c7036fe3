"""Custom voices that are ready, as speech needs them: by id, by name, and their voice packs."""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import get_args
from uuid import UUID

from db.database import Database
from db.voices.voices import Voice, ready_voices, voice_named, voice_of
from models.info import Accent, VoiceGender, VoiceInfo
from pipelines.errors import NotFound, VoiceNotFound, VoiceNotReady
from pipelines.ports import TTSModel
from pipelines.storage.files import Files
from pipelines.tasks import TaskSet, TtlCache

logger = logging.getLogger(__name__)

REMEMBERED_S = 4.0  # a voice that was deleted elsewhere is gone within 5 s
MAX_REMEMBERED = 10_000  # voices
KEPT_PACKS = 32  # of half a megabyte
CATEGORY = "Professional Cloning"
LOWEST_FEMALE_HZ = 165.0  # below most women's pitch, and above most men's
STILL_MADE = "the voice is still being made; GET /voices/{} shows how far it is"


@dataclass(frozen=True, slots=True)
class ReadyCustomVoice:
    """A voice that is ready."""

    id: UUID
    workspace_id: int
    name: str
    language: str  # ISO 639-1 code
    gender: VoiceGender
    accent: Accent
    description: str | None
    engine: str  # name of the one that speaks it
    pack_file: str
    pack_digest: str

    def info(self) -> VoiceInfo:
        """As the voices of models are described."""
        return VoiceInfo(
            engine=self.engine,
            key=f"custom:{self.id}",
            name=self.name,
            language=self.language,
            gender=self.gender,
            accent=self.accent,
            description=self.description,
            categories=(CATEGORY,),
            custom_id=str(self.id),
        )


class ReadyCustomVoices:
    """Caches voices that are ready, and packs on their way to engines, for REMEMBERED_S."""

    def __init__(
        self, database: Database, files: Files, speakers: Mapping[str, TTSModel] | None = None
    ) -> None:
        """Packs of deleted voices are dropped from the caches of `speakers`."""
        self._database = database
        self._files = files
        self._speakers = speakers or {}
        self._tasks = TaskSet()
        self._voices: TtlCache[tuple[int, str | None, str | None], ReadyCustomVoice | None] = (
            TtlCache(lambda voice: REMEMBERED_S if voice else 0.0, MAX_REMEMBERED)
        )
        # Engines keep a pack themselves; here a voice that another process deletes must expire.
        self._packs: TtlCache[str, bytes] = TtlCache(lambda _: REMEMBERED_S, KEPT_PACKS)

    async def find(
        self, workspace_id: int, *, voice_id: str | None = None, name: str | None = None
    ) -> ReadyCustomVoice | None:
        """The voice of that id, or else of that name without regard to case.

        Raises VoiceNotReady or DatabaseUnavailable.
        """
        key = (workspace_id, voice_id, None if name is None else key_of(name))
        return await self._voices.get(key, lambda: self._look_up(*key))

    async def _look_up(
        self, workspace_id: int, voice_id: str | None, name_key: str | None
    ) -> ReadyCustomVoice | None:
        found: Voice | None = None
        if voice_id is not None:
            identity = parse_id(voice_id)
            if identity is not None:
                found = await self._database.read(voice_of, workspace_id, identity)
        elif name_key is not None:
            found = await self._database.read(voice_named, workspace_id, name_key)
        if found is None:
            return None
        if found.status == "failed":
            raise VoiceNotReady(f"the voice could not be made: {found.reason}")
        if found.status != "ready":
            raise VoiceNotReady(STILL_MADE.format(found.id))
        return _as_ready(found)

    async def ready(self, workspace_id: int) -> list[ReadyCustomVoice]:
        """All that can speak, newest first; not cached. Raises DatabaseUnavailable."""
        return [_as_ready(one) for one in await self._database.read(ready_voices, workspace_id)]

    def forget(self, voice_id: UUID, pack_digest: str | None) -> None:
        """Drops a voice that was deleted here; other processes drop it when their cache expires."""
        self._voices.forget_if(lambda _, voice: voice is not None and voice.id == voice_id)
        if pack_digest is not None:
            self._packs.forget(pack_digest)
            self._tasks.start(self._forget_in_engines(pack_digest))

    async def _forget_in_engines(self, pack_digest: str) -> None:
        """Twice, since for some seconds another process may send the pack again."""
        for pause_s in (0.0, REMEMBERED_S + 1.0):
            await asyncio.sleep(pause_s)
            results = await asyncio.gather(
                *(model.forget_voice(pack_digest) for model in self._speakers.values()),
                return_exceptions=True,
            )
            for error in results:
                if error is not None:  # the cache expires later
                    logger.warning("pack_not_forgotten", extra={"reason": str(error)})

    async def pack(self, voice: ReadyCustomVoice) -> bytes:
        """Raises VoiceNotFound when the voice was deleted; StorageUnavailable or
        DatabaseUnavailable."""
        try:
            return await self._packs.get(
                voice.pack_digest, lambda: self._files.read(voice.workspace_id, voice.pack_file)
            )
        except NotFound:
            raise VoiceNotFound("the voice was deleted") from None


def key_of(name: str) -> str:
    """Names that differ in case only are the same."""
    return name.strip().casefold()


def parse_id(voice_id: str) -> UUID | None:
    """None where it is not a UUID in its canonical form."""
    try:
        parsed = UUID(voice_id.strip())
    except ValueError:
        return None
    return parsed if str(parsed) == voice_id.strip().lower() else None


def _as_ready(voice: Voice) -> ReadyCustomVoice:
    assert voice.engine and voice.pack_file and voice.pack_digest, "a ready voice has a pack"
    return ReadyCustomVoice(
        id=voice.id,
        workspace_id=voice.workspace_id,
        name=voice.name,
        language=voice.language,
        gender=_gender(voice),
        accent=next((one for one in get_args(Accent) if one == voice.accent), "Neutral"),
        description=voice.description,
        engine=voice.engine,
        pack_file=voice.pack_file,
        pack_digest=voice.pack_digest,
    )


def _gender(voice: Voice) -> VoiceGender:
    """As was stated; for `neutral`, which lists of voices do not have, by the pitch."""
    by_pitch: VoiceGender = (
        "male" if (voice.pitch_hz or LOWEST_FEMALE_HZ) < LOWEST_FEMALE_HZ else "female"
    )
    return next((one for one in get_args(VoiceGender) if one == voice.gender), by_pitch)
