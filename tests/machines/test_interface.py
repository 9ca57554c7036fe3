"""The interface on two machines: what one makes the other has, and limits hold for both. Then all
tests of the interface that look from outside, with each request to the other machine."""

import asyncio
import base64
import io
import os
import re
import subprocess
import sys
import time
from uuid import uuid4

import httpx
import openai
import pytest

from configs.settings import PROJECT_DIR
from tests.machines.conftest import Plan, Site
from tests.patience import PATIENCE_S
from tests.pipelines.webhooks.receivers import receiver

pytestmark = [
    pytest.mark.parametrize("site", [Plan(machines=2)], indirect=True),
    pytest.mark.timeout(1200),
]


async def test_what_one_machine_makes_the_other_has(site: Site) -> None:
    first, second = site.machines
    auth = {"Authorization": f"Bearer {await asyncio.to_thread(site.start)}"}
    await asyncio.to_thread(site.together, ("Gateway", "TTSFast", "STT", "Chat", "Worker"))
    async with (
        httpx.AsyncClient(base_url=first.url, headers=auth, timeout=PATIENCE_S) as one,
        httpx.AsyncClient(base_url=second.url, headers=auth, timeout=PATIENCE_S) as other,
        receiver(site.authority, host=site.address, address=site.address) as hook,
    ):
        await every_list_is_the_same(one, other)
        await files_and_events(one, other, hook.url)
        (event,) = await hook.until(1)
        assert event.id.startswith("evt_")
        await chats(one, other)
        await idempotent_requests(one, other)
        await ended_accounts(one, other)
        await limits(one, other)
    client = openai.AsyncOpenAI(
        base_url=f"{second.url}/openai/v1", api_key=auth["Authorization"].removeprefix("Bearer ")
    )
    async with client:
        await official_client(client)
    await asyncio.to_thread(every_test_from_outside, [first.url, second.url])


def every_test_from_outside(gateways: list[str]) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "tests/api", "-q", "-p", "no:cacheprovider"],
        env={**os.environ, "GATEWAYS": ",".join(gateways)},
        cwd=PROJECT_DIR,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout[-20_000:]
    passed = re.search(r"(\d+) passed", ran.stdout)
    assert passed is not None and int(passed[1]) > 350, ran.stdout[-2_000:]


async def every_list_is_the_same(one: httpx.AsyncClient, other: httpx.AsyncClient) -> None:
    paths = (await one.get("/openapi.json")).json()["paths"]
    lists = [path for path, methods in paths.items() if "get" in methods and "{" not in path]
    assert len(lists) > 12
    for path in set(lists) - {"/metrics", "/stt", "/readyz"}:
        here, there = await one.get(path), await other.get(path)
        assert here.status_code == there.status_code < 500, (path, here.text, there.text)


async def files_and_events(one: httpx.AsyncClient, other: httpx.AsyncClient, hook: str) -> None:
    body = {"url": hook, "events": ["tts.completed"]}
    made = await one.post("/webhooks", json=body)
    assert made.status_code == 201, made.text
    listed = (await other.get("/webhooks")).json()["webhooks"]
    assert made.json()["id"] in {webhook["id"] for webhook in listed}
    spoken = await other.post("/tts-synthesize", json={"text": "Kept in the store."})
    assert spoken.status_code == 200, spoken.text
    deliveries = f"/webhooks/{made.json()['id']}/deliveries"
    async with asyncio.timeout(PATIENCE_S):
        while not (await one.get(deliveries)).json()["data"]:
            await asyncio.sleep(0.2)


async def chats(one: httpx.AsyncClient, other: httpx.AsyncClient) -> None:
    messages = [{"role": "user", "content": "Remember."}]
    body = {"messages": messages, "stream": False}
    begun = (await one.post("/v1/chat/completions", json=body)).json()
    body |= {"chat_id": begun["chat_id"]}
    assert (await other.post("/v1/chat/completions", json=body)).status_code == 200
    kept = (await one.get(f"/chats/{begun['chat_id']}")).json()
    assert len(kept["messages"]) == 4, kept


async def idempotent_requests(one: httpx.AsyncClient, other: httpx.AsyncClient) -> None:
    headers, body = {"Idempotency-Key": uuid4().hex}, {"text": "Once."}
    here = await one.post("/tts-synthesize", json=body, headers=headers)
    there = await other.post("/tts-synthesize", json=body, headers=headers)
    assert there.headers["Idempotency-Replayed"] == "true" and there.json() == here.json()


async def sign_up(client: httpx.AsyncClient) -> dict[str, str]:
    body = {"email": f"{uuid4().hex}@example.com", "password": "a long password"}
    answer = await client.post("/auth/signup", json=body)
    assert answer.status_code == 201, answer.text
    return {"Authorization": f"Bearer {answer.json()['token']}"}


async def ended_accounts(one: httpx.AsyncClient, other: httpx.AsyncClient) -> None:
    auth = await sign_up(one)
    assert (await other.get("/billing/usage", headers=auth)).status_code == 200
    assert (await other.post("/auth/logout", headers=auth)).status_code == 200
    deadline = time.monotonic() + 6  # caches last 5 s
    while (await one.get("/billing/usage", headers=auth)).status_code != 401:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.2)


async def limits(one: httpx.AsyncClient, other: httpx.AsyncClient) -> None:
    auth = await sign_up(other)
    allowed = int((await one.get("/default-voices", headers=auth)).headers["X-RateLimit-Limit"])
    statuses = [
        (await (one, other)[number % 2].get("/default-voices", headers=auth)).status_code
        for number in range(allowed)
    ]
    assert statuses == [200] * (allowed - 1) + [429]


async def official_client(client: openai.AsyncOpenAI) -> None:
    speech = await client.audio.speech.create(
        model="tts-1", voice="alloy", input="Said to the second machine.", response_format="wav"
    )
    sound = io.BytesIO(speech.content)
    heard = await client.audio.transcriptions.create(model="whisper-1", file=("a.wav", sound))
    assert heard.usage is not None and heard.usage.type == "duration"
    stream = await client.chat.completions.create(
        model="svc/echo", messages=[{"role": "user", "content": "hello there"}], stream=True
    )
    words = [part.choices[0].delta.content or "" async for part in stream if part.choices]
    assert len([word for word in words if word]) > 1
    async with client.realtime.connect(model="gpt-realtime") as session:
        assert (await session.recv()).type == "session.created"
        silence = base64.b64encode(bytes(4800)).decode()
        await session.input_audio_buffer.append(audio=silence)
        await session.response.create(response={"instructions": "Say hello."})
        async with asyncio.timeout(PATIENCE_S):
            async for event in session:
                assert event.type != "error", event
                if event.type == "response.done":
                    assert event.response.status == "completed", event
                    break
