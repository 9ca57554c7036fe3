"""Latency of warm speech over HTTP against the bare engine and encoder, in one run.

python -m benchmarks.tts.http [--base-url URL --key KEY]
"""

import statistics
import time
from collections.abc import Callable

import httpx

from benchmarks.harness.report import begin, parser, verdict
from benchmarks.harness.service import add_service_options, chosen_service
from benchmarks.harness.speech import english_voice, voices, whole_speech
from models.audio import AudioChunk
from models.tts.base import SynthesisRequest
from pipelines.audio.encode.encoder import OutputFormat, encode

SENTENCE = (
    "The quick brown fox jumps over the lazy dog, "
    "and the river runs down to the sea in the early morning."
)
FORMATS: tuple[OutputFormat, ...] = ("mp3", "wav")
TARGET_RATIO = 1.6
WARM_UP = 5


def timed_ms(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return (time.perf_counter() - began) * 1000


def main() -> None:
    options = parser(__doc__)
    add_service_options(options)
    options.add_argument("--config", default="tts/hibari", help="the bare engine's configuration")
    options.add_argument("--rounds", type=int, default=30)
    arguments = begin(options, "ray", "onnxruntime", "av", "hibari-tts")
    with chosen_service(arguments) as (url, key):
        headers = {"Authorization": f"Bearer {key}"}
        with httpx.Client(base_url=url, headers=headers, timeout=60) as client:
            for output_format in FORMATS:
                compare(client, arguments.config, output_format, arguments.rounds)


def compare(client: httpx.Client, config: str, output_format: OutputFormat, rounds: int) -> None:
    """Print the medians of both and their ratio; the two take turns, so load hits both."""
    engine, info = voices(config)
    key = english_voice(config)
    voice = next(voice for voice in info.voices if voice.key == key)
    body = {"text": SENTENCE, "voice_id": voice.voice_id, "output_format": output_format}

    def over_http() -> None:
        client.post("/tts-synthesize", json=body).raise_for_status()

    def bare() -> None:
        pcm = whole_speech(engine, SynthesisRequest(SENTENCE, key, "en"))
        encode(AudioChunk(pcm, engine.capabilities.sample_rate), output_format)

    pairs = [(timed_ms(over_http), timed_ms(bare)) for _ in range(WARM_UP + rounds)][WARM_UP:]
    http_ms = statistics.median(http_ms for http_ms, _ in pairs)
    bare_ms = statistics.median(bare_ms for _, bare_ms in pairs)
    ratio = http_ms / bare_ms
    print(
        f"{output_format}, {len(SENTENCE)} characters: HTTP p50 {http_ms:.1f} ms, "
        f"bare engine + encoder p50 {bare_ms:.1f} ms, ratio {ratio:.2f} "
        f"(target {TARGET_RATIO}: {verdict(ratio <= TARGET_RATIO)})"
    )


if __name__ == "__main__":
    main()
