"""Pocket TTS with random weights: how synthesis behaves, not the quality of the speech. What it has
in common with CSM is tested there."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from configs.load import load_yaml
from configs.schema.models.tts import PocketConfig
from models.audio import Pcm
from models.errors import (
    ContextLengthExceeded,
    EngineLost,
    UnknownVoice,
    UnsupportedLanguage,
    WeightsCorrupt,
)
from models.registry import TTS, load_model
from models.tts.base import PackRef, SynthesisRequest
from models.tts.voice_pack import pack_digest
from models.tts.voice_prompt import PROMPT_SAMPLE_RATE, VoicePrompt, write_prompt
from tests.models.tts.loaded import speech
from tests.models.weights.one_folder import OneFolder

LIBRARIES = "the libraries of the GPU profile are not installed; `make test-gpu` runs these tests"
pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch", reason=LIBRARIES)
pytest.importorskip("transformers", reason=LIBRARIES)

from models.tts.pocket import checkpoint, network  # noqa: E402 they import the libraries
from models.tts.pocket.engine import PocketEngine  # noqa: E402
from tests.models.tts.pocket.tiny_pocket import PIECES, VOICES, make_tiny_pocket  # noqa: E402

TEXT = "How are you today, my friend?"


def prompt(seed: int = 0, seconds: float = 2.0) -> VoicePrompt:
    noise = np.random.default_rng(seed).standard_normal(round(seconds * PROMPT_SAMPLE_RATE))
    return VoicePrompt((0.1 * noise).astype(np.float32), "", "en")


def cloned(text: str = TEXT, seed: int = 0) -> SynthesisRequest:
    data = write_prompt(prompt(seed))
    return SynthesisRequest(text, "custom:1", "en", pack=PackRef(pack_digest(data), data))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pocket")
    make_tiny_pocket(path)
    return path


@pytest.fixture(scope="module")
def config() -> PocketConfig:
    # With more threads rounding depends on the load of the machine.
    shipped = load_yaml(PocketConfig, "tts/pocket")
    return shipped.model_copy(update={"device": "cpu", "threads": 1})


@pytest.fixture(scope="module")
def engine(config: PocketConfig, folder: Path) -> Iterator[PocketEngine]:
    threads = torch.get_num_threads()
    made = PocketEngine(config, OneFolder(folder))
    yield made
    made.close()
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def model(engine: PocketEngine) -> network.PocketModel:
    return engine._model


def latents(model: network.PocketModel, voice: Any, **options: Any) -> Any:
    drawn: dict[str, Any] = {"temperature": 0.7, "seed": 1}
    return torch.cat(list(model.speak(voice, TEXT, **(drawn | options))), dim=1)


def test_latents_match_the_transformers_library(model: network.PocketModel) -> None:
    """Compares with `generate` without noise, which puts the audio into the prompt by itself."""
    speech, codec = model._network
    heard = model._features(prompt().pcm, sampling_rate=24_000)["input_values"]
    first = len(PIECES)
    said = model._tokenizer.encode(f" {TEXT}").ids
    with torch.inference_mode():
        voice = codec.encode(heard).latents
        ids = [first + 2, *[first] * voice.shape[1], *said, first + 3]
        expected = speech.generate(
            input_ids=torch.tensor([ids]),
            attention_mask=torch.ones(1, len(ids), dtype=torch.long),
            audio_prompt_latents=voice,
            do_sample=False,
            frames_after_eos=torch.tensor([network.FRAMES_AFTER]),
        )[0]
    ours = latents(model, model.prepare(prompt()), temperature=0.0)
    assert ours.shape[1] == len(expected)
    assert torch.allclose(ours[0], expected, atol=1e-4)


def test_audio_decoded_in_pieces_equals_audio_decoded_whole(model: network.PocketModel) -> None:
    codec = model._network[1]
    frames = list(torch.randn(60, 1, 1, codec.config.latent_dim).unbind())  # more than its window
    with torch.inference_mode():
        whole = codec.decode(torch.cat(frames, dim=1)).audio_values[0, 0].numpy()
    decoder, pieces = model.decoder(), list[Pcm]()
    for start, end in ((0, 1), (1, 2), (2, 9), (9, 40), (40, 60)):
        pieces.append(decoder.sound(frames[:end], start))
    made = np.concatenate(pieces)
    faded = round(network.FADE_S * model.sample_rate)
    assert made[0] == 0 and len(made) == len(whole) == 60 * 1920
    assert np.allclose(made[faded:], whole[faded:], atol=1e-4 * np.abs(whole).max())


def test_the_frames_after_the_end_of_speech_are_spoken(
    model: network.PocketModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    voice = model.prepare(prompt())
    monkeypatch.setattr(network, "END_LOGIT", -1e9)  # each frame would end it
    least = network.SURELY_FRAMES + 1
    assert latents(model, voice).shape[1] == least + network.FRAMES_AFTER
    short = list(model.speak(voice, "Yes, I am.", temperature=0.7, seed=1))
    assert len(short) == least + network.FRAMES_AFTER_FEW
    monkeypatch.setattr(network, "END_LOGIT", 1e9)  # none does
    tokens = len(model._tokenizer.encode(f" {TEXT}").ids)
    assert latents(model, voice).shape[1] == pytest.approx((tokens / 3 + 2) * 12.5, abs=1)


def test_a_voice_of_kyutai_has_the_keys_that_this_library_turns(
    model: network.PocketModel, folder: Path
) -> None:
    keys, values = checkpoint.read_voice(folder / "alba.safetensors")[1]
    assert keys.shape == values.shape == (1, 2, 10, 64)
    name = "transformer.layers.1.self_attn/cache"
    cache = checkpoint._tensors(folder / "alba.safetensors")[name]
    assert torch.equal(keys[0, 1, 3, 32:], cache[0, 0, 3, 1, 1::2])
    assert torch.equal(values[0, 1], cache[1, 0, :10, 1])


def test_own_voices_and_recordings_without_a_transcript_speak_differently_each(
    engine: PocketEngine,
) -> None:
    requests = [SynthesisRequest(TEXT, name, "en") for name in VOICES[:2]]
    requests += [cloned(), cloned(seed=1), cloned("How are they today, my friend?")]
    spoken = [speech(engine, request) for request in requests]
    torch.manual_seed(99)  # other requests draw from the global generator
    with ThreadPoolExecutor(2) as threads:
        again = list(threads.map(lambda request: speech(engine, request), requests))
    assert all(map(np.array_equal, spoken, again))
    assert len({pcm.tobytes() for pcm in spoken}) == len(spoken)


def test_the_shipped_configuration_loads_and_declares_its_capabilities(folder: Path) -> None:
    engine, info = load_model(TTS, "tts/pocket", OneFolder(folder), threads=1)
    assert (info.engine, info.tier, info.languages) == ("pocket", "quality", ("en",))
    assert info.takes_voice_packs and info.pack == "recording" and info.sample_rate == 24_000
    assert {voice.key for voice in info.voices} == set(VOICES)
    chunks = list(engine.synthesize(cloned()))
    assert len([chunk for chunk in chunks if len(chunk.pcm)]) > 1


def test_unsupported_requests_are_refused_before_any_audio(engine: PocketEngine) -> None:
    for request, error in (
        (SynthesisRequest(TEXT, "nemo", "en"), UnknownVoice),
        (SynthesisRequest(TEXT, "alba", "de"), UnsupportedLanguage),
        (replace(cloned(), language="de"), UnsupportedLanguage),
        (cloned("word " * 2000), ContextLengthExceeded),
    ):
        with pytest.raises(error):
            next(engine.synthesize(request))


def test_no_text_is_read_as_a_special_token(model: network.PocketModel) -> None:
    for text in ("</s>", "<unk>"):
        assert model._tokenizer.encode(text).ids == [PIECES.index(each) for each in text]
    assert network.as_sentence("  it’s\n fine ") == "It's fine."
    assert network.as_sentence("Is it?") == "Is it?"


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.model", "anna.safetensors"])
def test_another_file_in_place_of_a_weight_is_refused(
    name: str, config: PocketConfig, tmp_path: Path
) -> None:
    make_tiny_pocket(tmp_path)
    other = "alba.safetensors" if name == "model.safetensors" else "model.safetensors"
    for wrong in (b"", b"\xff" * 64, (tmp_path / other).read_bytes()):
        (tmp_path / name).write_bytes(wrong)
        with pytest.raises(WeightsCorrupt, match=name.partition(".")[0]):
            PocketEngine(config, OneFolder(tmp_path))


def test_a_closed_engine_ends_its_requests(config: PocketConfig, folder: Path) -> None:
    made = PocketEngine(config, OneFolder(folder))
    running = made.synthesize(cloned())
    next(running)
    made.close()
    for request in (running, made.synthesize(cloned())):
        with pytest.raises(EngineLost):
            list(request)
