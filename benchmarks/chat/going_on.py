"""A chat of 2,000 tokens that goes on after six others: seconds to its first token, cached tokens
and memory, with the prompts of chats that lost their slot kept and not.

    python -m benchmarks.chat.going_on --model llm/qwen2_5_coder_1_5b

"new" is the chat's first turn. The six others are long (of its owner, then of others) or short;
each line has the mean of their seconds, which the saving of a prompt delays.
"""

import argparse
import asyncio
import os
import re
import time
from pathlib import Path
from statistics import mean

from pydantic import TypeAdapter

from benchmarks.chat.speed import Chat, long_chat
from benchmarks.harness.report import hardware
from configs.load import load_yaml
from configs.schema.models.llm import ChatConfig, LlamaCppConfig
from configs.settings import weights_dir
from models.llm.base import ChatMessage, GenerationDelta, GenerationRequest, SamplingOptions
from models.llm.llama_cpp import LlamaCppEngine
from models.weights.store import WeightStore

MIB = 2**20


async def ask(engine: LlamaCppEngine, chat: Chat, owner: str) -> tuple[str, float, int]:
    """The answer, the seconds to its first text, and the cached tokens of the prompt."""
    messages = tuple(
        ChatMessage("assistant" if i % 2 else "user", text) for i, text in enumerate(chat)
    )
    sampling = SamplingOptions(temperature=0.0, max_tokens=8)
    began = time.perf_counter()
    first_s = 0.0
    deltas: list[GenerationDelta] = []
    async for delta in engine.generate(GenerationRequest(messages, sampling, owner=owner)):
        if delta.text and not first_s:
            first_s = time.perf_counter() - began
        deltas.append(delta)
    answer = GenerationDelta.joined(deltas)
    return answer.text, first_s, answer.usage.cached_tokens if answer.usage else 0


def memory() -> str:
    """The proportional set size, and beside it the prompts that are kept."""
    rollup = Path("/proc/self/smaps_rollup").read_text()
    sizes = re.findall(r"^Pss:\s+(\d+)", rollup, re.MULTILINE)
    kept = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        if descriptor.is_symlink() and "memfd:chat" in os.readlink(descriptor):
            kept += descriptor.stat().st_size
    return f"{int(sizes[0]) // 1024:,} MiB, kept {kept // MIB} MiB"


async def measure(engine: LlamaCppEngine, name: str) -> None:
    chat = long_chat(1)
    answer, first_s, _ = await ask(engine, chat, "me")
    print(f"{name}: new {first_s:.2f} s; {memory()}", flush=True)
    for number, kind in enumerate(("its owner's", "others'", "short"), start=1):
        seconds = []
        for other in range(6):
            text = f"Tell me about the number {other}."
            others = [text] if kind == "short" else long_chat(100 * number + other)
            owner = "me" if kind == "its owner's" else f"other {other}"
            seconds.append((await ask(engine, others, owner))[1])
        chat = [*chat, answer, "Go on."]
        answer, first_s, cached = await ask(engine, chat, "me")
        print(
            f"{name}: after six of {kind} ({mean(seconds):.2f} s each) {first_s:.2f} s,"
            f" {cached} tokens cached; {memory()}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="llm/qwen2_5_coder_1_5b")
    arguments = parser.parse_args()
    config = load_yaml(TypeAdapter(ChatConfig), arguments.model)
    assert isinstance(config, LlamaCppConfig)
    print(hardware())
    for name, megabytes in (("kept", config.kept_chats_mb), ("not kept", 0)):
        own = config.model_copy(update={"kept_chats_mb": megabytes})
        engine = LlamaCppEngine(own, WeightStore(weights_dir()))
        asyncio.run(measure(engine, name))
        del engine


if __name__ == "__main__":
    main()
