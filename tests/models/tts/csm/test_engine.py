"""CSM with random weights: how synthesis behaves, not the quality of the speech."""

import gc
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np
import pytest

from configs.load import load_yaml
from configs.schema.models.tts import CsmConfig
from models.audio import AudioChunk
from models.errors import (
    ContextLengthExceeded,
    EngineLost,
    PackMissing,
    UnknownVoice,
    UnsupportedLanguage,
    WeightsCorrupt,
)
from models.memory import LoadedNetwork, still_loaded
from models.registry import TTS, load_model
from models.tts import trimming
from models.tts.base import PackRef, SynthesisRequest
from models.tts.voice_pack import STYLE_SHAPE, VoicePack, pack_digest, write_pack
from models.tts.voice_prompt import PROMPT_SAMPLE_RATE, VoicePrompt, write_prompt
from tests.models.tts.loaded import speech
from tests.models.weights.one_folder import OneFolder

LIBRARIES = "the libraries of the GPU profile are not installed; `make test-gpu` runs these tests"
pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch", reason=LIBRARIES)
pytest.importorskip("transformers", reason=LIBRARIES)
pytest.importorskip("accelerate", reason=LIBRARIES)

from models.tts.csm import engine as csm_engine  # noqa: E402 they import the libraries
from models.tts.csm import network as csm_network  # noqa: E402 they import the libraries
from tests.models.tts.csm.tiny_csm import CODES, CONTEXT, SPECIAL, make_tiny_csm  # noqa: E402

TEXT = "How are you today?"
GREEDY: dict[str, Any] = {"temperature": 1.0, "top_k": 1, "seed": 0}


def prompt(seed: int = 0, seconds: float = 2.0) -> VoicePrompt:
    noise = np.random.default_rng(seed).standard_normal(round(seconds * PROMPT_SAMPLE_RATE))
    return VoicePrompt((0.1 * noise).astype(np.float32), "Hello there, my friend.", "en")


def pack(data: bytes) -> PackRef:
    return PackRef(pack_digest(data), data)


def asked(text: str = TEXT, seed: int = 0) -> SynthesisRequest:
    return SynthesisRequest(text, "custom:1", "en", pack=pack(write_prompt(prompt(seed))))


