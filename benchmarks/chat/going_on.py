"""A chat of 2,000 tokens that goes on after six others: seconds to its first token, cached tokens
and memory, with and without keeping the prompts of chats that lost their slot.

    python -m benchmarks.chat.going_on --model llm/qwen2_5_coder_1_5b

"new" is the chat's first turn. The six other chats are long ones of the same owner, then long ones
of others, then short ones. Each line has the mean of their times to a first token, which saving a
prompt delays.
"""

import asyncio
import os
import re
from pathlib import Path
from statistics import mean

from benchmarks.chat.speed import Chat, long_chat
from benchmarks.harness.chat import TimedAnswer, llama_config, llama_engine, timed
from benchmarks.harness.report import begin, parser
from models.llm.base import ChatMessage, GenerationRequest, SamplingOptions
from models.llm.llama_cpp import LlamaCppEngine

SAMPLING = SamplingOptions(temperature=0.0, max_tokens=8)


async def ask(engine: LlamaCppEngine, chat: Chat, owner: str) -> TimedAnswer:
    messages = tuple(
        ChatMessage("assistant" if place % 2 else "user", text) for place, text in enumerate(chat)
    )
    return await timed(engine.generate, GenerationRequest(messages, SAMPLING, owner=owner))


def memory() -> str:
    """The proportional set size, and beside it the prompts that are kept."""
    rollup = Path("/proc/self/smaps_rollup").read_text()
    sizes = re.findall(r"^Pss:\s+(\d+)", rollup, re.MULTILINE)
    kept = sum(
        descriptor.stat().st_size
        for descriptor in Path("/proc/self/fd").iterdir()
        if descriptor.is_symlink() and "memfd:chat" in os.readlink(descriptor)
    )
    return f"{int(sizes[0]) // 1024:,} MiB, kept {kept // 2**20} MiB"


async def measure(engine: LlamaCppEngine, name: str) -> None:
    chat = long_chat(1)
    result = await ask(engine, chat, "me")
    print(f"{name}: new {result.first_s:.2f} s; {memory()}", flush=True)
    for number, kind in enumerate(("its owner's", "others'", "short"), start=1):
        seconds = []
        for other in range(6):
            text = f"Tell me about the number {other}."
            others = [text] if kind == "short" else long_chat(100 * number + other)
            owner = "me" if kind == "its owner's" else f"other {other}"
            seconds.append((await ask(engine, others, owner)).first_s)
        chat = [*chat, result.answer.text, "Go on."]
        result = await ask(engine, chat, "me")
        print(
            f"{name}: after six of {kind} ({mean(seconds):.2f} s each) {result.first_s:.2f} s,"
            f" {result.cached_tokens} tokens cached; {memory()}",
            flush=True,
        )


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--model", default="llm/qwen2_5_coder_1_5b")
    config = llama_config(begin(options).model)
    for name, megabytes in (("kept", config.kept_chats_mb), ("not kept", 0)):
        engine = llama_engine(config, kept_chats_mb=megabytes)
        asyncio.run(measure(engine, name))
        del engine


if __name__ == "__main__":
    main()
