"""Latency of warm speech over HTTP against the bare engine and encoder, in one run.

python -m benchmarks.tts.http [--base-url URL --key KEY]
"""

import argparse
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack

import httpx
import numpy as np

from benchmarks.harness.report import hardware, versions
from benchmarks.harness.service import add_service_options, chosen_service
from configs.settings import weights_dir
from models.audio import AudioChunk
from models.registry import TTS, load_model
from models.tts.base import SynthesisRequest
from models.weights.store import WeightStore
from pipelines.audio.encode.encoder import encode

SENTENCE = (
    "The quick brown fox jumps over the lazy dog, "
    "and the river runs down to the sea in the early morning."
)
TARGET_RATIO = 1.6
WARM_UP = 5


def bare_engine(config: str) -> tuple[Callable[[], AudioChunk], str]:
    """A call that synthesises and encodes the sentence in this process, and its voice id."""
    engine, info = load_model(TTS, config, WeightStore(weights_dir()))
    voice = next(voice for voice in info.voices if voice.language == "en")
    request = SynthesisRequest(SENTENCE, voice.key, "en")

    def speak() -> AudioChunk:
        parts = list(engine.synthesize(request))
        return AudioChunk(np.concatenate([part.pcm for part in parts]), parts[0].sample_rate)

    return speak, voice.voice_id


def timed_ms(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return (time.perf_counter() - started) * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_service_options(parser)
    parser.add_argument("--config", default="tts/hibari", help="the bare engine's configuration")
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()
    with ExitStack() as stack:
        url, key = stack.enter_context(chosen_service(options))
        headers = {"Authorization": f"Bearer {key}"}
        client = stack.enter_context(httpx.Client(base_url=url, headers=headers, timeout=60))
        speak, voice_id = bare_engine(options.config)
        for output_format in ("mp3", "wav"):
            compare(client, speak, voice_id, output_format, options.rounds)
    print(hardware())
    print(versions("ray", "onnxruntime", "av", "hibari-tts"))


def compare(
    client: httpx.Client,
    speak: Callable[[], AudioChunk],
    voice_id: str,
    output_format: str,
    rounds: int,
) -> None:
    """Prints the medians of both and their ratio; the two take turns, so load hits both."""
    body = {"text": SENTENCE, "voice_id": voice_id, "output_format": output_format}

    def over_http() -> None:
        client.post("/tts-synthesize", json=body).raise_for_status()

    def bare() -> None:
        encode(speak(), "mp3" if output_format == "mp3" else "wav")

    for _ in range(WARM_UP):
        over_http()
        bare()
    pairs = [(timed_ms(over_http), timed_ms(bare)) for _ in range(rounds)]
    http_ms = statistics.median(pair[0] for pair in pairs)
    bare_ms = statistics.median(pair[1] for pair in pairs)
    ratio = http_ms / bare_ms
    verdict = "met" if ratio <= TARGET_RATIO else "missed"
    print(
        f"{output_format}, {len(SENTENCE)} characters: HTTP p50 {http_ms:.1f} ms, "
        f"bare engine + encoder p50 {bare_ms:.1f} ms, ratio {ratio:.2f} "
        f"(target {TARGET_RATIO}: {verdict})"
    )


if __name__ == "__main__":
    main()
