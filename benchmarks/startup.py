"""Cold start: the time from the command to the first audio; then the memory of the service before
and after its models are used, and what it takes of the cores while it is idle.

make bench-startup, or: python -m benchmarks.startup
"""

import base64
import time
from collections.abc import Mapping

import httpx

from benchmarks.hardware import hardware
from benchmarks.service import (
    processor_seconds,
    resident_bytes,
    running_service,
    wait_until_idle,
    wait_until_whole,
)

UNUSED_S = 80.0  # after which models that were not used have given their memory back
WARM_UP_S = 30.0  # of Quality, after its first use
REST_S = 60.0


def main() -> None:
    print(hardware())
    with running_service(["make", "--silent", "run"], whole=False) as service:
        with httpx.Client(
            base_url=service.url, headers={"Authorization": f"Bearer {service.key}"}, timeout=60
        ) as client:
            answer = client.post("/tts-synthesize", json={"text": "Hello."})
            answer.raise_for_status()
            spoken_s = time.monotonic() - service.started
            assert len(base64.b64decode(answer.json()["audio_base64"])) > 500
            print(f"first audio after {spoken_s:.1f} s")
            wait_until_whole(service)
            print(f"all models after {time.monotonic() - service.started:.1f} s")
            time.sleep(UNUSED_S)
            print_memory(service.pid, "before Quality and Chat were used")
            exercise(client)
        time.sleep(WARM_UP_S)
        wait_until_idle()
        print_memory(service.pid, "after one use of each model")
        before = processor_seconds(service.pid)
        time.sleep(REST_S)
        used = {
            name: (after - before.get(name, 0.0)) / REST_S
            for name, after in processor_seconds(service.pid).items()
        }
        print(f"at rest {sum(used.values()):.3f} of a core, over {REST_S:.0f} s")
        for name, share in _largest(used):
            print(f"  {100 * share:7.2f} %  {name}")


def print_memory(pid: int, moment: str) -> None:
    """Prints the proportional set sizes of the service's processes."""
    sizes = resident_bytes(pid)
    print(f"memory {moment}: {sum(sizes.values()) / 1e9:.2f} GB (PSS)")
    for name, size in _largest(sizes):
        print(f"  {size / 1e6:7.0f} MB  {name}")


def _largest(values: Mapping[str, float]) -> list[tuple[str, float]]:
    return sorted(values.items(), key=lambda item: -item[1])[:20]


def exercise(client: httpx.Client) -> None:
    """Requests to every model, so that the memory measured is that of a service in use."""
    speech = {}
    for text in ("This is a test of the service.", "Das ist ein Test.", "यह एक परीक्षण है।"):
        answer = client.post("/tts-synthesize", json={"text": text, "output_format": "wav"})
        answer.raise_for_status()
        speech[text] = base64.b64decode(answer.json()["audio_base64"])
    for audio in speech.values():
        client.post("/stt", files={"audio": ("a.wav", audio)}).raise_for_status()
    client.post(
        "/v1/chat/completions",
        json={
            "messages": [{"role": "user", "content": "Hello"}],
            "max_tokens": 50,
            "stream": False,
        },
    ).raise_for_status()


if __name__ == "__main__":
    main()
