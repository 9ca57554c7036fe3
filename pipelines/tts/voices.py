"""The available voices: those of the models, and custom voices that are ready."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NoReturn, get_args
from uuid import UUID

from configs.schema.voices import VoicesConfig
from db.database import Database
from db.voices.voices import Voice, ready_voices, visible_voice
from models.base import Accent, ModelInfo, VoiceGender, VoiceInfo
from models.errors import EngineLost
from pipelines.errors import SHOWN_CHARACTERS, NotFound, VoiceNotFound, VoiceNotReady
from pipelines.ports import TTSModel, describe_all
from pipelines.storage.files import Files
from pipelines.tasks import TaskSet, TtlCache
from pipelines.text.language_detection import detect_language
from pipelines.text.segmentation import clean
from pipelines.text.usual_language import FALLBACK_LANGUAGE, UsualLanguages

logger = logging.getLogger(__name__)

REMEMBERED_S = 4.0  # a voice deleted by another process is forgotten within 5 s
MAX_REMEMBERED = 10_000
CERTAIN_CHARACTERS = 30  # a text of this length shows what language a workspace speaks
DETECTED_CHARACTERS = 1000
KEPT_PACKS = 32  # a pack has half a megabyte
CATEGORY = "Professional Cloning"
LOWEST_FEMALE_HZ = 165.0  # most women speak higher, and most men lower
NOT_READY = "the models of some voices are not ready: try again soon"
STILL_MADE = "the voice is still being made; GET /voices/{} shows its progress"


@dataclass(frozen=True, slots=True)
class ReadyCustomVoice:
    info: VoiceInfo  # the description, as for voices of models
    workspace_id: int  # the owner
    pack_file: str
    pack_digest: str


@dataclass(eq=False, repr=False)
class ReadyCustomVoices:
    """Caches ready voices and their packs for REMEMBERED_S. Methods raise DatabaseUnavailable."""

    _database: Database
    _files: Files
    _speakers: Mapping[str, TTSModel] = field(default_factory=dict)
    """Models whose caches drop the packs of deleted voices."""
    _tasks: TaskSet = field(default_factory=TaskSet)

    def __post_init__(self) -> None:
        self._voices: TtlCache[tuple[int, str], ReadyCustomVoice | None] = TtlCache(
            lambda voice: REMEMBERED_S if voice else 0.0, MAX_REMEMBERED
        )
        # Engines cache packs themselves; here the packs of deleted voices have to expire soon.
        self._packs: TtlCache[str, bytes] = TtlCache(REMEMBERED_S, KEPT_PACKS)

    async def find(self, workspace_id: int, wanted: str) -> ReadyCustomVoice | None:
        """Find a ready voice by its id, or by its name regardless of case. Raises VoiceNotReady."""
        key = key_of(wanted)
        return await self._voices.get((workspace_id, key), lambda: self._look_up(workspace_id, key))

    async def _look_up(self, workspace_id: int, key: str) -> ReadyCustomVoice | None:
        voice = await self._database.read(visible_voice, workspace_id, parse_id(key) or key)
        if voice is None:
            return None
        if voice.status == "failed":
            raise VoiceNotReady(f"the voice could not be made: {voice.reason}")
        if voice.status != "ready":
            raise VoiceNotReady(STILL_MADE.format(voice.id))
        return _as_ready(voice)

    async def ready(self, workspace_id: int) -> list[ReadyCustomVoice]:
        """List ready voices, also shared ones, newest first; not cached."""
        return [_as_ready(voice) for voice in await self._database.read(ready_voices, workspace_id)]

    def forget(self, voice_id: UUID, pack_digest: str | None) -> None:
        """Drops a voice that was deleted here; other processes drop it when their cache expires."""
        deleted = str(voice_id)
        self._voices.forget_if(
            lambda _, voice: voice is not None and voice.info.voice_id == deleted
        )
        if pack_digest is not None:
            self._packs.forget(pack_digest)
            self._tasks.start(self._forget_in_engines(pack_digest))

    async def _forget_in_engines(self, pack_digest: str) -> None:
        """Drops the pack twice, since for some seconds another process may send it again."""
        for pause_s in (0.0, REMEMBERED_S + 1.0):
            await asyncio.sleep(pause_s)
            results = await asyncio.gather(
                *(model.forget_voice(pack_digest) for model in self._speakers.values()),
                return_exceptions=True,
            )
            for error in results:
                if error is not None:  # the cache expires later
                    logger.warning("voice_pack_not_evicted", extra={"reason": str(error)})

    async def pack(self, voice: ReadyCustomVoice) -> bytes:
        """Read a pack. Raises VoiceNotFound if the voice was deleted, or StorageUnavailable."""
        try:
            return await self._packs.get(
                voice.pack_digest, lambda: self._files.read(voice.workspace_id, voice.pack_file)
            )
        except NotFound:
            raise VoiceNotFound("the voice was deleted") from None


@dataclass(frozen=True, slots=True)
class AvailableVoice:
    """A voice and the model that speaks it."""

    info: VoiceInfo
    model: ModelInfo
    model_name: str  # the key of the model's port
    custom: ReadyCustomVoice | None = None  # only of custom voices
    is_stand_in: bool = False  # stands for a vendor's voice, which speaks the language of any text
    is_makeshift: bool = False  # speaks only because the usual voice's model is not up

    @property
    def id(self) -> str:
        return self.info.voice_id

    @property
    def language(self) -> str:
        """Return the ISO 639-1 code of the voice's own language."""
        return self.info.language

    def is_of(self, workspace_id: int | None) -> bool:
        """Whether it is a custom voice of that workspace, not one that is shared with it."""
        return self.custom is not None and self.custom.workspace_id == workspace_id

    @property
    def languages(self) -> frozenset[str]:
        """Return the ISO 639-1 codes of the languages that the voice speaks."""
        crosses = self.model.crosses_languages
        return frozenset({self.language, *(self.model.languages if crosses else ())})

    def speaks(self, language: str) -> bool:
        return language in self.languages

    def in_language(self, language: str) -> "AvailableVoice":
        """Return the voice with `language` as its own; unchanged if it does not speak it."""
        if not self.speaks(language):
            return self
        return replace(self, info=replace(self.info, language=language))


