"""Lack of memory and failed swaps in replicas with the engines of the GPU profile: with random
weights, and with PyTorch's own errors, which the networks of these tests raise."""

import asyncio
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from configs.load import load_yaml
from configs.schema.base import StrictModel
from configs.schema.models.stt import TransformersWhisperConfig
from configs.schema.models.tts import CsmConfig
from deployments.replicas import model as replica_module
from deployments.replicas import scheduling
from deployments.replicas.chat import ChatDeployment
from deployments.replicas.stt import STTDeployment
from deployments.replicas.tts import TTSDeployment
from models.errors import OutOfMemory
from models.llm.base import GenerationRequest
from models.stt.base import STT_SAMPLE_RATE, Transcript, TranscriptionRequest
from models.tts.base import PackRef, SynthesisRequest
from models.tts.voice_pack import pack_digest
from models.tts.voice_prompt import PROMPT_SAMPLE_RATE, VoicePrompt, write_prompt
from telemetry import metrics
from tests.engines import ECHO
from tests.models.weights.one_folder import OneFolder

LIBRARIES = "the libraries of the GPU profile are not installed; `make test-gpu` runs these tests"
pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch", reason=LIBRARIES)
pytest.importorskip("transformers", reason=LIBRARIES)
pytest.importorskip("accelerate", reason=LIBRARIES)
pytest.importorskip("llguidance", reason=LIBRARIES)
pytest.importorskip("torchaudio", reason=LIBRARIES, exc_type=ImportError)

from models.llm.transformers import batch  # noqa: E402 they import the libraries
from tests.models.llm.transformers.tiny_chat import (  # noqa: E402
    ask,
    make_tiny_chat,
    tiny_chat_config,
)
from tests.models.stt.whisper_transformers.tiny_whisper import make_tiny_whisper  # noqa: E402
from tests.models.tts.csm.tiny_csm import make_tiny_csm  # noqa: E402

FULL = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.1 GiB."
TOKENS, POISON = 3, "§"
NOISE = np.random.default_rng(0).normal(0, 0.1, (4, STT_SAMPLE_RATE)).astype(np.float32)


def configuration(folder: Path, config: StrictModel) -> dict[str, str]:
    """The user_config of a replica whose model is in `folder`."""
    file = folder / "model.yaml"
    file.write_text(yaml.safe_dump(config.model_dump(mode="json", exclude_none=True)))
    return {"model": str(file)}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(replica_module, "WeightStore", lambda _: OneFolder(tmp_path))
    threads = torch.get_num_threads()
    yield tmp_path
    torch.set_num_threads(threads)


async def text_of(replica: ChatDeployment, request: GenerationRequest) -> str:
    return "".join([delta.text async for delta in replica.generate(request)])


