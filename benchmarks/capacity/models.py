"""What one core and one replica of each model carry: the engines alone, warm, on one and two cores.

Speech and transcription are measured in processes that are held to so many cores; the language
model has the threads of its configuration.
"""

import asyncio
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from statistics import median
from typing import Any

from benchmarks.capacity.figures import Figures, on_cores
from benchmarks.harness.service import resident_bytes
from benchmarks.harness.speech import concatenated, english_voice, speak, store, voices
from benchmarks.tts.socket import SENTENCES
from models.llm.base import ChatMessage, GenerationRequest, SamplingOptions
from models.registry import CHAT, STT, load_model
from models.stt.base import STT_SAMPLE_RATE, TranscriptionRequest
from models.tts.base import SynthesisRequest

SPEECH = {
    "Fast": "tts/hibari",
    "Quality": "tts/kokoro",
    "Formant": "tts/espeak",
    "Vits": "tts/vits",
}
CHAT_MODEL = "llm/smollm2"
RECOGNISER = "stt/whisper_base"
TURN_S = 3.0  # of a user's utterance
WARM, ROUNDS = 6, 12
FILLER = "There are many streets and old houses. " * 21  # about 200 tokens: instructions, turns
ANSWER_TOKENS = 60


def own_mb() -> float:
    return sum(resident_bytes(os.getpid()).values()) / 1e6


def speaking(config: str) -> Figures:
    """Real-time factor of sentences of 50 characters, one after the other, and the first chunk."""
    engine, _ = voices(config)
    voice = english_voice(config)
    firsts_ms: list[float] = []
    took_s = cpu_s = audio_s = 0.0
    characters = 0
    for number in range(WARM + ROUNDS):
        if number == WARM:
            firsts_ms.clear()
            took_s = cpu_s = audio_s = 0.0
            characters = 0
        text = SENTENCES[number % len(SENTENCES)]
        began = time.perf_counter()
        cpu = time.process_time()
        first_s = 0.0
        for chunk in engine.synthesize(SynthesisRequest(text, voice, "en")):
            if len(chunk.pcm):
                first_s = first_s or time.perf_counter() - began
                audio_s += len(chunk.pcm) / chunk.sample_rate
        firsts_ms.append(first_s * 1000)
        took_s += time.perf_counter() - began
        cpu_s += time.process_time() - cpu
        characters += len(text)
    return {
        "real_time_factor": took_s / audio_s,
        "cpu_s_per_audio_s": cpu_s / audio_s,
        "first_ms": median(firsts_ms),
        "characters_per_audio_s": characters / audio_s,
    }


def listening() -> Figures:
    """Seconds of audio transcribed per second: one utterance after the other, and by as many
    threads as the engine takes calls at once."""
    fast = SPEECH["Fast"]
    spoken = [speak(text, english_voice(fast), config=fast) for text in SENTENCES[:2]]
    pcm = concatenated(spoken)[: round(TURN_S * STT_SAMPLE_RATE)]
    engine, _ = load_model(STT, RECOGNISER, store())
    request = TranscriptionRequest(pcm, language="en")

    def decode(_: int = 0) -> float:
        began = time.perf_counter()
        engine.transcribe([request])
        return time.perf_counter() - began

    for _ in range(3):
        decode()
    cpu = time.process_time()
    alone_s = [decode() for _ in range(ROUNDS)]
    cpu_s = (time.process_time() - cpu) / ROUNDS
    with ThreadPoolExecutor(engine.capabilities.max_concurrency) as threads:
        began = time.perf_counter()
        list(threads.map(decode, range(2 * ROUNDS)))
        together_s = time.perf_counter() - began
    audio_s = len(pcm) / STT_SAMPLE_RATE
    return {
        "utterance_s": audio_s,
        "decode_ms": median(alone_s) * 1000,
        "cpu_s_per_audio_s": cpu_s / audio_s,
        "audio_s_per_s": 2 * ROUNDS * audio_s / together_s,
    }


def writing() -> Figures:
    """Tokens a second of one answer and of a full batch, and the first token of a new prompt."""
    engine, _ = load_model(CHAT, CHAT_MODEL, store())
    slots = engine.capabilities.max_concurrency

    async def answer(chat: int, turn: int) -> tuple[int, float]:
        """The next turn of a chat whose beginning is in the prefix cache, as an agent's is."""
        messages = (
            ChatMessage("user", f"{chat}. {FILLER}"),
            ChatMessage("assistant", "I see."),
            ChatMessage("user", f"Tell me a story of house number {turn}."),
        )
        sampling = SamplingOptions(temperature=0, max_tokens=ANSWER_TOKENS)
        request = GenerationRequest(messages, sampling, cache_key=f"chat {chat}")
        began = time.perf_counter()
        first_s = 0.0
        tokens = 0
        async for delta in engine.generate(request):
            if delta.has_content and not first_s:
                first_s = time.perf_counter() - began
            if delta.usage is not None:
                tokens = delta.usage.completion_tokens
        return tokens, first_s

    async def run() -> Figures:
        figures: Figures = {"slots": slots, "answer_tokens": ANSWER_TOKENS}
        await asyncio.gather(*(answer(chat, 0) for chat in range(slots)))
        for name, chats in (("one", 1), ("full", slots)):
            began = time.perf_counter()
            cpu = time.process_time()
            answers = []
            for turn in range(1, 4):
                work = (answer(chat, turn + 10 * chats) for chat in range(chats))
                answers += await asyncio.gather(*work)
            took_s = time.perf_counter() - began
            figures[name] = {
                "tokens_per_s": sum(tokens for tokens, _ in answers) / took_s,
                "cpu_s_per_answer": (time.process_time() - cpu) / len(answers),
                "first_ms": median(first_s for _, first_s in answers) * 1000,
                "answer_ms": took_s / 3 * 1000,
            }
        return figures

    return asyncio.run(run())


def held_to(cores: int, work: Callable[..., Figures], arguments: tuple[Any, ...]) -> Figures:
    """Run `work` on the first `cores`; call it in a new process, whose libraries then see only
    these."""
    with on_cores(cores):
        return {**work(*arguments), "mb": own_mb()}


def measure() -> Figures:
    figures: Figures = {}
    for cores in (1, 2):

        def run(work: Callable[..., Figures], *arguments: str, cores: int = cores) -> Figures:
            with get_context("spawn").Pool(1) as pool:
                result = pool.apply(held_to, (cores, work, arguments))
            print(work.__name__, *arguments, cores, result, flush=True)
            return result

        figures[f"cores_{cores}"] = {
            "tts": {tier: run(speaking, config) for tier, config in SPEECH.items()},
            "stt": run(listening),
            "llm": run(writing),
        }
    return figures