@dataclass(eq=False, repr=False)
class VoiceDirectory:
    """Finds voices by id, name and language; the mapping of models may change."""

    _models: Mapping[str, TTSModel]
    _config: VoicesConfig
    _custom: ReadyCustomVoices | None = None  # None: only the models have voices
    # A model without replicas stays here: its voices answer 503.
    _seen: dict[str, ModelInfo] = field(default_factory=dict)
    usual_languages: UsualLanguages = field(default_factory=UsualLanguages)

    @property
    def is_complete(self) -> bool:
        """Whether each model was up, so that its voices are known."""
        return all(name in self._seen for name in self._models)

    def awaits_default(self, *languages: str) -> bool:
        """Whether the model of the default voice of one of the languages, or of any language if
        none is given, may still load. Models without a default voice may never come: that of CSM
        does not without a token."""
        engines = {info.engine for info in self._seen.values()}
        return not self.is_complete and any(
            default.engine not in engines
            for language, default in self._config.defaults.items()
            if not languages or language in languages
        )

    async def voices(self, workspace_id: int | None = None) -> list[AvailableVoice]:
        """List the custom voices of the workspace, then every voice of the models, in their order.
        Raises EngineLost if no model is known, or DatabaseUnavailable."""
        await self._ask()
        offered = [
            AvailableVoice(voice, self._seen[name], name)
            for name in dict(self._models)
            if name in self._seen
            for voice in self._seen[name].voices
        ]
        if not offered:
            raise EngineLost("no text-to-speech model is up")
        if self._custom is None or workspace_id is None:
            return offered
        custom = map(self._with_model, await self._custom.ready(workspace_id))
        return [*(voice for voice in custom if voice is not None), *offered]

    async def language_of(
        self, text: str, workspace_id: int | None, expected: str | None = None
    ) -> str:
        """Determine the language of a text, among those of the voices. A text that does not show
        its language is in the `expected` one, that of the conversation, or else in that of the
        workspace's last texts, if they agree. Raises EngineLost."""
        offered = frozenset(voice.language for voice in await self.voices())
        offered |= {code for code in self._config.defaults if self.awaits_default(code)}
        if workspace_id is not None:
            expected = expected or self.usual_languages.of(workspace_id)
        beginning = text[:DETECTED_CHARACTERS]
        language = await asyncio.to_thread(
            lambda: detect_language(clean(beginning), offered, expected)
        )
        if workspace_id is not None and len(text) >= CERTAIN_CHARACTERS:
            self.usual_languages.note(workspace_id, language)
        return language

    async def custom_voice_models(self, engines: Sequence[str] = ()) -> list[ModelInfo]:
        """Return the models that speak custom voices: those of `engines` that are up, in that
        order, or any other such model if none is. Raises EngineLost."""
        await self._ask()
        taking = [info for info in self._seen.values() if info.takes_voice_packs]
        if not taking:
            raise EngineLost("no model that speaks custom voices is up")
        wanted = [info for engine in engines for info in taking if info.engine == engine]
        return wanted or taking[:1]

    async def _ask(self) -> None:
        models = dict(self._models)
        answers = await describe_all(models.values())
        for name, info in zip(models, answers, strict=True):
            if info is not None:
                self._seen[name] = info

    async def find(
        self, voice_id: str | None, name: str | None = None, workspace_id: int | None = None
    ) -> AvailableVoice | None:
        """Find the voice that the caller named; `voice_id` wins, and `name` may be an id. Returns
        None if neither is given.

        Among voices of the same name, a custom voice of the workspace comes first, and a voice that
        is shared with it last, because its owner names it. Raises VoiceNotFound, VoiceNotReady,
        EngineLost or DatabaseUnavailable."""
        if voice_id is None:
            return None if name is None else await self.find_named(name, workspace_id, "voice")
        if parse_id(voice_id) is None:
            await self.voices()
            self._not_found(voice_id, "voice_id")
        return await self.find_named(voice_id, workspace_id)

    async def find_named(
        self, wanted: str, workspace_id: int | None, field: str = "voice_id"
    ) -> AvailableVoice:
        """Find the voice of that id or name, which the request has in `field`, else the voice that
        has this name in its engine, such as `af_bella`. Raises as `find`."""
        key = key_of(wanted)
        is_id = parse_id(wanted) is not None
        offered = await self.voices()
        called = (v for v in offered if key == (v.id if is_id else key_of(v.info.name)))
        match = next(called, None)
        if not (match and is_id):
            custom = await self.find_custom(workspace_id, wanted)
            if match is None or (custom and custom.is_of(workspace_id)):
                match = custom
        match = match or next((v for v in offered if key == key_of(v.info.key)), None)
        return match or self._not_found(wanted, field)

    async def find_custom(self, workspace_id: int | None, wanted: str) -> AvailableVoice | None:
        """Find a custom voice. Raises VoiceNotReady, EngineLost or DatabaseUnavailable."""
        if self._custom is None or workspace_id is None:
            return None
        custom = await self._custom.find(workspace_id, wanted)
        if custom is None:
            return None
        await self._ask()
        voice = self._with_model(custom)
        if voice is None:
            raise EngineLost("the model of the voice is not up")
        return voice

    def _not_found(self, wanted: str, field: str) -> NoReturn:
        if not self.is_complete:
            raise EngineLost(
                "a text-to-speech model is not ready, and the voice may be one of its voices; "
                "try again soon"
            )
        reason = f"no voice has that {field}"
        if field == "voice":
            reason = f"no voice is called {wanted[:SHOWN_CHARACTERS]!r}"
        raise VoiceNotFound(f"{reason}; GET /default-voices lists them")

    def _with_model(self, voice: ReadyCustomVoice) -> AvailableVoice | None:
        """Return the voice with its model; None if the model was never up."""
        for name in dict(self._models):
            info = self._seen.get(name)
            if info is not None and info.takes_voice_packs and info.engine == voice.info.engine:
                return AvailableVoice(voice.info, info, name, voice)
        return None

    def default(self, language: str, offered: list[AvailableVoice]) -> AvailableVoice:
        """Return the default voice of a language, else any voice of it, else English's default."""
        for code in (language, FALLBACK_LANGUAGE):
            speaking = [voice for voice in offered if voice.language == code]
            chosen = self._config.defaults.get(code)
            for voice in speaking:
                if chosen and (voice.info.engine, voice.info.key) == (chosen.engine, chosen.key):
                    return self.makeshift(voice, language)
            if speaking:
                return self.makeshift(speaking[0], language, code)
        return self.makeshift(offered[0], language, FALLBACK_LANGUAGE)

    def makeshift(self, voice: AvailableVoice, *languages: str) -> AvailableVoice:
        """Return a voice, marked as makeshift while `awaits_default(*languages)`."""
        return replace(voice, is_makeshift=True) if self.awaits_default(*languages) else voice

    def nearest(
        self, voice: AvailableVoice, language: str, offered: list[AvailableVoice]
    ) -> AvailableVoice:
        """Return the voice itself if it speaks the language, or else another voice that does.
        Those with the language as their own come first, then those of the same gender, then the
        default."""
        if voice.speaks(language):
            return voice
        speaking = [candidate for candidate in offered if candidate.speaks(language)]
        nearest = min(
            (self.default(language, offered), *speaking),
            key=lambda candidate: (
                candidate.language != language,
                candidate.info.gender != voice.info.gender,
            ),
        )
        return self.makeshift(nearest, language)


