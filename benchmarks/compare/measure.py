"""What a model does on this machine: measured with its engine alone, in a process of its own.

Each function runs through `apart`. Figures are by the names in `report.COLUMNS`.
"""

import asyncio
import json
import re
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any, ParamSpec, TypeVar

import numpy as np
from jsonschema import Draft202012Validator, ValidationError  # type: ignore[import-untyped]
from pydantic import Field

from benchmarks.harness.chat import question, timed
from configs.load import load_yaml
from configs.schema.base import StrictModel
from configs.schema.transcription import load_profiles
from configs.schema.voices import VoicesConfig
from configs.settings import weights_dir
from models.audio import AudioChunk, Pcm, resample
from models.base import ModelInfo
from models.errors import UnknownVoice
from models.llm.base import ChatEngine
from models.quality.base import QUALITY_SAMPLE_RATE
from models.registry import CHAT, STT, TTS, VAD, load, load_model
from models.stt.base import STT_SAMPLE_RATE, STTEngine, TranscriptionRequest
from models.stt.options import RecognitionOptions
from models.tts.base import SynthesisRequest
from models.weights.store import WeightStore
from pipelines.audio.decode.decoder import AudioDecoder
from pipelines.audio.encode.encoder import encode
from pipelines.stt.file import TranscriptionPipeline
from pipelines.voices.fitting.trials import (
    SpeechRating,
    load_speech_raters,
    mean_rating,
    word_errors,
)
from tests.local_ports import LocalSTTModel

P = ParamSpec("P")
T = TypeVar("T")
Figures = dict[str, float | None]

STORY = "Write a story about {} that finds its way home."
HEROES = ("a lighthouse keeper", "a young fox", "an old clock")
STORY_TOKENS, FORM_TOKENS, ANSWER_TOKENS = 128, 400, 60


class Form(StrictModel):
    """A request for JSON that obeys a schema."""

    ask: str
    json_schema: dict[str, Any]


class Question(StrictModel):
    """A question, and a regular expression that its right answers match, in any case."""

    ask: str
    answer: str


class Examination(StrictModel):
    """What chat models are asked."""

    forms: tuple[Form, ...] = Field(min_length=1)
    questions: tuple[Question, ...] = Field(min_length=1)