@pytest.fixture(autouse=True)
def one_second_of_speech(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits sentences to about a second: random weights hardly ever end one."""
    monkeypatch.setattr(csm_engine, "SLOWEST_S", 0.04)
    monkeypatch.setattr(csm_engine, "LONGEST_PAUSE_S", 0.4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("csm")
    make_tiny_csm(path)
    return path


@pytest.fixture(scope="module")
def config() -> CsmConfig:
    shipped = load_yaml(CsmConfig, "tts/csm")
    return shipped.model_copy(update={"device": "cpu", "dtype": "float32"})


@pytest.fixture(scope="module")
def engine(config: CsmConfig, folder: Path) -> Iterator[csm_engine.CsmEngine]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # with more, rounding depends on the load of the machine
    made = csm_engine.CsmEngine(config, OneFolder(folder))
    yield made
    made.close()
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def model(folder: Path) -> csm_network.CsmModel:
    return csm_network.CsmModel(folder, "cpu", "float32")


def test_the_engine_declares_where_it_computes(
    config: CsmConfig, folder: Path, model: csm_network.CsmModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs load models of the CPU again, for a lower priority, and share those of a GPU."""
    assert model.device == "cpu"
    monkeypatch.setattr(model, "device", "cuda")
    monkeypatch.setattr(csm_engine, "CsmModel", lambda *_: model)
    monkeypatch.setattr(csm_engine.CsmEngine, "close", lambda _: None)
    assert csm_engine.CsmEngine(config, OneFolder(folder)).capabilities.device == "cuda"


def test_greedy_codes_match_the_transformers_library(
    model: csm_network.CsmModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compares with `generate`, which inserts the audio into the prompt by itself."""
    network, tokenizer = model._network, model._tokenizer
    said = prompt()
    sound = torch.from_numpy(said.pcm).reshape(1, 1, -1)
    frames = network.codec_model.encode(sound).audio_codes.shape[2]

    def ids(text: str) -> list[int]:
        return [0, *tokenizer.encode(f"[0]{text}", add_special_tokens=False), 1]

    given = [*ids(said.transcript), *[2] * frames, 3, *ids(TEXT)]
    with torch.inference_mode():
        expected = network.generate(
            input_ids=torch.tensor([given]),
            attention_mask=torch.ones(1, len(given), dtype=torch.long),
            input_values=sound,
            input_values_cutoffs=torch.tensor([[sound.shape[2]]]),
            do_sample=False,
            depth_decoder_do_sample=False,
            max_new_tokens=12,
        )
    # The library also samples codes outside the codebook.
    monkeypatch.setattr(network.config.codec_config, "codebook_size", CODES + 3)
    monkeypatch.setattr(model, "_batch", model._new_batch(4))
    ours = list(model.speak(model.prepare(said), TEXT, most_frames=12, **GREEDY))
    assert torch.equal(torch.cat(ours, dim=1), expected)


def test_audio_decoded_in_pieces_equals_audio_decoded_whole(model: csm_network.CsmModel) -> None:
    frames = list(
        model.speak(model.prepare(prompt()), TEXT, most_frames=60, temperature=1, top_k=50, seed=1)
    )
    assert len(frames) > model._looks_back + 20  # more frames than the codec looks back
    whole = model.sound(frames, 0)
    assert len(whole) == len(frames) * 1920
    pieces = [model.sound(frames[: at + 5], at) for at in range(0, len(frames), 5)]
    assert np.allclose(np.concatenate(pieces), whole, atol=1e-4 * np.abs(whole).max())


def test_codes_outside_the_codebook_are_never_sampled(model: csm_network.CsmModel) -> None:
    hot: dict[str, Any] = {"temperature": 100.0, "top_k": 1000, "seed": 3}
    frames = list(model.speak(model.prepare(prompt()), TEXT, most_frames=40, **hot))
    assert int(torch.cat(frames).max()) < CODES


def test_codes_are_sampled_by_their_probabilities_at_the_temperature() -> None:
    logits, random = torch.tensor([[3.0, 2.0, 1.0, 0.0]]), torch.Generator("cpu").manual_seed(0)
    noise = csm_network.gumbel((20_000, 4), 1.5, 3, random)
    sampled = torch.cat([csm_network._chosen(logits.flip(1), row) for row in noise])
    shares = torch.bincount(sampled[:, 0], minlength=4) / len(sampled)
    expected = torch.tensor([0.0, *torch.softmax(logits[0, :3] / 1.5, dim=0).flip(0)])
    assert torch.allclose(shares, expected, atol=0.015)  # four standard errors
    assert shares[0] == 0


@pytest.mark.skipif(not torch.cuda.is_available(), reason="a CUDA graph needs a GPU")
def test_the_graph_of_a_gpu_gives_the_codes_of_direct_steps(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = csm_network.CsmModel(folder, "cuda", "float32")
    voices = [made.prepare(prompt(seed)) for seed in range(2)]
    drawn: dict[str, Any] = {"most_frames": 20, "temperature": 0.9, "top_k": 50, "seed": 5}

    def codes(voice: Any) -> Any:
        return torch.cat(list(made.speak(voice, TEXT, **drawn)), dim=1)

    with ThreadPoolExecutor(2) as threads:  # they share the graph
        captured = list(threads.map(codes, voices))
    monkeypatch.setattr(csm_network, "_captured", lambda step, _: step)
    monkeypatch.setattr(made, "_batch", made._new_batch(4))
    assert all(map(torch.equal, captured, map(codes, voices)))
    made.close()


def test_special_tokens_in_a_text_are_tokenised_as_plain_text(model: csm_network.CsmModel) -> None:
    marks = "".join(SPECIAL)
    with torch.inference_mode():
        read = model._text(marks)
    assert read.shape[1] == len(f"[0]{marks}") + 2  # the tokenizer reads characters


def test_the_end_frame_of_the_model_ends_the_speech(
    model: csm_network.CsmModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames = iter([torch.ones(1, 1, 4), torch.tensor([[[0, 0, 0, 5]]]), torch.ones(1, 1, 4)])
    monkeypatch.setattr(model._batch, "frame", lambda state, draw: next(frames).long())
    assert len(list(model.speak(model.prepare(prompt()), TEXT, most_frames=9, **GREEDY))) == 1


def test_audio_chunks_have_the_declared_rate_and_empty_steps_between_them(
    engine: csm_engine.CsmEngine,
) -> None:
    chunks = list(engine.synthesize(asked()))
    sounding = [chunk for chunk in chunks if len(chunk.pcm)]
    assert len(sounding) > 2 and len(chunks) > 2 * len(sounding)
    for chunk in chunks:
        assert isinstance(chunk, AudioChunk) and not chunk.words
        assert chunk.sample_rate == engine.capabilities.sample_rate == 24_000
        assert chunk.pcm.dtype == np.float32 and chunk.pcm.ndim == 1
        assert np.abs(chunk.pcm).max(initial=0.0) <= 1.0
    assert sum(chunk.duration_s for chunk in chunks) < 0.4 + 0.04 * len(TEXT) + 0.1


def test_equal_requests_give_equal_audio_and_another_voice_or_text_does_not(
    engine: csm_engine.CsmEngine,
) -> None:
    first = speech(engine, asked())
    torch.manual_seed(99)  # other requests draw from the global generator
    assert np.array_equal(first, speech(engine, asked()))
    for other in (asked(seed=1), asked("How are they today?")):
        assert not np.array_equal(first, speech(engine, other))


def test_sentences_in_one_step_have_the_frames_of_each_alone(
    model: csm_network.CsmModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five sentences of different lengths and ends in steps of four rows."""
    steps: list[int] = []
    step = csm_network._FrameBatch._step

    def counted(batch: Any, turns: list[Any]) -> Any:
        steps.append(len(turns))
        return step(batch, turns)

    monkeypatch.setattr(csm_network._FrameBatch, "_step", counted)
    monkeypatch.setattr(csm_network, "GATHER_S", 1.0)  # for a machine with other work
    texts = ["a", "Some words more than that.", "One, two.", TEXT, "And this is the last one."]

    def codes(number: int) -> Any:
        voice = model.prepare(prompt(number, 1.0 + number / 4))
        drawn: dict[str, Any] = {"temperature": 0.9, "top_k": 50, "seed": number}
        frames = model.speak(voice, texts[number], most_frames=8 + number, **drawn)
        return torch.cat(list(frames), dim=1)

    alone = [codes(number) for number in range(5)]
    assert set(steps) == {1}
    steps.clear()
    with ThreadPoolExecutor(5) as threads:
        together = list(threads.map(codes, range(5)))
    assert all(map(torch.equal, together, alone))
    assert max(steps) == 4 and 2 * len(steps) < sum(steps)


def test_concurrent_requests_do_not_mix_and_all_begin_at_once(engine: csm_engine.CsmEngine) -> None:
    requests = [asked(), *(asked(f"Something else {number}.", seed=1) for number in range(3))]
    alone = [speech(engine, request) for request in requests]
    assert engine.capabilities.max_concurrency == len(requests)
    begun = Barrier(len(requests), timeout=60)

    def together(request: SynthesisRequest) -> Any:
        chunks = engine.synthesize(request)
        first = next(chunks)
        begun.wait()  # broken if a sentence begins after the end of another
        return np.concatenate([first.pcm, *(chunk.pcm for chunk in chunks)])

    with ThreadPoolExecutor(len(requests)) as threads:
        assert all(map(np.array_equal, threads.map(together, requests), alone))


def test_an_error_in_a_step_reaches_each_of_its_sentences(
    engine: csm_engine.CsmEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = [engine.synthesize(asked(seed=seed)) for seed in range(2)]
    for chunks in running:
        next(chunks)
    monkeypatch.setattr(csm_network, "GATHER_S", 5.0)
    batch = engine._model._batch
    monkeypatch.setattr(batch, "_last", 2)
    monkeypatch.setattr(batch, "_run", lambda: torch.zeros(1) @ torch.zeros(2))
    with ThreadPoolExecutor(2) as threads:
        failed = [threads.submit(list, chunks) for chunks in running]
        assert all(isinstance(future.exception(), RuntimeError) for future in failed)
    monkeypatch.undo()
    assert len(speech(engine, asked()))


def test_the_shipped_configuration_loads_speaks_and_declares_its_capabilities(folder: Path) -> None:
    engine, info = load_model(TTS, "tts/csm", OneFolder(folder))
    assert (info.engine, info.tier, info.languages) == ("csm", "quality", ("en",))
    assert info.takes_voice_packs and info.voices == () and info.sample_rate == 24_000
    assert isinstance(engine, csm_engine.CsmEngine)
    dtypes = {weight.dtype for weight in engine._model._network.backbone_model.parameters()}
    assert dtypes == {torch.bfloat16}
    assert len(speech(engine, asked()))


def test_a_closed_generator_stops_within_a_step(
    engine: csm_engine.CsmEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = 0
    frame = still_loaded(engine._model._batch).frame

    def counted(*about: Any) -> Any:
        nonlocal steps
        steps += 1
        return frame(*about)

    monkeypatch.setattr(engine._model._batch, "frame", counted)
    generator = engine.synthesize(asked())
    for _ in range(5):
        next(generator)
    generator.close()
    assert steps == 5
    monkeypatch.undo()
    assert len(speech(engine, asked()))


def test_each_word_has_a_time_when_timings_are_requested(engine: csm_engine.CsmEngine) -> None:
    chunks = list(engine.synthesize(replace(asked(), timings=True)))
    *steps, spoken = chunks
    assert not any(len(step.pcm) for step in steps)
    words = [TEXT[word.text_start : word.text_end] for word in spoken.words]
    assert words == TEXT.split()
    assert spoken.words[-1].end_s == pytest.approx(spoken.duration_s)
    assert np.array_equal(spoken.pcm, speech(engine, asked()))


def test_text_without_words_gives_no_audio(engine: csm_engine.CsmEngine) -> None:
    for text in ("", " ", "?!"):
        assert not len(speech(engine, asked(text)))


def test_a_voice_pack_is_missing_until_it_is_sent_once(engine: csm_engine.CsmEngine) -> None:
    request = asked(seed=7)
    assert request.pack is not None
    known = replace(request, pack=PackRef(request.pack.digest))
    with pytest.raises(PackMissing):
        next(engine.synthesize(known))
    first = speech(engine, request)
    assert np.array_equal(first, speech(engine, known))


def test_unsupported_requests_are_refused_before_any_audio(engine: csm_engine.CsmEngine) -> None:
    with pytest.raises(UnknownVoice, match="unknown"):
        next(engine.synthesize(SynthesisRequest(TEXT, "unknown", "en")))
    with pytest.raises(UnsupportedLanguage, match="'de'"):
        next(engine.synthesize(replace(asked(), language="de")))
    with pytest.raises(ContextLengthExceeded):
        next(engine.synthesize(asked("word " * (2 * CONTEXT))))
    style = write_pack(VoicePack(np.zeros(STYLE_SHAPE, np.float32)))
    with pytest.raises(WeightsCorrupt, match="another kind of engine"):
        next(engine.synthesize(replace(asked(), pack=pack(style))))


def test_silence_around_the_speech_is_trimmed_and_pauses_are_kept() -> None:
    rate = 1000
    quiet, loud = np.zeros(300, np.float32), np.ones(100, np.float32)
    pieces = [quiet, quiet, loud, quiet, loud, quiet, quiet]
    made = np.concatenate(list(trimming.without_ends(iter(pieces), rate)))
    assert len(made) == 30 + 100 + 300 + 100 + 120
    assert (made[30:130] == 1).all() and (made[430:530] == 1).all() and made.sum() == 200


def test_a_frame_while_the_engine_is_being_closed_raises_engine_lost(
    config: CsmConfig, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closing = csm_engine.CsmEngine(config, OneFolder(folder))
    running = closing.synthesize(asked())
    next(running)
    with monkeypatch.context() as patch:
        patch.setattr(LoadedNetwork, "close", lambda _: None)  # not done yet
        closing.close()
    with pytest.raises(EngineLost):
        list(running)
    closing.close()


def test_a_closed_or_unreferenced_engine_frees_its_weights(config: CsmConfig, folder: Path) -> None:
    for forget in (False, True):
        made = csm_engine.CsmEngine(config, OneFolder(folder))
        network = weakref.ref(made._model._network)
        running = made.synthesize(asked())
        next(running)
        if forget:
            running.close()
            del running, made
        else:
            made.close()
            with pytest.raises(EngineLost):
                list(running)
            with pytest.raises(EngineLost):
                next(made.synthesize(asked()))
        assert network() is None
    gc.collect()
