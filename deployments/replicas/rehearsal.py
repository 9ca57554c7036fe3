"""Rehearses a model that replaces another, before it takes traffic.

A voice speaks a sentence that the deployed recogniser transcribes, a recogniser transcribes a
sentence of the deployed voice, and a chat model answers. The result is compared with that of the
model to be replaced. If no such recogniser or voice is up, the model only has to produce some
output.
"""

import asyncio
import logging
import re
from collections.abc import Iterable
from contextlib import aclosing, suppress
from typing import TypeVar

import numpy as np
from rapidfuzz.fuzz import ratio
from ray import serve
from ray.serve.exceptions import RayServeException

from configs.load import load_yaml
from configs.schema.voices import ConsentConfig
from deployments.gateway.handles import (
    Deployed,
    ModelHandle,
    ModelIndexHandle,
    STTModelHandle,
    TTSModelHandle,
)
from deployments.replicas.canary import Loaded
from models.audio import AudioChunk, Pcm, resample
from models.base import ModelInfo
from models.embedding.base import EmbeddingEngine, EmbeddingRequest
from models.errors import EngineError, ModelNotLoaded
from models.llm.base import ChatEngine, ChatMessage, GenerationRequest, SamplingOptions
from models.stt.base import STT_SAMPLE_RATE, STTEngine, Transcript, TranscriptionRequest
from models.tts.base import SynthesisRequest, TTSEngine

logger = logging.getLogger(__name__)

H = TypeVar("H", bound=ModelHandle)

REHEARSAL_TIMEOUT_S = 120.0
LEAST_S, MOST_S = 0.3, 60.0  # seconds of audio for a sentence
SILENCE = 1e-3  # root mean square
KEPT = 0.5  # minimum share of the previous model's similarity
LEAST_LIKENESS = 0.3  # minimum similarity of the previous model for a comparison
FIND_S = 5.0
WORDS = 4


async def rehearse_speech(new: Loaded[TTSEngine], old: Loaded[TTSEngine]) -> None:
    """Let the model speak a sentence, which the recogniser transcribes. Raises ModelNotLoaded or
    EngineError."""
    if (request := sentence_of(new[1])) is None:  # the model has no voice of its own
        return
    sound = await asyncio.to_thread(_joined, new[0].synthesize(request))
    seconds = len(sound) / STT_SAMPLE_RATE
    if not LEAST_S <= seconds <= MOST_S:
        raise ModelNotLoaded(f"{new[1].id} speaks {seconds:.1f} s for {request.text!r}")
    if float(np.sqrt(np.mean(sound**2))) < SILENCE:
        raise ModelNotLoaded(f"{new[1].id} is silent for {request.text!r}")
    before = sentence_of(old[1], request.language)
    if before is None or (recogniser := await _beside("stt", STTModelHandle)) is None:
        return
    transcripts = []
    for pcm in (sound, await asyncio.to_thread(_joined, old[0].synthesize(before))):
        wanted = TranscriptionRequest(pcm[: 30 * STT_SAMPLE_RATE], request.language)
        transcripts.append(await recogniser.transcribe(wanted))
    _compare(new[1], "was heard as", request.text, *transcripts)


async def rehearse_recognition(new: Loaded[STTEngine], old: Loaded[STTEngine]) -> None:
    """Let the model transcribe a sentence of the deployed voice. Raises ModelNotLoaded or
    EngineError."""
    voice = await _beside("tts", TTSModelHandle)
    info = None if voice is None else await voice.describe()
    common = [code for code in new[1].languages if code in old[1].languages]
    request = (
        next(filter(None, (sentence_of(info, code) for code in common)), None) if info else None
    )
    sound = np.zeros(STT_SAMPLE_RATE, np.float32)
    if voice is not None and request is not None:
        async with aclosing(voice.synthesize(request)) as chunks:
            sound = _joined([chunk async for chunk in chunks])[: 30 * STT_SAMPLE_RATE]
    wanted = [TranscriptionRequest(sound, request.language if request else None)]
    transcripts = [
        (await asyncio.to_thread(engine.transcribe, wanted))[0] for engine, _ in (new, old)
    ]
    if request is not None:
        _compare(new[1], "hears", request.text, *transcripts)


async def rehearse_chat(new: Loaded[ChatEngine], _old: Loaded[ChatEngine]) -> None:
    """Let the model answer a greeting. Raises ModelNotLoaded or EngineError."""
    asked = GenerationRequest((ChatMessage("user", "Hello!"),), SamplingOptions(max_tokens=16))
    answered = finished = False
    async with aclosing(new[0].generate(asked)) as deltas:
        async for delta in deltas:
            answered = answered or delta.has_content
            finished = finished or delta.finish_reason is not None
    if not (answered and finished):
        raise ModelNotLoaded(f"{new[1].id} gives no answer to a greeting")


async def rehearse_embedding(new: Loaded[EmbeddingEngine], _old: Loaded[EmbeddingEngine]) -> None:
    """Let the model embed two sentences. Raises ModelNotLoaded or EngineError."""
    request = EmbeddingRequest(("Hello!", "The river runs to the sea."))
    batches = await asyncio.to_thread(list, new[0].embed(request))
    vectors = np.concatenate([batch.vectors for batch in batches])
    if not np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-3):
        raise ModelNotLoaded(f"{new[1].id} gives no embeddings of length 1")


def _compare(model: ModelInfo, verb: str, said: str, *transcripts: Transcript) -> None:
    new, old = (
        " ".join(segment.text for segment in transcript.segments) for transcript in transcripts
    )
    plain = [" ".join(re.findall(r"\w+", text.casefold())) for text in (said, new, old)]
    like, needed = (ratio(plain[0], text) / 100 for text in plain[1:])
    logger.info("rehearsed", extra={"model": model.id, "likeness": like, "before": needed})
    if needed >= LEAST_LIKENESS and like < KEPT * needed:
        raise ModelNotLoaded(
            f"{model.id} {verb} {new!r} instead of {said!r}; the previous model: {old!r}"
        )


def sentence_of(info: ModelInfo, language: str | None = None) -> SynthesisRequest | None:
    """Return some words for the model's first voice (of the language), or None if it has no
    voice."""
    sentences = load_yaml(ConsentConfig, "consent").sentences
    for voice in info.voices:
        if voice.language in sentences and language in (None, voice.language):
            text = ", ".join(sentences[voice.language].words[:WORDS]).capitalize() + "."
            return SynthesisRequest(text, voice.key, voice.language)
    return None


def _joined(pieces: Iterable[AudioChunk]) -> Pcm:
    """Join the pieces to float32 [n] at STT_SAMPLE_RATE."""
    if not (chunks := list(pieces)):
        return np.zeros(0, np.float32)
    whole = np.concatenate([chunk.pcm for chunk in chunks])
    return resample(whole, chunks[0].sample_rate, STT_SAMPLE_RATE)


async def _beside(kind: str, port: type[H]) -> H | None:
    """Return the first model of that kind of this application, if it is up."""
    with suppress(EngineError, RayServeException, TimeoutError):
        app = serve.get_replica_context().app_name
        deployed: Deployed = await ModelIndexHandle(app).call("deployed", timeout_s=FIND_S)
        for name in deployed.models.by_kind[kind]:
            model = port(name, await asyncio.to_thread(serve.get_deployment_handle, name, app))
            model.learn(deployed.infos.get(name))
            if model.state() == "ready":
                return model
    logger.info("rehearsed_alone", extra={"kind": kind})
    return None
