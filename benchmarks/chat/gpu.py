"""Chat on transformers and on vLLM at 1, 8 and 64 streams, with short and long prompts, in one run.

    .venv-gpu-vllm/bin/python -m benchmarks.chat.gpu         # the shape of a model of 3 B, 4 bits
    .venv-gpu-vllm/bin/python -m benchmarks.chat.gpu --tiny  # a shape for a CPU: checks the program
    .venv-gpu-vllm/bin/python -m benchmarks.chat.gpu --engine vllm --unquantised

`PROFILE=gpu VLLM=1 make install` installs both engines. The weights are random, so nothing is
downloaded; the time does not depend on the generated text. Each prompt begins with its own number,
so no cached prefix is used.
"""

import asyncio
import importlib.util
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from benchmarks.harness.gpu import begin_on_gpu, made_up_words
from benchmarks.harness.report import parser
from models.llm.base import ChatMessage, GenerationRequest, SamplingOptions
from models.llm.token_engine import Step, TokenEngine, TokenRequest, TokenStream
from tests.models.llm.transformers.tiny_chat import tiny_chat_config, write_tokenizer
from tests.models.weights.one_folder import OneFolder

STREAMS = (1, 8, 64)
BYTES_AND_MARKS = 259  # tokens of every tokenizer of the tests
TEMPLATE_TOKENS = 40  # of the chat template around a prompt
LIBRARIES = ("torch", "transformers", "accelerate", "bitsandbytes")
ENGINES = ("transformers", "vllm")
WORDS = "and the story goes on with another word "  # a token per letter


@dataclass(frozen=True, slots=True)
class Shape:
    """A model's dimensions, and the load on it."""

    network: dict[str, Any]
    context_tokens: int
    device: str
    prompts: tuple[int, ...]  # their tokens
    tokens: int  # of each answer


LARGE = Shape(
    network={
        "vocab_size": 128256,
        "hidden_size": 2048,
        "intermediate_size": 11008,
        "num_hidden_layers": 36,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "tie_word_embeddings": True,
    },
    context_tokens=4352,
    device="cuda",
    prompts=(200, 4000),
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
    },
    context_tokens=256,
    device="cpu",
    prompts=(60, 200),
    tokens=8,
)


def write_model(folder: Path, shape: Shape) -> None:
    """Write random weights of the shape, in the hub's layout; almost every token is a word."""
    torch.manual_seed(0)
    config = LlamaConfig(
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=2,
        max_position_embeddings=shape.context_tokens,
        **shape.network,
    )
    write_tokenizer(folder, made_up_words(config.vocab_size - BYTES_AND_MARKS))
    with torch.device(shape.device):
        network = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    network.save_pretrained(folder)


def load(name: str, folder: Path, shape: Shape, *, quantised: bool) -> TokenEngine:
    """Load an engine with the model in `folder`."""
    common: dict[str, Any] = {"context_tokens": shape.context_tokens, "dtype": "bfloat16"}
    common["parallel"] = max(STREAMS)
    if name == "transformers":
        from models.llm.transformers.engine import TransformersEngine

        config = tiny_chat_config(
            cache_tokens=max(STREAMS) * shape.context_tokens,
            page_tokens=256,
            batch_tokens=1024,
            device=shape.device,
            quantization="nf4" if quantised else "none",
            **common,
        )
        return TransformersEngine(config, OneFolder(folder))
    from models.llm.vllm.engine import VllmEngine
    from tests.models.llm.vllm.smollm import smollm_config

    other = smollm_config(
        enforce_eager=shape is TINY,
        quantization="bitsandbytes" if quantised and shape is not TINY else None,
        **common,
    )
    return VllmEngine(other, OneFolder(folder))


def requests_of(shape: Shape, prompt: int, streams: int, round_: int) -> list[GenerationRequest]:
    """Make requests whose prompts have `prompt` tokens."""
    sampling = SamplingOptions(max_tokens=shape.tokens)
    letters = prompt - TEMPLATE_TOKENS
    texts = [f"{1000 * round_ + stream} {WORDS * letters}"[:letters] for stream in range(streams)]
    return [GenerationRequest((ChatMessage("user", text),), sampling) for text in texts]


class TimedStream(TokenStream):
    """A stream that notes when its first token came. Its first delta may come later: a token can be
    a byte that completes no character."""

    def __init__(self, stream: TokenStream, firsts: list[float]) -> None:
        super().__init__()
        self._stream = stream
        self._firsts: list[float] | None = firsts

    async def take(self) -> Step:
        step = await self._stream.take()
        if self._firsts is not None:
            self._firsts.append(time.perf_counter())
            self._firsts = None
        return step

    def close(self) -> None:
        self._stream.close()


async def serve(engine: TokenEngine, requests: Sequence[GenerationRequest]) -> tuple[float, float]:
    """Tokens a second of all streams together, and the median time to a first token in seconds."""
    firsts: list[float] = []
    submit = engine._batch.submit

    def submit_timed(request: TokenRequest) -> TokenStream:
        return TimedStream(submit(request), firsts)

    async def answer(request: GenerationRequest) -> int:
        tokens = 0
        async for delta in engine.generate(request):
            tokens = delta.usage.completion_tokens if delta.usage else tokens
        return tokens

    with patch.object(engine._batch, "submit", submit_timed):
        began = time.perf_counter()
        tokens = sum(await asyncio.gather(*map(answer, requests)))
        took_s = time.perf_counter() - began
    return tokens / took_s, statistics.median(firsts) - began


async def measure(name: str, engine: TokenEngine, shape: Shape, rounds: int) -> None:
    """Print a line for each length of prompts and number of streams."""
    await serve(engine, requests_of(shape, shape.prompts[0], 2, 999))  # warm-up
    for prompt in shape.prompts:
        for streams in STREAMS:
            results = [
                await serve(engine, requests_of(shape, prompt, streams, round_))
                for round_ in range(rounds)
            ]
            speed = max(speed for speed, _ in results)
            first_s = min(first_s for _, first_s in results)
            print(f"{name:12} {prompt:6} {streams:7} {speed:9.0f} {first_s * 1000:9.0f} ms")


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, default=2, help="the best of these rounds counts")
    options.add_argument("--engine", action="append", choices=ENGINES, help="default: both")
    options.add_argument("--unquantised", action="store_true", help="bfloat16, not 4 bits")
    arguments = begin_on_gpu(options, *LIBRARIES)
    shape = TINY if arguments.tiny else LARGE
    with tempfile.TemporaryDirectory() as folder:
        write_model(Path(folder), shape)
        print("engine       prompt streams  tokens/s  first token")
        for name in arguments.engine or ENGINES:
            if importlib.util.find_spec(name) is None:
                print(f"{name:12} is not installed")
                continue
            engine = load(name, Path(folder), shape, quantised=not arguments.unquantised)
            asyncio.run(measure(name, engine, shape, arguments.rounds))
            engine.close()


if __name__ == "__main__":
    main()
