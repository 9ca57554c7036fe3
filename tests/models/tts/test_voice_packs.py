"""Voice packs of a request, and their cache in an engine."""

import io
from dataclasses import replace

import numpy as np
import pytest

from models.base import ModelInfo
from models.errors import PackMissing, WeightsCorrupt
from models.tts.base import PackRef, SynthesisRequest, TTSEngine
from models.tts.voice_pack import (
    KEPT_S,
    STYLE_SHAPE,
    VoiceCache,
    VoicePack,
    pack_digest,
    read_pack,
    write_pack,
)
from tests.engines import TONE
from tests.models.tts.loaded import loaded

STYLE = np.random.default_rng(1).standard_normal(STYLE_SHAPE).astype(np.float32)


def reference(data: bytes) -> PackRef:
    return PackRef(pack_digest(data), data)


def test_a_written_voice_pack_is_read_back_unchanged() -> None:
    taps = np.array([0, 1, 0], np.float32)
    read = read_pack(write_pack(VoicePack(STYLE, taps, british=True)))
    assert np.array_equal(read.style, STYLE) and read.british
    assert read.filter is not None and np.array_equal(read.filter, taps)
    plain = read_pack(write_pack(VoicePack(STYLE)))
    assert plain.filter is None and not plain.british
    assert write_pack(VoicePack(STYLE)) == write_pack(VoicePack(STYLE))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"PK\x03\x04 no archive",
        b"x" * 2_000_000,
        write_pack(VoicePack(STYLE))[:-40],
        write_pack(VoicePack(STYLE[:100])),
        write_pack(VoicePack(STYLE.astype(np.float64))),
        write_pack(VoicePack(np.full(STYLE_SHAPE, np.nan, np.float32))),
        write_pack(VoicePack(STYLE, np.zeros(10_000, np.float32))),
    ],
)
def test_an_invalid_voice_pack_is_refused(data: bytes) -> None:
    with pytest.raises(WeightsCorrupt):
        VoiceCache(read_pack).take(reference(data))


def test_old_formants_of_a_voice_pack_are_ignored() -> None:
    with np.load(io.BytesIO(write_pack(VoicePack(STYLE)))) as parts:
        former = {**parts, "warp": np.array(1.1, np.float32)}
    target = io.BytesIO()
    np.savez(target, **former)
    assert np.array_equal(read_pack(target.getvalue()).style, STYLE)


def test_a_voice_pack_with_a_wrong_digest_is_refused() -> None:
    with pytest.raises(WeightsCorrupt):
        VoiceCache(read_pack).take(PackRef("0" * 64, write_pack(VoicePack(STYLE))))


def test_recently_used_voice_packs_are_cached_until_they_expire() -> None:
    now = 0.0
    cache = VoiceCache(read_pack, 2, lambda: now)
    packs = [reference(write_pack(VoicePack(STYLE * scale))) for scale in (0.5, 1, 2)]
    names = [PackRef(pack.digest) for pack in packs]
    for pack in packs[:2]:
        cache.take(pack)
    cache.take(names[0])
    cache.take(packs[2])
    with pytest.raises(PackMissing):
        cache.take(names[1])
    cache.take(names[0])
    now = KEPT_S + 1
    for name in names:
        with pytest.raises(PackMissing):
            cache.take(name)


def test_a_forgotten_voice_pack_is_removed_from_the_cache() -> None:
    cache = VoiceCache(read_pack)
    kept, deleted = (reference(write_pack(VoicePack(STYLE * scale))) for scale in (1, 2))
    for pack in (kept, deleted):
        cache.take(pack)
    for digest in (deleted.digest, "0" * 64):
        cache.forget(digest)
    cache.take(PackRef(kept.digest))
    with pytest.raises(PackMissing):
        cache.take(PackRef(deleted.digest))


@pytest.fixture(
    params=[pytest.param(TONE, id="tone"), pytest.param("kokoro", marks=pytest.mark.weights)]
)
def model(request: pytest.FixtureRequest) -> tuple[TTSEngine, ModelInfo]:
    return loaded(request.param)


def test_a_sent_voice_pack_is_cached_and_applied(model: tuple[TTSEngine, ModelInfo]) -> None:
    engine, info = model
    assert info.takes_voice_packs
    style = STYLE * np.float32(0.1)
    if info.engine == "kokoro":  # whose own packs sound like speech
        style = engine._styles["af_heart"]  # type: ignore[attr-defined]
    pack = reference(write_pack(VoicePack(style, np.array([0, 0.5, 0], np.float32))))
    asked = SynthesisRequest("Hello there.", "custom:1", "en", pack=PackRef(pack.digest))
    with pytest.raises(PackMissing):
        next(engine.synthesize(asked))
    spoken = [
        np.concatenate([chunk.pcm for chunk in engine.synthesize(request)])
        for request in (replace(asked, pack=pack), asked)
    ]
    assert len(spoken[0]) and np.array_equal(spoken[0], spoken[1])
    if info.engine == "kokoro":
        own = replace(asked, voice="af_heart", pack=None)
        plain = np.concatenate([chunk.pcm for chunk in engine.synthesize(own)])
        level = np.sqrt(np.square(spoken[0]).mean() / np.square(plain).mean())
        assert level == pytest.approx(0.5, abs=0.05)
