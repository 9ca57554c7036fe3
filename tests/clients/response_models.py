"""Checks what the service answers against the types of the vendors' SDKs, strictly.

The SDKs themselves build their objects without validation, so that a missing field raises only
where a program reads it. `response_rows.py` has the endpoints. Arguments: URL, key, a voice's id, a
recording.

Run by the interpreter of .venv-clients; prints the faults of each row as one line of JSON.
"""

import asyncio
import json
import sys
import wave
from functools import cache
from io import BytesIO
from itertools import groupby
from pathlib import Path
from typing import Any

import httpx
import websockets
from pydantic import TypeAdapter, ValidationError

from tests.clients.response_rows import (
    AUDIO,
    KEYS,
    RATE,
    REQUESTS,
    SOCKETS,
    UNTYPED,
    Request,
    Socket,
)

SOCKET_S = 30.0
PIECE_S = 0.1
SILENCE_S = 3.0
PREFIXES = ("/openai/v1/", "/cartesia/", "/v1/", "/v2/", "/v3/")
METHODS = ("get", "post", "put", "patch", "delete")


adapter_of = cache(TypeAdapter)


def faults(kind: Any, data: bytes | str) -> list[str]:
    """What the type demands and the JSON does not have; of a union, by its nearest member.

    A time may be a number, as the SDKs read it; nothing else is converted.
    """
    for strict in (False, True):
        try:
            adapter_of(kind).validate_json(data, strict=strict)
        except ValidationError as error:
            members = groupby(error.errors(include_url=False), lambda fault: fault["loc"][:1])
            nearest = min((list(member) for _, member in members), key=_distance)
            if not strict or any(fault["type"] != "datetime_type" for fault in nearest):
                return [f"{fault['loc']}: {fault['msg']} in {data!r:.200}" for fault in nearest]
    return []


def _distance(member: list[Any]) -> tuple[bool, int]:
    """Orders the members of a union: first those whose own literals, such as `type`, fit."""
    own = (fault for fault in member if len(fault["loc"]) == 2)
    return any(fault["type"] == "literal_error" for fault in own), len(member)


def ask(client: httpx.Client, row: Request, names: dict[str, str], recording: bytes) -> list[str]:
    filled = {part: names[name] for part, name in row.fills.items()}
    method, path = fill(row.route, names | filled).split()
    headers = row.headers or next(KEYS[prefix] for prefix in KEYS if path.startswith(prefix))
    answer = client.request(
        method,
        path,
        params=row.query,
        json=None if row.body is None else json.loads(fill(json.dumps(row.body), names)),
        data=row.form if row.file_field else None,
        files=None if row.form is None else parts_of(row, recording),
        content=recording if row.is_recording else None,
        headers={name: fill(value, names) for name, value in headers.items()},
    )
    if not answer.is_success:
        return [f"status {answer.status_code}: {answer.text}"]
    parts = row.parts(answer.content)
    for name, field in row.keeps.items():
        names[name] = json.loads(parts[0])[field]
    return [fault for part in parts for fault in faults(row.type, part)] or missing(parts)


def parts_of(row: Request, recording: bytes) -> dict[str, Any]:
    """The file of a form; the other fields, where it has none, so that it is multipart anyway."""
    if not row.file_field:
        return {name: (None, value) for name, value in (row.form or {}).items()}
    upload = repeated(recording, row.repeats) if row.file is None else row.file.encode()
    return {row.file_field: ("upload", upload)}


def repeated(recording: bytes, times: int) -> bytes:
    """A WAV file with the samples of another, several times."""
    with wave.open(BytesIO(recording)) as file:
        form = file.getparams()
        data = file.readframes(file.getnframes())
    target = BytesIO()
    with wave.open(target, "wb") as file:
        file.setparams(form)
        file.writeframes(data * times)
    return target.getvalue()


def missing(parts: list[Any]) -> list[str]:
    return [] if parts else ["the answer is empty, so its type is not checked"]


async def converse(
    url: str, row: Socket, names: dict[str, str], recording: str
) -> list[str] | None:
    """Returns the events up to the last; None if that does not come within SOCKET_S."""
    path = f"{url.replace('http', 'ws', 1)}{fill(row.path, names)}?{row.query}"
    headers = {name: fill(value, names) for name, value in row.headers.items()}
    seen: list[str] = []
    try:
        async with (
            asyncio.timeout(SOCKET_S),
            websockets.connect(path, additional_headers=headers) as socket,
        ):
            sending = asyncio.create_task(send(socket, row, names, recording))
            async for event in socket:
                if isinstance(event, str):
                    seen.append(event)
                    if row.is_last(json.loads(event)):
                        break
            sending.cancel()
    except TimeoutError:
        return None
    return seen


async def send(socket: Any, row: Socket, names: dict[str, str], recording: str) -> None:
    for message in row.messages:
        if message is not AUDIO:
            await socket.send(fill(json.dumps(message), names))
            continue
        for piece in pieces(recording):
            wrapped = row.wrap(piece)
            await socket.send(wrapped if isinstance(wrapped, bytes) else json.dumps(wrapped))
            await asyncio.sleep(PIECE_S / 4)  # four times as fast as it sounds


def pieces(path: str) -> list[bytes]:
    """The samples of the recording, and silence."""
    with wave.open(path) as file:
        data = file.readframes(file.getnframes()) + bytes(round(2 * RATE * SILENCE_S))
    step = round(2 * RATE * PIECE_S)
    return [data[start : start + step] for start in range(0, len(data), step)]


def fill(text: str, names: dict[str, str]) -> str:
    """Replaces `{name}` by its value; JSON has braces of its own."""
    for name, value in names.items():
        text = text.replace(f"{{{name}}}", value)
    return text


def unlisted(client: httpx.Client) -> list[str]:
    """The routes of the dialects with SDKs that have no row."""
    paths = client.get("/openapi.json").json()["paths"]
    routes = {
        f"{method.upper()} {path}"
        for path, operations in paths.items()
        if path.startswith(PREFIXES)
        for method in METHODS
        if method in operations
    }
    return sorted(routes - UNTYPED - {row.route for row in REQUESTS})


async def walk(url: str, key: str, voice: str, path: str) -> dict[str, list[str]]:
    names = {"key": key, "voice_id": voice, "token_type": "realtime_scribe"}
    found: dict[str, list[str]] = {}
    with httpx.Client(base_url=url, timeout=60, trust_env=False) as client:
        found["routes without a row"] = unlisted(client)
        headers = {"Authorization": f"Token {key}"}
        projects = client.get("/v1/projects", headers=headers).json()["projects"]
        names["project_id"] = projects[0]["project_id"]
        keep = {"speech_history_days": 1}
        client.put("/auth/workspace", json=keep, headers={"Authorization": f"Bearer {key}"})
        recording = Path(path).read_bytes()
        for number, row in enumerate(REQUESTS):
            found[f"{number} {row.route}"] = ask(client, row, names, recording)
    conversations = [converse(url, socket, names, path) for socket in SOCKETS]
    # All are read before any is checked: a check takes longer than some sockets wait for audio.
    read = await asyncio.gather(*conversations)
    for number, (socket, seen) in enumerate(zip(SOCKETS, read, strict=True)):
        name = f"{number} {socket.path}?{socket.query}"
        if seen is None:
            found[name] = ["its last event did not come"]
            continue
        wrong = [fault for event in seen for fault in faults(socket.type, event)]
        found[name] = wrong or missing(seen)
    return found


sys.stdout.write(json.dumps(asyncio.run(walk(*sys.argv[1:5]))) + "\n")
