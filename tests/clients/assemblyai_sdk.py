"""AssemblyAI's own client, pointed at this service. Arguments: URL, that with TLS, key, a
recording.

Run by the interpreter of .venv-clients; prints what it read as one line of JSON.
"""

import asyncio
import json
import sys
import time
import wave
from typing import Any

from assemblyai.streaming.v3 import (
    AsyncRealTimeTranscriber,
    RealTimeEvents,
    RealTimeParameters,
    RealTimeSessionParameters,
    RealTimeTranscriber,
    RealTimeTranscriberOptions,
)

EVENTS = ("Begin", "SpeechStarted", "Turn", "Termination", "Warning", "Error")


def pieces(path: str, silence_s: float) -> list[bytes]:
    with wave.open(path) as file:
        rate, data = file.getframerate(), file.readframes(file.getnframes())
    data += bytes(round(2 * rate * silence_s))
    return [data[at : at + 1600] for at in range(0, len(data), 1600)]


def parameters(**changes: Any) -> Any:
    given = {"sample_rate": 16_000, "speech_model": "universal-3-6-pro", "max_turn_silence": 800}
    return RealTimeParameters(**{**given, **changes})


def shown(event: Any) -> list[Any]:
    """What tells an event of a session from others."""
    if isinstance(event, Exception):
        return ["Error", getattr(event, "code", None)]
    if event.type != "Turn":
        return [event.type]
    times = [word.start < word.end for word in event.words]
    return ["Turn", event.turn_order, event.end_of_turn, event.transcript, all(times)]


def stream(options: Any, path: str, given: Any) -> list[list[Any]]:
    """The events of a session in threads, with a change on its way."""
    seen: list[list[Any]] = []
    client = RealTimeTranscriber(options)
    for name in EVENTS:
        client.on(RealTimeEvents[name], lambda _, event: seen.append(shown(event)))
    client.connect(given)
    if not seen or seen[0][0] != "Error":
        client.set_params(RealTimeSessionParameters(keyterms_prompt=["Antiphon"]))
        client.keep_alive()
        for piece in pieces(path, 3.0):
            client.stream(piece)
            time.sleep(0.02)
        client.force_endpoint()
    client.disconnect(terminate=True)
    return seen


async def forced(options: Any, path: str) -> list[list[Any]]:
    """The events of a session in an event loop, whose turn the client ends."""
    seen: list[list[Any]] = []
    client = AsyncRealTimeTranscriber(options)
    for name in EVENTS:
        client.on(RealTimeEvents[name], lambda _, event: seen.append(shown(event)))
    await client.connect(parameters(max_turn_silence=20_000, end_of_turn_confidence_threshold=1.0))
    for piece in pieces(path, 0.5):
        await client.stream(piece)
        await asyncio.sleep(0.02)
    await client.force_endpoint()
    await client.disconnect(terminate=True)
    return seen


def see(url: str, safe_url: str, key: str, path: str) -> dict[str, Any]:
    given: dict[str, Any] = {"api_host": url.replace("http", "ws", 1), "connect_timeout": 20}
    options = RealTimeTranscriberOptions(api_key=key, **given)
    there = RealTimeTranscriberOptions(api_key=key, api_host=safe_url.removeprefix("https://"))
    token = RealTimeTranscriber(there).create_temporary_token(expires_in_seconds=60)
    by_token = RealTimeTranscriberOptions(token=token, **given)
    wrong = RealTimeTranscriberOptions(api_key="sk_wrong", **given)
    return {
        "stream": stream(options, path, parameters()),
        "by the token": stream(by_token, path, parameters(speech_model=None, format_turns=True)),
        "forced": asyncio.run(forced(options, path)),
        "wrong key": stream(wrong, path, parameters()),
        "unsupported": stream(options, path, parameters(redact_pii=True)),
    }


sys.stdout.write(json.dumps(see(*sys.argv[1:5])) + "\n")
