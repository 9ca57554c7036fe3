"""Custom voices in the speech pipeline: their lookup, caches, packs and deletion."""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from uuid import UUID, uuid4

import numpy as np
import pytest

from db.database import Database
from models.audio import AudioChunk
from models.base import ModelInfo
from models.errors import EngineLost, PackMissing
from models.registry import TTS, load_model
from models.tts.base import PackRef, SynthesisRequest
from models.tts.voice_pack import STYLE_SHAPE, VoicePack, pack_digest, write_pack
from models.weights.store import WeightStore
from pipelines.errors import VoiceNotFound, VoiceNotReady
from pipelines.storage.files import Files
from pipelines.tts.pipeline import SpeechPipeline
from pipelines.tts.reading import SpeechRequest
from pipelines.tts.voices import ReadyCustomVoices
from tests.db.test_chats import add_workspace
from tests.db.voices.test_voices import add, new_voice
from tests.engines import TONE, TONE_ENGINE
from tests.local_ports import LocalTTSModel
from tests.migrated import sqlite_database
from tests.pipelines.storage.on_disk import files_in
from tests.pipelines.stt.voiced import speak
from tests.pipelines.tts.test_pipeline import CONFIG

PACK = write_pack(VoicePack(np.full(STYLE_SHAPE, 0.5, np.float32)))


class Watched(LocalTTSModel):
    """A model that records which requests carried a voice pack."""

    def __init__(self, engine: object, info: ModelInfo) -> None:
        super().__init__(engine, info)  # type: ignore[arg-type]
        self.carried: list[bool] = []

    async def synthesize(self, request: SynthesisRequest) -> AsyncGenerator[AudioChunk, None]:
        self.carried.append(request.pack is not None and request.pack.data is not None)
        async for chunk in super().synthesize(request):
            yield chunk


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with sqlite_database(tmp_path) as opened:
        yield opened


@pytest.fixture
def files(database: Database, tmp_path: Path) -> Files:
    return files_in(tmp_path, database)


@pytest.fixture
def own(database: Database, files: Files) -> ReadyCustomVoices:
    return ReadyCustomVoices(database, files)


@pytest.fixture
def speaker() -> Watched:
    return Watched(*load_model(TTS, TONE, WeightStore(Path("/nowhere"))))


async def ready_voice(database: Database, files: Files) -> tuple[int, UUID]:
    workspace_id = await add_workspace(database)
    file_id = await files.put(workspace_id, "voice", "application/octet-stream", PACK, None)
    voice = new_voice(
        workspace_id,
        status="ready",
        engine=TONE_ENGINE,
        pack_file=file_id,
        pack_digest=pack_digest(PACK),
    )
    return workspace_id, await add(database, voice)


def pipeline(speaker: Watched, own: ReadyCustomVoices) -> SpeechPipeline:
    return SpeechPipeline({"tone": speaker}, CONFIG, own)


async def test_a_voice_pack_is_sent_once_to_each_engine(
    database: Database, files: Files, own: ReadyCustomVoices, speaker: Watched
) -> None:
    workspace_id, voice_id = await ready_voice(database, files)
    speech = pipeline(speaker, own)
    request = SpeechRequest("Hello there.", voice_id=str(voice_id), workspace_id=workspace_id)
    for _ in range(2):
        spoken = await speak(speech, request)
        assert len(spoken.audio.pcm)
    assert speaker.carried == [False, True, False]
    another = Watched(*load_model(TTS, TONE, WeightStore(Path("/nowhere"))))  # its replica is new
    again = pipeline(another, own)
    await speak(again, request)
    assert another.carried == [False, True]


