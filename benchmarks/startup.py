"""Cold start: the time from the command to the first audio; then the memory of the service before
and after its models are used, and the share of the cores that it takes while it is idle.

make bench-startup, or: python -m benchmarks.startup
"""

import base64
import time
from collections.abc import Mapping

import httpx

from benchmarks.harness.report import begin, parser
from benchmarks.harness.service import (
    processor_seconds,
    resident_bytes,
    running_service,
    wait_until_idle,
    wait_until_whole,
)

UNUSED_S = 80.0  # after which models that were not used have given their memory back
WARM_UP_S = 30.0  # of Quality, after its first use
REST_S = 60.0
TEXTS = ("This is a test of the service.", "Das ist ein Test.", "यह एक परीक्षण है।")


def main() -> None:
    begin(parser(__doc__))
    with running_service(["make", "--silent", "run"], whole=False) as service:
        headers = {"Authorization": f"Bearer {service.key}"}
        with httpx.Client(base_url=service.url, headers=headers, timeout=60) as client:
            assert len(speech(client, "Hello.", "mp3")) > 500
            print(f"first audio after {time.monotonic() - service.started:.1f} s")
            wait_until_whole(service)
            print(f"all models after {time.monotonic() - service.started:.1f} s")
            time.sleep(UNUSED_S)
            print_memory(service.pid, "before Quality and Chat were used")
            use_each_model(client)
        time.sleep(WARM_UP_S)
        wait_until_idle()
        print_memory(service.pid, "after one use of each model")
        before = processor_seconds(service.pid)
        time.sleep(REST_S)
        shares = {
            name: (after - before.get(name, 0.0)) / REST_S
            for name, after in processor_seconds(service.pid).items()
        }
        print(f"at rest {sum(shares.values()):.3f} of a core, over {REST_S:.0f} s")
        for name, share in _largest(shares):
            print(f"  {100 * share:7.2f} %  {name}")


def speech(client: httpx.Client, text: str, output_format: str) -> bytes:
    answer = client.post("/tts-synthesize", json={"text": text, "output_format": output_format})
    return base64.b64decode(answer.raise_for_status().json()["audio_base64"])


def print_memory(pid: int, moment: str) -> None:
    """Print the proportional set sizes of the service's processes."""
    sizes = resident_bytes(pid)
    print(f"memory {moment}: {sum(sizes.values()) / 1e9:.2f} GB (PSS)")
    for name, size in _largest(sizes):
        print(f"  {size / 1e6:7.0f} MB  {name}")


def _largest(values: Mapping[str, float]) -> list[tuple[str, float]]:
    return sorted(values.items(), key=lambda item: -item[1])[:20]


def use_each_model(client: httpx.Client) -> None:
    """Send requests to every model, so that the memory is that of a service in use."""
    for audio in [speech(client, text, "wav") for text in TEXTS]:
        client.post("/stt", files={"audio": ("a.wav", audio)}).raise_for_status()
    messages = [{"role": "user", "content": "Hello"}]
    body = {"messages": messages, "max_tokens": 50, "stream": False}
    client.post("/v1/chat/completions", json=body).raise_for_status()


if __name__ == "__main__":
    main()
