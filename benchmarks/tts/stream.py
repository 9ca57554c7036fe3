"""Latency of the first line of /tts-stream against the bare engine's first chunk.

The engine gets the chunk of text that the service begins with, so the ratio is the overhead of
everything around it. python -m benchmarks.tts.stream [--base-url URL --key KEY]
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack

import httpx

from benchmarks.hardware import hardware, versions
from benchmarks.service import add_service_options, chosen_service
from configs.settings import weights_dir
from models.base import VoiceInfo
from models.registry import TTS, load_model
from models.tts.base import SynthesisRequest, TTSEngine
from models.weights.store import WeightStore
from pipelines.text.chunking import Chunker, FirstChunkPolicy, read_chunks

SENTENCE = "The quick brown fox jumps over the lazy dog today. "
SIZES = (50, 5000)
ENGINES = {"Fast": "tts/hibari", "Quality": "tts/kokoro"}
WARM_UP = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_service_options(parser)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    store = WeightStore(weights_dir())
    with ExitStack() as stack:
        url, key = stack.enter_context(chosen_service(options))
        headers = {"Authorization": f"Bearer {key}"}
        client = stack.enter_context(httpx.Client(base_url=url, headers=headers, timeout=60))
        for tier, config in ENGINES.items():
            engine, info = load_model(TTS, config, store)
            voice = next(voice for voice in info.voices if voice.language == "en")
            for characters in SIZES:
                compare(client, tier, engine, voice, characters, options.rounds)
    print(hardware())
    print(versions("ray", "onnxruntime", "av", "hibari-tts"))


def compare(
    client: httpx.Client,
    tier: str,
    engine: TTSEngine,
    voice: VoiceInfo,
    characters: int,
    rounds: int,
) -> None:
    """Prints both and their ratio; the two take turns, so load hits both."""
    text = (SENTENCE * (characters // len(SENTENCE) + 1))[:characters]
    piece = next(
        read_chunks(
            text, languages=frozenset({"en"}), language="en", chunker=Chunker(FirstChunkPolicy())
        )
    )
    request = SynthesisRequest(piece.text, voice.key, "en")
    body = {"text": text, "voice_id": voice.voice_id}

    def over_http() -> None:
        with client.stream("POST", "/tts-stream", json=body) as answer:
            line = json.loads(next(answer.iter_lines()))
            assert line["type"] == "chunk", line

    def bare() -> None:
        chunks = engine.synthesize(request)
        next(chunk for chunk in chunks if len(chunk.pcm))
        chunks.close()

    for _ in range(WARM_UP):
        over_http()
        bare()
    pairs = [(timed_ms(over_http), timed_ms(bare)) for _ in range(rounds)]
    http_ms, bare_ms = ([pair[side] for pair in pairs] for side in (0, 1))
    ratio = statistics.median(http_ms) / statistics.median(bare_ms)
    print(
        f"{tier}, {characters} characters: first line p50 {statistics.median(http_ms):.1f} ms, "
        f"p95 {percentile(http_ms, 0.95):.1f} ms; bare engine p50 "
        f"{statistics.median(bare_ms):.1f} ms; ratio {ratio:.2f}"
    )


def timed_ms(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return (time.perf_counter() - started) * 1000


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, round(share * len(values)))]


if __name__ == "__main__":
    main()
