"""What one core and one replica of each model carry: the engines alone, warm, on one and two cores.

Speech and transcription are measured in processes that are held to so many cores; the language
model has the threads of its configuration.
"""

import asyncio
import multiprocessing
import os
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np

from benchmarks.capacity.figures import Figures, on_cores
from benchmarks.service import resident_bytes
from benchmarks.tts.socket import SENTENCES
from configs.settings import weights_dir
from models.audio import Pcm
from models.llm.base import ChatMessage, GenerationRequest, SamplingOptions
from models.registry import CHAT, STT, TTS, load_model
from models.stt.base import STT_SAMPLE_RATE, TranscriptionRequest
from models.tts.base import SynthesisRequest
from models.weights.store import WeightStore

SPEECH = {
    "Fast": "tts/hibari",
    "Quality": "tts/kokoro",
    "Formant": "tts/espeak",
    "Vits": "tts/vits",
}
MODEL = "llm/smollm2"
TURN_S = 3.0  # of a user's utterance
WARM, ROUNDS = 6, 12
PROMPT_WORDS = 150  # about 200 tokens: an agent's instructions and a few turns
ANSWER_TOKENS = 60


def speak(config: str, cores: int) -> Figures:
    """Real-time factor of sentences of 50 characters, one after the other, and the first chunk."""
    with on_cores(cores):
        engine, info = load_model(TTS, config, WeightStore(weights_dir()))
        voice = next(voice for voice in info.voices if voice.language == "en")
        firsts, took_s, cpu_s, audio_s, characters = [], 0.0, 0.0, 0.0, 0
        for number in range(WARM + ROUNDS):
            text = SENTENCES[number % len(SENTENCES)]
            began, cpu, first = time.perf_counter(), time.process_time(), 0.0
            seconds = 0.0
            for chunk in engine.synthesize(SynthesisRequest(text, voice.key, "en")):
                if len(chunk.pcm):
                    first = first or time.perf_counter() - began
                    seconds += len(chunk.pcm) / chunk.sample_rate
            if number >= WARM:
                firsts.append(first)
                took_s += time.perf_counter() - began
                cpu_s += time.process_time() - cpu
                audio_s += seconds
                characters += len(text)
        return {
            "real_time_factor": took_s / audio_s,
            "cpu_s_per_audio_s": cpu_s / audio_s,
            "first_ms": median(firsts) * 1000,
            "characters_per_audio_s": characters / audio_s,
            "mb": own_mb(),
        }


def own_mb() -> float:
    return sum(resident_bytes(os.getpid()).values()) / 1e6


def spoken_turn() -> Pcm:
    """A user's utterance, at the rate of the recogniser."""
    engine, info = load_model(TTS, SPEECH["Fast"], WeightStore(weights_dir()))
    voice = next(voice for voice in info.voices if voice.language == "en")
    pcm: list[Any] = []
    for text in SENTENCES[:2]:
        for chunk in engine.synthesize(SynthesisRequest(text, voice.key, "en")):
            at = np.arange(0, len(chunk.pcm), chunk.sample_rate / STT_SAMPLE_RATE)
            pcm.append(np.interp(at, np.arange(len(chunk.pcm)), chunk.pcm))
    found: Pcm = np.concatenate(pcm)[: round(TURN_S * STT_SAMPLE_RATE)].astype(np.float32)
    return found


def listen(cores: int) -> Figures:
    """Seconds of audio transcribed in a second: one utterance after the other, and a call each of
    as many threads as the engine takes calls at once."""
    from concurrent.futures import ThreadPoolExecutor

    pcm = spoken_turn()
    with on_cores(cores):
        engine, _ = load_model(STT, "stt/whisper_base", WeightStore(weights_dir()))
        request = TranscriptionRequest(pcm, language="en")

        def one(_: int = 0) -> float:
            began = time.perf_counter()
            engine.transcribe([request])
            return time.perf_counter() - began

        for _ in range(3):
            one()
        cpu = time.process_time()
        alone = [one() for _ in range(ROUNDS)]
        cpu_s = (time.process_time() - cpu) / ROUNDS
        at_once = engine.capabilities.max_concurrency
        with ThreadPoolExecutor(at_once) as threads:
            began = time.perf_counter()
            list(threads.map(one, range(2 * ROUNDS)))
            together_s = time.perf_counter() - began
        audio_s = len(pcm) / STT_SAMPLE_RATE
        return {
            "utterance_s": audio_s,
            "decode_ms": median(alone) * 1000,
            "cpu_s_per_audio_s": cpu_s / audio_s,
            "audio_s_per_s": 2 * ROUNDS * audio_s / together_s,
            "mb": own_mb(),
        }


def write(cores: int) -> Figures:
    """Tokens a second of one answer and of a full batch, and the first token of a new prompt."""
    with on_cores(cores):
        engine, _ = load_model(CHAT, MODEL, WeightStore(weights_dir()))
        slots = engine.capabilities.max_concurrency

        async def answer(chat: int, turn: int) -> tuple[int, float]:
            """The next turn of a chat whose beginning is in the prefix cache, as an agent's is."""
            text = f"{chat}. " + "There are many streets and old houses. " * (PROMPT_WORDS // 7)
            messages = (
                ChatMessage("user", text),
                ChatMessage("assistant", "I see."),
                ChatMessage("user", f"Tell me a story of house number {turn}."),
            )
            sampling = SamplingOptions(temperature=0, max_tokens=ANSWER_TOKENS)
            began, first, tokens = time.perf_counter(), 0.0, 0
            request = GenerationRequest(messages, sampling, cache_key=f"chat {chat}")
            async for delta in engine.generate(request):
                if delta.has_content and not first:
                    first = time.perf_counter() - began
                if delta.usage is not None:
                    tokens = delta.usage.completion_tokens
            return tokens, first

        async def run() -> Figures:
            figures: Figures = {"slots": slots, "answer_tokens": ANSWER_TOKENS}
            await asyncio.gather(*(answer(chat, 0) for chat in range(slots)))
            for name, chats in (("one", 1), ("full", slots)):
                began, cpu, made, firsts = time.perf_counter(), time.process_time(), 0, []
                for turn in range(1, 4):
                    work = (answer(chat, turn + 10 * chats) for chat in range(chats))
                    for tokens, first in await asyncio.gather(*work):
                        made += tokens
                        firsts.append(first)
                took_s = time.perf_counter() - began
                figures[name] = {
                    "tokens_per_s": made / took_s,
                    "cpu_s_per_answer": (time.process_time() - cpu) / len(firsts),
                    "first_ms": median(firsts) * 1000,
                    "answer_ms": took_s / 3 * 1000,
                }
            return figures

        figures = asyncio.run(run())
        figures["mb"] = (
            sum(resident_bytes(multiprocessing.current_process().pid or 0).values()) / 1e6
        )
        return figures


def in_process(work: Callable[..., Figures], *arguments: Any) -> Figures:
    """In a new process, so that its libraries see its cores when they are loaded."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        figures = pool.apply(work, arguments)
        print(work.__name__, arguments, figures, flush=True)
        return figures


def measure() -> Figures:
    figures: Figures = {}
    for cores in (1, 2):
        figures[f"cores_{cores}"] = {
            "tts": {tier: in_process(speak, config, cores) for tier, config in SPEECH.items()},
            "stt": in_process(listen, cores),
            "llm": in_process(write, cores),
        }
    return figures