def key_of(name: str) -> str:
    """Return the key of a name, which names that differ only in case share."""
    return name.strip().casefold()


def parse_id(voice_id: str) -> UUID | None:
    """Return the id as a UUID; None unless it is a UUID in canonical form."""
    try:
        parsed = UUID(voice_id.strip())
    except ValueError:
        return None
    return parsed if str(parsed) == voice_id.strip().lower() else None


def _as_ready(voice: Voice) -> ReadyCustomVoice:
    assert voice.engine and voice.pack_file and voice.pack_digest, "a ready voice has a pack"
    info = VoiceInfo(
        engine=voice.engine,
        key=f"custom:{voice.id}",
        name=voice.name,
        language=voice.language,
        gender=_gender(voice),
        accent=next((accent for accent in get_args(Accent) if accent == voice.accent), "Neutral"),
        description=voice.description,
        categories=(CATEGORY,),
        custom_id=str(voice.id),
        is_native=False,
    )
    return ReadyCustomVoice(info, voice.workspace_id, voice.pack_file, voice.pack_digest)


def _gender(voice: Voice) -> VoiceGender:
    """Return the stated gender; for `neutral`, which lists do not have, that of the pitch."""
    by_pitch: VoiceGender = (
        "male" if (voice.pitch_hz or LOWEST_FEMALE_HZ) < LOWEST_FEMALE_HZ else "female"
    )
    return next((gender for gender in get_args(VoiceGender) if gender == voice.gender), by_pitch)