def apart(work: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
    """The result of `work` in a process of its own. Raises what it raises, and RuntimeError when
    the process ends, as for want of memory."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(work, *arguments, **options).result()


def measure_speech(
    name: str, language: str, voice: str | None, texts: Sequence[str]
) -> tuple[Figures, list[Pcm]]:
    """The figures, and the speech of each text at QUALITY_SAMPLE_RATE. Raises EngineError, such as
    UnknownVoice where no voice speaks the language."""
    began = time.perf_counter()
    engine, info = load_model(TTS, name, WeightStore(weights_dir()))
    load_s = time.perf_counter() - began
    key = voice or _voice_of(info, language)
    for _ in engine.warm_up():
        pass
    sounds, firsts, spent = list[Pcm](), list[float](), 0.0
    for text in texts:
        pieces, began = list[Pcm](), time.perf_counter()
        for chunk in engine.synthesize(SynthesisRequest(text, key, language)):
            if len(chunk.pcm) and not pieces:
                firsts.append(time.perf_counter() - began)
            pieces += [chunk.pcm] if len(chunk.pcm) else []
        spent += time.perf_counter() - began
        pcm = np.concatenate([np.zeros(0, np.float32), *pieces])
        sounds.append(resample(pcm, engine.capabilities.sample_rate, QUALITY_SAMPLE_RATE))
    seconds = sum(map(len, sounds)) / QUALITY_SAMPLE_RATE
    first_ms = 1000 * median(firsts) if firsts else None
    figures = {"first": first_ms, "speed": seconds / spent, "load": load_s}
    return {**figures, "memory": _memory_mib()}, sounds


def _voice_of(info: ModelInfo, language: str) -> str:
    chosen = load_yaml(VoicesConfig, "voices").defaults.get(language)
    speaking = [v for v in info.voices if language in (v.language, *info.languages)]
    speaking.sort(key=lambda v: (v.language != language, v.key != (chosen and chosen.key)))
    if not speaking:
        raise UnknownVoice(f"no voice of {info.id} speaks {language!r}")
    return speaking[0].key


def judge_speech(texts: Sequence[str], sounds: Sequence[Pcm], language: str) -> Figures:
    """Word errors by the recogniser, and the mean opinion score. Raises EngineError."""
    raters = load_speech_raters()
    ratings = [
        raters.rate(text, language, pcm)
        if len(pcm)
        else SpeechRating(*word_errors(text, "", language))
        for text, pcm in zip(texts, sounds, strict=True)
    ]
    wrong, quality = mean_rating(ratings)
    return {"wer": wrong and 100 * wrong, "quality": quality}


def write_clips(
    folder: Path, texts: Sequence[str], sounds: Sequence[Pcm]
) -> list[tuple[Path, str]]:
    """Writes a WAV file of each sound; returns them with their texts."""
    paths = [folder / f"{number}.wav" for number, _ in enumerate(sounds)]
    for path, pcm in zip(paths, sounds, strict=True):
        path.write_bytes(encode(AudioChunk(pcm, QUALITY_SAMPLE_RATE), "wav").data)
    return [*zip(paths, texts, strict=True)]


def measure_recognition(name: str, language: str, clips: Sequence[tuple[Path, str]]) -> Figures:
    """Figures for recordings that have transcripts, through the pipeline of files.

    Raises EngineError, or PipelineError that a file causes.
    """
    began = time.perf_counter()
    engine, info = load_model(STT, name, WeightStore(weights_dir()))
    load_s = time.perf_counter() - began
    figures = asyncio.run(_recognise(engine, info, language, clips))
    return figures | {"load": load_s, "memory": _memory_mib()}


async def _recognise(
    engine: STTEngine, info: ModelInfo, language: str, clips: Sequence[tuple[Path, str]]
) -> Figures:
    vad = load(VAD, "vad/silero", WeightStore(weights_dir()))
    words = errors = 0
    seconds = spent = 0.0
    async with AudioDecoder() as decoder:
        transcriber = LocalSTTModel(engine, info)
        pipeline = TranscriptionPipeline(transcriber, decoder, vad, load_profiles())
        engine.transcribe([TranscriptionRequest(np.zeros(STT_SAMPLE_RATE, np.float32), language)])
        for path, text in clips:
            recording = await pipeline.open(path, RecognitionOptions(language=language))
            began = time.perf_counter()
            transcript = await pipeline.transcribe(recording)
            spent += time.perf_counter() - began
            seconds += recording.duration_s
            counts = word_errors(text, transcript.text, language)
            words += counts[0]
            errors += counts[1]
    return {"wer": 100 * errors / words if words else None, "speed": seconds / spent}


def measure_chat(name: str, examination: Examination) -> Figures:
    """The shares of valid forms and of right answers, and the speed. Raises EngineError."""
    began = time.perf_counter()
    engine, _ = load_model(CHAT, name, WeightStore(weights_dir()))
    load_s = time.perf_counter() - began
    figures = asyncio.run(_examine(engine, examination))
    return figures | {"load": load_s, "memory": _memory_mib()}


async def _examine(engine: ChatEngine, examination: Examination) -> Figures:
    await timed(engine.generate, question("Hello.", 4))  # warms up
    firsts_ms = []
    rates = []
    for hero in HEROES:  # different ones, as prompts are cached
        story = await timed(engine.generate, question(STORY.format(hero), STORY_TOKENS))
        firsts_ms.append(1000 * story.first_s)
        rates += [story.tokens_per_s] if story.tokens > 1 and story.tokens_per_s else []
    valid = 0
    for form in examination.forms:
        shape = {"name": "form", "schema": form.json_schema}
        wanted = {"type": "json_schema", "json_schema": shape}
        request = question(form.ask, FORM_TOKENS, response_format=wanted)
        valid += obeys((await timed(engine.generate, request)).answer.text, form.json_schema)
    right = 0
    for item in examination.questions:
        result = await timed(engine.generate, question(item.ask, ANSWER_TOKENS))
        right += re.search(item.answer, result.answer.text, re.IGNORECASE) is not None
    return {
        "right": 100 * right / len(examination.questions),
        "valid": 100 * valid / len(examination.forms),
        "first": median(firsts_ms),
        "rate": median(rates) if rates else None,
    }


def obeys(text: str, schema: Any) -> bool:
    """Whether a text is JSON of that schema."""
    try:
        Draft202012Validator(schema).validate(json.loads(text))
    except (ValueError, ValidationError):
        return False
    return True


def _memory_mib() -> float | None:
    """The most memory that this process has held, without a GPU's; None where there is no /proc.

    `getrusage` would count the process that started this one.
    """
    status = Path("/proc/self/status")
    line = re.search(r"VmHWM:\s+(\d+)", status.read_text()) if status.exists() else None
    return int(line[1]) / 1024 if line else None
