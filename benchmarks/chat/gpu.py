"""Chat on transformers at 1, 8 and 64 streams, against the bare `generate` loop, in one run.

    .venv-gpu/bin/python -m benchmarks.chat.gpu         # the shape of a model of 3 B, NF4, on a GPU
    .venv-gpu/bin/python -m benchmarks.chat.gpu --tiny  # a shape for a CPU: checks the program

The weights are random, so nothing is downloaded; the time does not depend on the generated text.
"bare" is the library's `generate` over the same weights, for one prompt after the other and for all
as one static batch, which no service could use: requests would have to begin and end together.
"""

import argparse
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

from benchmarks.harness.report import hardware, versions
from configs.schema.models.llm import TransformersChatConfig
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


def made_up_words(count: int) -> list[str]:
    """As many different tokens, each a space and four letters, in no order."""
    spots = ((number * 7919) % 26**4 for number in range(count))
    return ["Ġ" + "".join(chr(97 + spot // 26**at % 26) for at in range(4)) for spot in spots]


def write_model(folder: Path, shape: Shape, device: str) -> None:
    """Writes random weights of the shape, in the hub's layout; almost every token is a word."""
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
    return [
        GenerationRequest(
            (ChatMessage("user", shape.prompt.format(number=1000 * round_ + stream)),), sampling
        )
        for stream in range(streams)
    ]


async def serve(
    engine: TransformersEngine, requests: Sequence[GenerationRequest]
) -> tuple[float, float]:
    """Tokens a second of all streams together, and the median time to a first token in seconds."""

    firsts: dict[str, float] = {}
    take = TokenStream.take

    async def timed(stream: TokenStream) -> Step:
        """A token that begins no letter, as most of random weights, is no delta yet."""
        step = await take(stream)
        firsts.setdefault(stream.id, time.perf_counter() - began)
        return step

    async def answer(request: GenerationRequest) -> int:
        made = 0
        async for delta in engine.generate(request):
            made = delta.usage.completion_tokens if delta.usage else made
        return made

    with patch.object(TokenStream, "take", timed):
        began = time.perf_counter()
        made = sum(await asyncio.gather(*map(answer, requests)))
        took = time.perf_counter() - began
    return made / took, statistics.median(firsts.values())


def loop(
    engine: TransformersEngine,
    requests: Sequence[GenerationRequest],
    shape: Shape,
    *,
    together: bool,
) -> float:
    """Tokens a second of the library's `generate`, one prompt at a time or all in one batch."""
    network, tokenizer = engine._batch._model, engine._writer.tokenizer
    texts = [tokenizer.decode(engine._writer.write(request).tokens) for request in requests]
    groups = [texts] if together else [[text] for text in texts]
    tokenizer.padding_side = "left"
    began = time.perf_counter()
    for group in groups:
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
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tiny", action="store_true", help="a shape that a CPU can run")
    parser.add_argument("--rounds", type=int, default=2, help="the best of these rounds counts")
    options = parser.parse_args()
    shape = TINY if options.tiny else LARGE
    if not options.tiny and not torch.cuda.is_available():
        parser.error("no GPU found; --tiny checks the program on a CPU")
    place = torch.cuda.get_device_name() if torch.cuda.is_available() else hardware()
    print(place)
    print(versions(*LIBRARIES))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = tiny_chat_config(quantization="nf4", **shape.config)
        write_model(folder, shape, "cpu" if options.tiny else "cuda")
        asyncio.run(compare(folder, config, shape, options.rounds))


async def compare(folder: Path, config: TransformersChatConfig, shape: Shape, rounds: int) -> None:
    """Prints a line for each number of streams."""
    engine = TransformersEngine(config, OneFolder(folder))
    await serve(engine, requests_of(shape, 2, 999))  # warm-up: the first steps allocate memory
    loop(engine, requests_of(shape, 1, 999), shape, together=False)
    print("streams  tokens/s  first token  bare, one by one  bare, one batch")
    for streams in STREAMS:
        served, alone, batched = [], [], []
        for round_ in range(rounds):
            requests = requests_of(shape, streams, round_)
            served.append(await serve(engine, requests))
            alone.append(loop(engine, requests[:4], shape, together=False))
            batched.append(loop(engine, requests, shape, together=True))
        speed = max(speed for speed, _ in served)
        first = min(first for _, first in served)
        print(
            f"{streams:7} {speed:9.0f} {first * 1000:9.0f} ms"
            f" {max(alone):9.0f} ({speed / max(alone):5.2f} x)"
            f" {max(batched):8.0f} ({speed / max(batched):5.2f} x)"
        )
    engine.close()


if __name__ == "__main__":
    main()