async def test_a_chat_batch_without_memory_is_repeated_in_parts(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_tiny_chat(folder)
    replica = ChatDeployment()
    await replica.reconfigure(configuration(folder, tiny_chat_config()))
    greedy = [ask(f"Hello {at}", temperature=0.0, max_tokens=12) for at in range(2)]
    seeded = [ask(f"Hello {at}", temperature=1.0, seed=at, max_tokens=12) for at in range(2)]
    requests = [*greedy, *seeded]
    alone = [await text_of(replica, request) for request in requests]
    engine: Any = replica.engine()
    network, processor = engine._batch._model, engine._batch._manager.batch_processor
    forward, refused = network.forward, 0
    poison = engine._writer.tokenizer(POISON)["input_ids"][0]

    def in_little_memory(**given: Any) -> Any:
        nonlocal refused
        if given["input_ids"].shape[1] > TOKENS or (given["input_ids"] == poison).any():
            refused += 1
            raise torch.OutOfMemoryError(FULL)
        return forward(**given)

    monkeypatch.setattr(network, "forward", in_little_memory)
    work = [text_of(replica, request) for request in [*requests, ask(f"{POISON} is too much")]]
    *answers, failure = await asyncio.gather(*work, return_exceptions=True)
    assert answers == alone  # also the seeded ones, whose numbers are drawn again
    assert isinstance(failure, OutOfMemory) and failure.retryable
    assert refused > 5 and replica._trial is not None
    await replica._trial
    assert 0 < processor.max_batch_tokens <= TOKENS and metrics.batch_limit._value.get()
    monkeypatch.undo()
    assert await text_of(replica, requests[0]) == alone[0]
    await replica.check_health()
    engine.close()


async def test_a_batch_of_recognition_without_memory_is_decoded_in_parts(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduling, "BATCH_S", 1000.0)  # a batch also on a slow machine
    make_tiny_whisper(folder)
    shipped = load_yaml(TransformersWhisperConfig, "stt/whisper_turbo")
    rules = {"retry_logprob": -50.0, "compression_ratio_threshold": 99.0}
    update = {"device": "cpu", "dtype": "float32", **rules}
    replica = STTDeployment()
    await replica.reconfigure(configuration(folder, shipped.model_copy(update=update)))
    engine: Any = replica.engine()
    encoder = engine._model._network.model.encoder
    forward = encoder.forward
    refused = 0

    def in_little_memory(features: Any) -> Any:
        nonlocal refused
        if len(features) > 2:
            refused += 1
            raise torch.OutOfMemoryError(FULL)
        return forward(features)

    encoder.forward = in_little_memory
    requests = [TranscriptionRequest(pcm, "en") for pcm in NOISE]
    transcripts = await asyncio.gather(*map(replica.transcribe, requests))
    assert refused and all(isinstance(transcript, Transcript) for transcript in transcripts)
    assert 0 < replica._limit.of(16) <= 2
    await replica.check_health()
    engine.close()


async def test_a_cloned_sentence_without_memory_fails_alone(folder: Path) -> None:
    make_tiny_csm(folder)
    shipped = load_yaml(CsmConfig, "tts/csm")
    update = {"device": "cpu", "dtype": "float32"}
    replica = TTSDeployment()
    await replica.reconfigure(configuration(folder, shipped.model_copy(update=update)))
    engine: Any = replica.engine()
    backbone = engine._model._network.backbone_model
    forward = backbone.forward

    def in_little_memory(**given: Any) -> Any:
        if given.get("inputs_embeds") is not None and given["inputs_embeds"].shape[1] > 100:
            raise torch.OutOfMemoryError(FULL)
        return forward(**given)

    backbone.forward = in_little_memory
    noise = np.random.default_rng(0).normal(0, 0.1, PROMPT_SAMPLE_RATE).astype(np.float32)
    data = write_prompt(VoicePrompt(noise, "Hello.", "en"))
    pack = PackRef(pack_digest(data), data)

    async def seconds(text: str) -> float:
        request = SynthesisRequest(text, "custom:1", "en", pack=pack)
        return sum([chunk.duration_s async for chunk in replica.synthesize(request)])

    failure, spoken_s = await asyncio.gather(
        seconds("too long " * 12), seconds("Hi."), return_exceptions=True
    )
    assert isinstance(failure, OutOfMemory)
    assert isinstance(spoken_s, float) and spoken_s > 0
    await replica.check_health()
    engine.close()


async def test_a_swap_without_memory_for_the_cache_frees_the_network(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_tiny_chat(folder)
    replica = ChatDeployment()
    await replica.reconfigure({"model": ECHO})
    networks: list[weakref.ref[Any]] = []

    def begin(self: Any, *_: object) -> Any:
        networks.append(weakref.ref(self._model))
        raise torch.OutOfMemoryError(FULL)

    monkeypatch.setattr(batch.StreamBatch, "_begin", begin)
    monkeypatch.setattr(replica_module.logger, "error", lambda *_, **__: None)  # pytest keeps it
    wanted = configuration(folder, tiny_chat_config())
    for user_config in (wanted, {"model": ECHO, "canary": {**wanted, "share": 0.5}}):
        await replica.reconfigure(user_config)
        assert (await replica.describe()).id == "svc/echo"
        assert networks.pop()() is None, "the network still takes memory"
