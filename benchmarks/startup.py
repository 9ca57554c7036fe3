"""Cold start: the time from the command to the first audio, and the memory of the service.

make bench-startup, or: python -m benchmarks.startup
"""

import base64
import time

import httpx

from benchmarks.hardware import hardware
from benchmarks.service import resident_bytes, running_service, wait_until_whole


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
            exercise(client)
        sizes = resident_bytes(service.pid)
        print(f"resident memory {sum(sizes.values()) / 1e9:.2f} GB (PSS, after one use of each)")
        for name, size in sorted(sizes.items(), key=lambda item: -item[1])[:14]:
            print(f"  {size / 1e6:7.0f} MB  {name}")


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
        json={"messages": [{"role": "user", "content": "Hello"}], "stream": False},
    ).raise_for_status()


if __name__ == "__main__":
    main()
