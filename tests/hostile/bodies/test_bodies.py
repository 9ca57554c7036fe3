"""No field of a caller, however deep and however wrong, makes the service fail.

`make fuzz-bodies BODIES=100000` sends as many; SEED repeats a run.
"""

import os
from collections import defaultdict
from pathlib import Path
from random import Random
from typing import Any

import pytest

from api.http import turns
from api.sockets.kernel import session
from tests.hostile.bodies.http_bodies import OPERATIONS, Requests
from tests.hostile.bodies.samples import by_schema, forms
from tests.hostile.bodies.site import serve
from tests.hostile.bodies.sockets import PROTOCOLS, Sessions, socket_paths

FEW = 800
BODIES = int(os.environ.get("BODIES", FEW))
SEED = int(os.environ.get("SEED", 47))
AT_A_SITE = 2000  # then a new one, since limits of keys, jobs and webhooks fill
MESSAGES_SHARE = 0.3  # of the bodies are messages of sockets
EXPECTED = {200, 201, 202, 204, 400, 401, 402, 403, 404, 405, 408, 409, 414, 416, 431}
# What the models of the tests cannot do: watermarks and translations.
NEVER = {"/audio/verify", "/openai/v1/audio/translations"}


@pytest.fixture(autouse=True)
def errors_cost_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "DELAY_S", 0.0)
    monkeypatch.setattr(session, "FAULT_PAUSE_S", 0.0)


@pytest.mark.timeout(0 if BODIES > FEW else 600)
async def test_a_broken_field_never_makes_the_service_fail(tmp_path: Path) -> None:
    complaints: list[str] = []
    statuses: dict[int, int] = {}
    for number in range(-(-BODIES // AT_A_SITE)):
        chance = Random(SEED + number)
        bodies = min(AT_A_SITE, BODIES - number * AT_A_SITE)
        (folder := tmp_path / str(number)).mkdir()
        async with serve(folder) as site:
            requests, sessions = Requests(site, chance), Sessions(site, chance)
            messages = 0
            while messages < bodies * MESSAGES_SHARE:
                messages += max(await sessions.open_one(), 1)
            for _ in range(max(bodies - messages, 0)):
                await requests.send_one()
        complaints += requests.complaints + sessions.complaints
        for status, count in requests.statuses.items():
            statuses[status] = statuses.get(status, 0) + count
    assert not complaints, f"{len(complaints)} of {BODIES}:\n" + "\n".join(complaints[:40])
    assert set(statuses) <= EXPECTED
    # Enough get past the schema to reach what is behind it.
    assert statuses[200] > sum(statuses.values()) / 10


async def test_every_deep_body_is_taken_before_it_is_broken(tmp_path: Path) -> None:
    async with serve(tmp_path) as site:
        refused = []
        samples = by_schema(site.ids)
        for operation in OPERATIONS:
            known = {**site.ids, "voice_id": site.ids["speaking_voice"], "number": "1"}
            path = operation.path.format_map(defaultdict(str, known))
            bodies: list[dict[str, Any]] = [
                {"json": one} for one in samples.get(operation.name, ())
            ]
            if operation.path in forms():
                fields, files = forms()[operation.path]
                bodies.append({"data": fields, "files": files})
            for body in bodies:
                answer = await site.client.request(
                    operation.method, path, headers=site.headers, **body
                )
                if answer.is_error and operation.path not in NEVER:
                    refused.append((path, answer.text, body))
        assert refused == []


def test_every_socket_and_route_with_a_body_is_tried() -> None:
    assert socket_paths() - {"/telephony/twilio"} == {one.path for one in PROTOCOLS}
    samples = set(
        by_schema(
            dict.fromkeys(("speaking_voice", "dictionary_id", "chat_id"), "")
            | {"input[].id": "", "previous_response_id": ""}
        )
    )
    assert {one.name for one in OPERATIONS} >= samples
