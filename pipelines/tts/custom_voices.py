"""The voices that a workspace had made, as speech needs them: by id, by name, and their packs."""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from uuid import UUID

from db.session import Database
from db.voices.tables import Voice
from db.voices.voices import ready_voices, voice_named, voice_of
from models.info import Accent, VoiceGender, VoiceInfo
from pipelines.errors import NotFound, VoiceNotFound, VoiceNotReady
from pipelines.ports import TTSModel
from pipelines.storage.files import Files
from pipelines.voices.voice_object import heard_gender, stated_accent

logger = logging.getLogger(__name__)

REMEMBERED_S = 4.0  # a voice that was deleted elsewhere is gone within 5 s
MAX_REMEMBERED = 10_000  # voices
KEPT_PACKS = 32  # of half a megabyte
CATEGORY = "Professional Cloning"


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
    """Remembers voices that are ready, and packs that are on their way to engines, for seconds."""

    def __init__(
        self, database: Database, files: Files, speakers: Mapping[str, TTSModel] | None = None
    ) -> None:
        """`speakers` are told of packs whose voices were deleted."""
        self._database = database
        self._files = files
        self._speakers = speakers or {}
        self._telling: set[asyncio.Task[None]] = set()  # kept, or they might be collected
        self._known: dict[Hashable, tuple[ReadyCustomVoice, float]] = {}  # with monotonic seconds
        self._forgotten = 0  # a look-up that one overtook is not remembered
        self._packs: OrderedDict[str, bytes] = OrderedDict()  # by digest
        self._loading: dict[str, asyncio.Task[bytes]] = {}

    async def find(
        self, workspace_id: int, *, voice_id: str | None = None, name: str | None = None
    ) -> ReadyCustomVoice | None:
        """The voice of that id, or else of that name without regard to case.

        Raises VoiceNotReady or DatabaseUnavailable.
        """
        name_key = None if name is None else key_of(name)
        place = (workspace_id, voice_id, name_key)
        known = self._known.get(place)
        if known is not None and known[1] > time.monotonic():
            return known[0]
        fresh_until = time.monotonic() + REMEMBERED_S  # counted from before the look-up
        forgotten = self._forgotten
        found: Voice | None = None
        if voice_id is not None:
            identity = parse_id(voice_id)
            if identity is not None:
                found = await self._database.read(voice_of, workspace_id, identity)
        elif name_key is not None:
            found = await self._database.read(voice_named, workspace_id, name_key)
        if found is None:
            return None
        if found.status != "ready":
            raise VoiceNotReady(_why_not(found))
        own = _own(found)
        if forgotten == self._forgotten:
            if len(self._known) >= MAX_REMEMBERED:
                self._known.clear()
            self._known[place] = (own, fresh_until)
        return own

    async def ready(self, workspace_id: int) -> list[ReadyCustomVoice]:
        """All that can speak, newest first; not remembered. Raises DatabaseUnavailable."""
        return [_own(one) for one in await self._database.read(ready_voices, workspace_id)]

    def forget(self, voice_id: UUID, pack_digest: str | None) -> None:
        """It was deleted here; others see it when their memory fades."""
        self._forgotten += 1
        self._known = {
            place: known for place, known in self._known.items() if known[0].id != voice_id
        }
        if pack_digest is not None:
            self._packs.pop(pack_digest, None)
            telling = asyncio.create_task(self._tell_speakers(pack_digest))
            self._telling.add(telling)
            telling.add_done_callback(self._telling.discard)

    async def _tell_speakers(self, pack_digest: str) -> None:
        """Twice, since for some seconds another process may send the pack again."""
        for pause_s in (0.0, REMEMBERED_S + 1.0):
            await asyncio.sleep(pause_s)
            told = await asyncio.gather(
                *(model.forget_voice(pack_digest) for model in self._speakers.values()),
                return_exceptions=True,
            )
            for error in told:
                if error is not None:  # they forget by themselves, but later
                    logger.warning("pack_not_forgotten", extra={"reason": str(error)})

    async def pack(self, voice: ReadyCustomVoice) -> bytes:
        """Raises VoiceNotFound when the voice was deleted; StorageUnavailable or
        DatabaseUnavailable."""
        data = self._packs.get(voice.pack_digest)
        if data is not None:
            self._packs.move_to_end(voice.pack_digest)
            return data
        # Requests that arrive together share one look-up; one that leaves does not end it.
        loading = self._loading.get(voice.pack_digest)
        if loading is None:
            loading = asyncio.ensure_future(self._load(voice))
            self._loading[voice.pack_digest] = loading
            loading.add_done_callback(lambda done: self._loaded(voice, done))
        return await asyncio.shield(loading)

    async def _load(self, voice: ReadyCustomVoice) -> bytes:
        forgotten = self._forgotten
        try:
            data = await self._files.read(voice.workspace_id, voice.pack_file)
        except NotFound:
            raise VoiceNotFound("the voice was deleted") from None
        if forgotten == self._forgotten:
            self._packs[voice.pack_digest] = data
            while len(self._packs) > KEPT_PACKS:
                self._packs.popitem(last=False)
            # Engines keep it from here on, and here nobody hears of a voice that is deleted.
            asyncio.get_running_loop().call_later(
                REMEMBERED_S, self._packs.pop, voice.pack_digest, None
            )
        return data

    def _loaded(self, voice: ReadyCustomVoice, done: "asyncio.Task[bytes]") -> None:
        self._loading.pop(voice.pack_digest, None)
        if not done.cancelled():
            done.exception()  # seen, even when every caller has left


def key_of(name: str) -> str:
    """What names are compared by."""
    return name.strip().casefold()


def parse_id(voice_id: str) -> UUID | None:
    """None for what is no id in its usual form."""
    try:
        parsed = UUID(voice_id.strip())
    except ValueError:
        return None
    return parsed if str(parsed) == voice_id.strip().lower() else None


def _own(voice: Voice) -> ReadyCustomVoice:
    assert voice.engine and voice.pack_file and voice.pack_digest, "a ready voice has a pack"
    return ReadyCustomVoice(
        id=voice.id,
        workspace_id=voice.workspace_id,
        name=voice.name,
        language=voice.language,
        gender=heard_gender(voice),
        accent=stated_accent(voice),
        description=voice.description,
        engine=voice.engine,
        pack_file=voice.pack_file,
        pack_digest=voice.pack_digest,
    )


def _why_not(voice: Voice) -> str:
    if voice.status == "failed":
        return f"the voice could not be made: {voice.reason}"
    return f"the voice is still being made; GET /voices/{voice.id} shows how far it is"
