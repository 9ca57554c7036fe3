"""What the benchmarks of the GPU profile share: random weights of the true shapes, on a GPU."""

import argparse
import time
from collections.abc import Callable

import torch

from benchmarks.harness.report import hardware, versions


def begin_on_gpu(options: argparse.ArgumentParser, *packages: str) -> argparse.Namespace:
    """Add `--tiny`, parse the command line, and print the device and the versions. Exits without a
    GPU, unless `--tiny` checks the program on a CPU."""
    options.add_argument("--tiny", action="store_true", help="a shape that a CPU can run")
    arguments = options.parse_args()
    if not arguments.tiny and not torch.cuda.is_available():
        options.error("no GPU found; --tiny checks the program on a CPU")
    print(torch.cuda.get_device_name() if torch.cuda.is_available() else hardware())
    print(versions(*packages), flush=True)
    return arguments


def print_most_memory() -> None:
    if torch.cuda.is_available():
        print(f"most memory: {torch.cuda.max_memory_reserved() / 1e9:.1f} GB")


def made_up_words(count: int) -> list[str]:
    """As many different tokens, each a space and four letters, in no order."""
    spots = ((number * 7919) % 26**4 for number in range(count))
    return ["Ġ" + "".join(chr(97 + spot // 26**at % 26) for at in range(4)) for spot in spots]


def seconds_of(work: Callable[[], object]) -> float:
    """How long a call takes, until the GPU has done its part."""
    began = time.perf_counter()
    work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - began


def best_s(work: Callable[[], object], rounds: int) -> float:
    """The shortest of some rounds, in seconds, after one that is not counted."""
    seconds_of(work)
    return min(seconds_of(work) for _ in range(rounds))
