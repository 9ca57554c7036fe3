"""A service that serves only its own machine: the workspace of its owner has no plan and no prices,
and a link logs in, but not through a proxy, from another site, or after a start for others."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from websockets.sync.client import connect

from tests.api.alone import Machine
from tests.api.local_server import patient_client
from tests.hostile.audio_files import wav

PROXIES = [
    {"X-Forwarded-For": "203.0.113.7"},
    {"X-Real-IP": "203.0.113.7"},
    {"Via": "1.1 proxy"},
    {"Host": "speech.example"},
    {"Host": "127.0.0.1.evil.example:8000"},
    {"Connection": "upgrade"},
]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    return Machine.make(tmp_path_factory.mktemp("alone"))


@contextmanager
def started(machine: Machine, *, alone: bool) -> Iterator[httpx.Client]:
    """A client with the key of the owner."""
    with machine.start(alone=alone) as url:
        with patient_client(url, bearer(machine.key)) as client:
            yield client


@pytest.fixture(scope="module")
def alone(machine: Machine) -> Iterator[httpx.Client]:
    with started(machine, alone=True) as client:
        yield client


def speak(client: httpx.Client, **headers: str) -> httpx.Response:
    return client.post("/tts-synthesize", json={"text": "Ten chars."}, headers=headers)


def usage(client: httpx.Client, **headers: str) -> dict[str, Any]:
    answer: dict[str, Any] = client.get("/billing/usage", headers=headers).json()
    return answer


def follow(client: httpx.Client, token: str, **headers: str) -> httpx.Response:
    headers = {"Authorization": "", **headers}
    return client.post("/auth/link", json={"token": token}, headers=headers)


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_the_owner_pays_nothing_and_has_the_limits_of_the_machine(alone: httpx.Client) -> None:
    answer = speak(alone)
    assert answer.status_code == 200, answer.text
    assert answer.headers["X-RateLimit-Limit"] == "100000"
    assert speak(alone, **{"Idempotency-Key": "once"}).status_code == 200
    recording = wav(b"\0\0" * 16000, rate=16000)
    form = {"file": ("a.wav", recording)}
    model = {"model": "whisper-1"}
    heard = alone.post("/openai/v1/audio/transcriptions", files=form, data=model)
    assert heard.status_code == 200, heard.text
    chat = {"messages": [{"role": "user", "content": "Hello"}], "stream": False}
    assert alone.post("/v1/chat/completions", json=chat).status_code == 200
    after = usage(alone)
    assert (after["credit_balance"], after["total_cost"]) == (0, 0)
    assert {item["kind"]: item["units"] > 0 for item in after["usage"]} == {
        "tts": True,
        "stt": True,
        "chat": True,
    }
    assert alone.get("/auth/workspace").json()["plan"] == "owner"
    assert alone.get("/billing/current-plan").json()["plan"] == {
        "id": "owner",
        "name": "Owner",
        "price": 0.0,
    }
    assert alone.post("/tts/explain", json={"text": "Ten chars."}).json()["price"] == 0.0
    assert after["storage"]["limit"] == 10**15
    socket = str(alone.base_url).replace("http", "ws") + "/ws/tts?apiKey="
    key = alone.headers["Authorization"].split()[1]
    with connect(socket + key) as one, connect(socket + key) as two, connect(socket + key) as three:
        for opened in (one, two, three):  # the plan of a new workspace allows two
            assert "connecting" in str(opened.recv())


def test_a_signed_up_workspace_keeps_plan_credit_and_limits(alone: httpx.Client) -> None:
    account = {"email": "guest@example.com", "password": "correct horse battery"}
    guest = bearer(alone.post("/auth/signup", json=account).json()["token"])
    answer = speak(alone, **guest)
    assert answer.headers["X-RateLimit-Limit"] == "60"
    assert usage(alone, **guest)["credit_balance"] == 4.99985
    assert alone.get("/auth/workspace", headers=guest).json()["plan"] == "free"
    changed = {"plan_id": "owner"}
    assert alone.post("/billing/subscribe", json=changed, headers=guest).status_code == 404


@pytest.mark.parametrize("headers", PROXIES, ids=str)
def test_through_a_proxy_the_owner_has_plan_and_prices_and_no_link(
    machine: Machine, alone: httpx.Client, headers: dict[str, str]
) -> None:
    answer = speak(alone, **headers)
    assert answer.json()["error"] == "insufficient_credit"
    assert answer.headers["X-RateLimit-Limit"] == "60"
    token = machine.link()
    assert follow(alone, token, **headers).status_code == 404
    session = bearer(follow(alone, token).json()["token"])
    assert alone.get("/models", headers={**session, **headers}).status_code == 401
    assert alone.get("/models", headers=session).status_code == 200


def test_a_link_works_once_and_a_later_link_ends_it(machine: Machine, alone: httpx.Client) -> None:
    earlier, token = machine.link(), machine.link()
    assert follow(alone, earlier).status_code == 401
    evil = follow(alone, token, Origin="http://evil.example")
    assert (evil.status_code, evil.json()["error"]) == (403, "insufficient_scope")
    origin = str(alone.base_url).rstrip("/")
    session = follow(alone, token, Origin=origin)
    assert session.status_code == 200, session.text
    assert follow(alone, token).status_code == 401
    assert alone.get("/models", headers=bearer(token)).status_code == 401  # it is no credential
    with_invite = {"email": "a@example.com", "password": "correct horse", "invite": machine.link()}
    assert alone.post("/auth/signup", json=with_invite).json()["error"] == "invalid_invite"
    invite = machine.invite()
    assert follow(alone, invite).status_code == 401
    assert alone.post("/auth/signup", json={**with_invite, "invite": invite}).status_code == 201
    headers = bearer(session.json()["token"])
    sessions = alone.get("/auth/sessions", headers=headers).json()["sessions"]
    assert {one["address"] for one in sessions} == {"this machine"}
    assert alone.post("/auth/logout", headers=headers).status_code == 200
    assert alone.get("/models", headers=headers).status_code == 401


def test_a_client_secret_of_the_owner_has_prices(alone: httpx.Client) -> None:
    secret = alone.post("/openai/v1/realtime/client_secrets", json={}).json()["value"]
    url = str(alone.base_url).replace("http", "ws") + "/openai/v1/realtime"
    key = alone.headers["Authorization"].split()[1]
    for credential, status in ((key, "completed"), (secret, "failed")):
        with connect(url, additional_headers=bearer(credential)) as socket:
            socket.send('{"type": "response.create", "response": {"instructions": "Greet."}}')
            events = (json.loads(message) for message in socket)
            answer = next(event for event in events if event["type"] == "response.done")
        assert answer["response"]["status"] == status, answer
        assert ("insufficient_quota" in str(answer)) == (status == "failed")


def test_what_a_service_alone_grants_ends_when_it_serves_others(machine: Machine) -> None:
    with started(machine, alone=True) as client:
        session = bearer(follow(client, machine.link()).json()["token"])
        body = {"scopes": ["tts"]}
        browser = bearer(client.post("/auth/tokens", json=body, headers=session).json()["token"])
        assert speak(client, **browser).json()["error"] == "insufficient_credit"
        unused = machine.link()
    with started(machine, alone=False) as client:
        for headers in (session, browser):
            assert client.get("/models", headers=headers).status_code == 401
        assert follow(client, unused).status_code == 404
        answer = speak(client)
        assert answer.json()["error"] == "insufficient_credit"
        assert answer.headers["X-RateLimit-Limit"] == "60"
        assert client.get("/auth/workspace").json()["plan"] == "free"
    with started(machine, alone=True) as client:
        assert speak(client, **session).headers["X-RateLimit-Limit"] == "100000"


def test_guesses_of_links_are_limited_by_address(machine: Machine) -> None:
    with started(machine, alone=True) as client:
        codes = [follow(client, f"login_{number}").status_code for number in range(32)]
        assert codes == [401] * 30 + [429] * 2
        assert client.get("/models").status_code == 200