async def test_concurrent_requests_read_the_voice_pack_once(
    database: Database, files: Files, own: ReadyCustomVoices, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace_id, voice_id = await ready_voice(database, files)
    voice = await own.find(workspace_id, str(voice_id))
    assert voice is not None
    reads = 0
    read = files.read

    async def counted(workspace_id: int, file_id: str) -> bytes:
        nonlocal reads
        reads += 1
        return await read(workspace_id, file_id)

    monkeypatch.setattr(files, "read", counted)
    packs = await asyncio.gather(*(own.pack(voice) for _ in range(5)))
    assert (set(packs), reads) == ({PACK}, 1)


async def test_a_custom_voice_whose_pack_is_deleted_is_not_found(
    database: Database, files: Files, own: ReadyCustomVoices, speaker: Watched
) -> None:
    workspace_id, voice_id = await ready_voice(database, files)
    voice = await own.find(workspace_id, str(voice_id))
    assert voice is not None
    await files.delete(workspace_id, voice.pack_file)
    speech = pipeline(speaker, own)
    request = SpeechRequest("Hello.", voice_id=str(voice_id), workspace_id=workspace_id)
    with pytest.raises(VoiceNotFound):
        await speak(speech, request)


async def test_packs_of_deleted_voices_leave_every_cache_and_engine(
    database: Database, files: Files, speaker: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.tts.voices.REMEMBERED_S", 0.2)
    workspace_id, voice_id = await ready_voice(database, files)
    own, elsewhere = (ReadyCustomVoices(database, files, {"tone": speaker}) for _ in range(2))
    request = SpeechRequest("Hello.", voice_id=str(voice_id), workspace_id=workspace_id)
    for known in (own, elsewhere):
        speech = pipeline(speaker, known)
        await speak(speech, request)
        voice = await known.find(workspace_id, str(voice_id))
        assert voice is not None and await known.pack(voice) == PACK
    own.forget(voice_id, pack_digest(PACK))
    await asyncio.sleep(0.3)
    assert len(own._packs) == len(elsewhere._packs) == 0
    asked = SynthesisRequest("Hello.", "x", "en", pack=PackRef(pack_digest(PACK)))
    with pytest.raises(PackMissing):
        await anext(speaker.synthesize(asked))


async def test_forget_clears_the_voice_cache_of_this_process_only(
    database: Database, files: Files, own: ReadyCustomVoices, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace_id, voice_id = await ready_voice(database, files)
    assert await own.find(workspace_id, "ANN ") is not None
    elsewhere = ReadyCustomVoices(database, files)
    assert await elsewhere.find(workspace_id, "ann") is not None
    own.forget(voice_id, pack_digest(PACK))
    assert not len(own._voices) and len(elsewhere._voices)
    monkeypatch.setattr("pipelines.tasks.time", SimpleNamespace(monotonic=lambda: 1e12))
    assert await elsewhere.find(workspace_id + 1, "ann") is None
    assert await elsewhere.find(workspace_id, "ann") is not None


async def test_a_custom_voice_without_its_model_is_unavailable_and_not_listed(
    database: Database, files: Files, own: ReadyCustomVoices, speaker: Watched
) -> None:
    workspace_id, voice_id = await ready_voice(database, files)
    speaker._info = replace(speaker._info, takes_voice_packs=False)
    speech = pipeline(speaker, own)
    with pytest.raises(EngineLost):
        await speech.directory.find(str(voice_id), None, workspace_id)
    with pytest.raises(EngineLost):
        await speech.directory.custom_voice_models()
    offered = await speech.directory.voices(workspace_id)
    assert str(voice_id) not in {one.id for one in offered}


async def test_the_models_for_new_custom_voices_are_chosen_by_engine_names(
    own: ReadyCustomVoices, speaker: Watched
) -> None:
    other = Watched(*load_model(TTS, TONE, WeightStore(Path("/nowhere"))))
    other._info = replace(other._info, engine="csm", languages=("en",))
    speech = SpeechPipeline({"tone": speaker, "other": other}, CONFIG, own)
    for engines, expected in (
        (["csm"], ["csm"]),
        ([TONE_ENGINE], [TONE_ENGINE]),
        (["csm", "kokoro", TONE_ENGINE], ["csm", TONE_ENGINE]),
        ([], [TONE_ENGINE]),
        (["kokoro"], [TONE_ENGINE]),
    ):
        found = await speech.directory.custom_voice_models(engines)
        assert [model.engine for model in found] == expected


async def test_voices_are_found_by_the_names_that_their_engine_gives_them(
    own: ReadyCustomVoices, speaker: Watched
) -> None:
    directory = pipeline(speaker, own).directory
    for offered in await directory.voices():
        voice = await directory.find_named(offered.info.key.upper(), None)
        assert (voice.info.engine, voice.info.key) == (TONE_ENGINE, offered.info.key)


async def test_a_custom_voice_precedes_a_stock_voice_of_its_name(
    database: Database, files: Files, own: ReadyCustomVoices, speaker: Watched
) -> None:
    workspace_id, voice_id = await ready_voice(database, files)
    waiting = new_voice(workspace_id, "Alto")
    speech = pipeline(speaker, own)
    found = await speech.directory.find(None, "ALTO", workspace_id)
    assert found is not None and found.custom is None
    await add(database, waiting)
    with pytest.raises(VoiceNotReady):
        await speech.directory.find(None, "Alto", workspace_id)
    elsewhere = await speech.directory.find(None, "Alto", workspace_id + 1)
    assert elsewhere is not None and elsewhere.custom is None
    assert (await speech.directory.find(None, "Alto")) is not None  # of no workspace
    for no_id in (str(uuid4()), "Alto", "Ann"):  # names are no ids
        with pytest.raises(VoiceNotFound):
            await speech.directory.find(no_id, None, workspace_id)
    for wanted in (str(voice_id).upper(), "ANN"):
        ann = await speech.directory.find_named(wanted, workspace_id)
        assert ann.id == str(voice_id)
