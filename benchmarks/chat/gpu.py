"""Chat on transformers at 1, 8 and 64 streams, against the bare `generate` loop, in one run.

    .venv-gpu/bin/python -m benchmarks.chat.gpu         # the shape of a model of 3 B, NF4, on a GPU
    .venv-gpu/bin/python -m benchmarks.chat.gpu --tiny  # a shape for a CPU: checks the program

The weights are random, so nothing is downloaded; the time does not depend on the generated text.
"bare" is the library's `generate` over the same weights, for one prompt after the other and for all
as one static batch, which no service could use: requests would have to begin and end together.
"""

import asyncio
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from transformers import AutoModelForCausalLM, SmolLM3Config

from benchmarks.harness.gpu import begin_on_gpu, made_up_words
from benchmarks.harness.report import parser
from models.llm.base import ChatMessage, GenerationRequest, SamplingOptions
from models.llm.transformers.batch import Step, TokenStream
from models.llm.transformers.engine import TransformersEngine
from tests.models.llm.transformers.tiny_chat import tiny_chat_config, write_tokenizer
from tests.models.weights.one_folder import OneFolder

STREAMS = (1, 8, 64)
BYTES_AND_MARKS = 259  # tokens of every tokenizer of the tests
LIBRARIES = ("torch", "transformers", "accelerate", "bitsandbytes")


@dataclass(frozen=True, slots=True)
class Shape:
    """A model's dimensions and configuration, and the load on it."""

    network: dict[str, Any]
    config: dict[str, Any]
    prompt: str
    tokens: int  # of each answer


LARGE = Shape(
    network={"max_position_embeddings": 8192},  # the rest is SmolLM3's own 3 B
    config={
        "context_tokens": 2048,
        "cache_tokens": 65536,
        "page_tokens": 256,
        "parallel": 64,
        "batch_tokens": 1024,
        "dtype": "bfloat16",
        "device": "cuda",
    },
    prompt="Tell a long story about the number {number}, and take your time with it.",
    tokens=128,
)
TINY = Shape(
    network={
        "vocab_size": 512,
        "hidden_size": 128,
        "intermediate_size": 256,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
    },
    config={
        "context_tokens": 256,
        "cache_tokens": 8192,
        "parallel": 64,
        "batch_tokens": 1024,
        "dtype": "bfloat16",
    },
    prompt="The number {number}.",
    tokens=16,
)


def write_model(folder: Path, shape: Shape, device: str) -> None:
    """Write random weights of the shape, in the hub's layout; almost every token is a word."""
    torch.manual_seed(0)
    config = SmolLM3Config(
        bos_token_id=0, eos_token_id=1, pad_token_id=2, use_sliding_window=False, **shape.network
    )
    write_tokenizer(folder, made_up_words(config.vocab_size - BYTES_AND_MARKS))
    with torch.device(device):
        network = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    network.save_pretrained(folder)


def requests_of(shape: Shape, streams: int, round_: int) -> list[GenerationRequest]:
    sampling = SamplingOptions(max_tokens=shape.tokens, seed=round_)
    prompts = [shape.prompt.format(number=1000 * round_ + stream) for stream in range(streams)]
    return [GenerationRequest((ChatMessage("user", prompt),), sampling) for prompt in prompts]


async def serve(
    engine: TransformersEngine, requests: Sequence[GenerationRequest]
) -> tuple[float, float]:
    """Tokens a second of all streams together, and the median time to a first token in seconds."""
    firsts_s: dict[str, float] = {}
    take = TokenStream.take

    async def timed(stream: TokenStream) -> Step:
        """A token that begins no letter, as most of random weights, is no delta yet."""
        step = await take(stream)
        firsts_s.setdefault(stream.id, time.perf_counter() - began)
        return step

    async def answer(request: GenerationRequest) -> int:
        tokens = 0
        async for delta in engine.generate(request):
            tokens = delta.usage.completion_tokens if delta.usage else tokens
        return tokens

    with patch.object(TokenStream, "take", timed):
        began = time.perf_counter()
        tokens = sum(await asyncio.gather(*map(answer, requests)))
        took_s = time.perf_counter() - began
    return tokens / took_s, statistics.median(firsts_s.values())


def loop(
    engine: TransformersEngine,
    requests: Sequence[GenerationRequest],
    shape: Shape,
    *,
    together: bool,
) -> float:
    """Tokens a second of the library's `generate`, one prompt at a time or all in one batch."""
    network = engine._batch._model
    tokenizer = engine._writer.tokenizer
    texts = [tokenizer.decode(engine._writer.write(request).tokens) for request in requests]
    tokenizer.padding_side = "left"
    began = time.perf_counter()
    for group in [texts] if together else [[text] for text in texts]:
        given = tokenizer(group, return_tensors="pt", padding=True, add_special_tokens=False)
        network.generate(
            **given.to(network.device),
            do_sample=True,
            temperature=0.7,
            top_k=20,
            top_p=0.8,
            min_new_tokens=shape.tokens,
            max_new_tokens=shape.tokens,
        )
    return len(texts) * shape.tokens / (time.perf_counter() - began)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, default=2, help="the best of these rounds counts")
    arguments = begin_on_gpu(options, *LIBRARIES)
    shape = TINY if arguments.tiny else LARGE
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = tiny_chat_config(quantization="nf4", **shape.config)
        write_model(folder, shape, "cpu" if arguments.tiny else "cuda")
        engine = TransformersEngine(config, OneFolder(folder))
        asyncio.run(compare(engine, shape, arguments.rounds))
        engine.close()


async def compare(engine: TransformersEngine, shape: Shape, rounds: int) -> None:
    """Print a line for each number of streams."""
    await serve(engine, requests_of(shape, 2, 999))  # warm-up: the first steps allocate memory
    loop(engine, requests_of(shape, 1, 999), shape, together=False)
    print("streams  tokens/s  first token  bare, one by one  bare, one batch")
    for streams in STREAMS:
        results = []
        alone = batched = 0.0
        for round_ in range(rounds):
            requests = requests_of(shape, streams, round_)
            results.append(await serve(engine, requests))
            alone = max(alone, loop(engine, requests[:4], shape, together=False))
            batched = max(batched, loop(engine, requests, shape, together=True))
        speed = max(speed for speed, _ in results)
        first_s = min(first_s for _, first_s in results)
        print(
            f"{streams:7} {speed:9.0f} {first_s * 1000:9.0f} ms"
            f" {alone:9.0f} ({speed / alone:5.2f} x)"
            f" {batched:8.0f} ({speed / batched:5.2f} x)"
        )


if __name__ == "__main__":
    main()
