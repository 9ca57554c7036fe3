"""SIGTERM while requests have 5, 30 and 90 seconds of work left."""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from sqlmodel import Session, func, select
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from benchmarks.harness.service import Service, running_service, upgrade_plan
from configs.environment import sqlite_url
from db.billing.tables import CreditHold, LedgerEntry
from db.chats import ChatEntry
from db.database import make_engine
from pipelines.agents.response import INSTRUCTIONS
from tests.api.openai.realtime.client import RealtimeClient
from tests.deployments.gateway.socket_client import speaking
from tests.engines import ECHO, FOLDER
from tests.engines.echo import _WORD
from tests.patience import PATIENCE_S
from tests.promises.conftest import config_without_weights

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(600)]

WORD_S = 0.1  # of the chat model
LEFT_S = (5, 30, 90)
HEAD_S = 4  # of work before the stop
DRAIN_S = 30
SENTENCE, SENTENCE_S = "Said with this calm tone that goes into your end. ", 3.2
STOPPED_WITHIN_S = 60.0


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    echo = yaml.safe_load(Path(ECHO).read_text())
    echo |= {"pause_s": WORD_S, "context_tokens": 4096}
    (tmp_path / "echo.yaml").write_text(yaml.safe_dump(echo))
    config = config_without_weights()
    models = next(app for app in config["applications"] if app["name"] == "models")
    for entry in models["deployments"]:
        chosen = {"Chat": tmp_path / "echo.yaml", "TTSFast": FOLDER / "tone_slow.yaml"}
        if entry["name"] in chosen:
            entry["user_config"] = {"model": str(chosen[entry["name"]])}
    file = tmp_path / "serve.yaml"
    file.write_text(yaml.safe_dump(config))
    command = [sys.executable, "-m", "deployments.main", "--config", str(file), "--num-cpus", "2"]
    with running_service(command) as running:
        upgrade_plan(running)
        yield running


@dataclass
class Answer:
    """What a client got of a request."""

    name: str
    left_s: int
    lines: list[dict[str, Any]]
    ended: bool  # as the protocol has it, and not by the connection
    status: int = 0

    @property
    def failed(self) -> bool:
        return bool(self.lines) and "error" in self.lines[-1] and bool(self.lines[-1]["error"])


def count(left_s: int) -> int:
    """The words of an answer that takes so long after the stop."""
    return round((left_s + HEAD_S) / WORD_S)


async def chat(http: httpx.AsyncClient, left_s: int) -> Answer:
    words = " ".join(f"w{number}" for number in range(count(left_s)))
    body = {"messages": [{"role": "user", "content": words}], "stream": True}
    answer = Answer("chat", left_s, [], ended=False)
    try:
        async with http.stream("POST", "/v1/chat/completions", json=body) as response:
            answer.status = response.status_code
            async for line in response.aiter_lines():
                if line == "data: [DONE]":
                    answer.ended = True
                elif line.startswith("data: "):
                    answer.lines.append(json.loads(line[6:]))
    except httpx.HTTPError:
        pass
    return answer


def speech_text(left_s: int) -> str:
    return ("The harbour lay still, and no ship came in sight. " * 100)[: left_s * 50]


async def speech(http: httpx.AsyncClient, left_s: int) -> Answer:
    answer = Answer("speech", left_s, [], ended=False)
    body = {"text": speech_text(left_s)}
    try:
        async with http.stream("POST", "/tts-stream", json=body) as response:
            answer.status = response.status_code
            async for line in response.aiter_lines():
                answer.lines.append(json.loads(line))
            answer.ended = True
    except httpx.HTTPError:
        pass
    return answer


async def whole(http: httpx.AsyncClient, left_s: int) -> Answer:
    words = " ".join(f"w{number}" for number in range(count(left_s)))
    body = {"messages": [{"role": "user", "content": words}], "stream": False, "save_chat": False}
    answer = Answer("whole", left_s, [], ended=False)
    try:
        response = await http.post("/v1/chat/completions", json=body)
        answer.status, answer.lines, answer.ended = response.status_code, [response.json()], True
    except httpx.HTTPError:
        pass
    return answer


async def socket(service: Service, voice_id: str, left_s: int) -> Answer:
    answer = Answer("socket", left_s, [], ended=False, status=200)
    async with speaking(service.url, service.key, voice_id) as client:
        await client.send(send_text={"text": speech_text(left_s)})
        await client.send(flush_context={})
        while "error" not in (message := await client.receive()):
            answer.lines.append(message)
        answer.ended = await client.ended() == 1001 and "stop" in message["error"]["message"]
        if "flush_completed" not in answer.lines[-1]:
            answer.lines.append(message)
    return answer


def spoken_text(left_s: int) -> str:
    return (SENTENCE * round((left_s + HEAD_S) / SENTENCE_S)).rstrip()


async def agent(service: Service, left_s: int) -> Answer:
    answer = Answer("agent", left_s, [], ended=False, status=200)
    url = f"{service.url.replace('http', 'ws', 1)}/openai/v1/realtime"
    headers = {"Authorization": f"Bearer {service.key}"}
    async with connect(url, additional_headers=headers, max_queue=None) as socket:
        client = RealtimeClient(socket)
        await client.write(spoken_text(left_s))
        options = {"output_modalities": ["audio"], "max_output_tokens": 4000}
        await client.send("response.create", response=options)
        with suppress(ConnectionClosed):
            while True:
                answer.lines.append(await client.receive())
        answer.ended = socket.close_code == 1001 and answer.lines[-1]["type"] == "error"
    if any(line["type"] == "response.done" for line in answer.lines):
        del answer.lines[-1]
    return answer


def transcript(answer: Answer) -> str:
    kind = "response.output_audio_transcript.delta"
    return "".join(line["delta"] for line in answer.lines if line["type"] == kind)


def received(answer: Answer) -> int:
    """The words of a stream."""
    return sum(
        len((choice["delta"].get("content") or "").split())
        for line in answer.lines
        for choice in line.get("choices", [])
    )


@pytest.mark.parametrize("again", [False, True])
async def test_a_stop_ends_each_request_and_charges_what_was_delivered(
    service: Service, again: bool
) -> None:
    headers = {"Authorization": f"Bearer {service.key}"}
    async with httpx.AsyncClient(
        base_url=service.url, headers=headers, timeout=2 * PATIENCE_S
    ) as http:
        voice = (await http.get("/default-voices")).json()["data"][0]["voice_id"]
        works = [chat(http, left_s) for left_s in LEFT_S for _ in range(5)]
        works += [whole(http, 5), whole(http, 90), whole(http, 90)]
        works += [speech(http, 5), speech(http, 90)]
        works += [socket(service, voice, 5), socket(service, voice, 90)]
        works += [agent(service, left_s) for left_s in LEFT_S]
        tasks = [asyncio.create_task(work) for work in works]
        await asyncio.sleep(HEAD_S)
        began = time.monotonic()
        os.kill(service.pid, signal.SIGTERM)
        if again:
            await asyncio.sleep(2)
            os.kill(service.pid, signal.SIGTERM)
            os.kill(service.pid, signal.SIGINT)
        answers = await asyncio.gather(*tasks)
    while Path(f"/proc/{service.pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() - began < STOPPED_WITHIN_S
        await asyncio.sleep(0.1)
    engine = make_engine(sqlite_url(service.data / "antiphon.db"))
    with Session(engine) as session:
        holds = session.exec(select(func.count()).select_from(CreditHold)).one()
        captures = session.exec(select(LedgerEntry).where(LedgerEntry.kind == "capture")).all()
        units = {
            kind: sorted(entry.units for entry in captures if entry.service == kind)
            for kind in ("chat", "tts")
        }
        saved = session.exec(select(func.count()).select_from(ChatEntry)).one()
    engine.dispose()
    assert holds == 0
    for answer in answers:
        assert answer.ended, answer
        # 30 s may just end in time; agents share the voice's engine with seven others.
        if answer.left_s != DRAIN_S and (answer.name, answer.left_s) != ("agent", 5):
            assert answer.failed == (answer.left_s > DRAIN_S), answer
        assert answer.status == (503 if answer.name == "whole" and answer.failed else 200)
    chats = [answer for answer in answers if answer.name == "chat"]
    paid = [count(answer.left_s) + received(answer) for answer in chats]
    wholes = [answer for answer in answers if answer.name == "whole" and not answer.failed]
    paid += [2 * count(answer.left_s) for answer in wholes]
    for answer in (answer for answer in answers if answer.name == "agent"):
        prompt, said = INSTRUCTIONS + " " + spoken_text(answer.left_s), transcript(answer)
        paid.append(len(_WORD.findall(prompt)) + len(said.split()))
        units["tts"].remove(len(said))
    assert units["chat"] == sorted(paid)
    texts = [len(speech_text(left_s)) for left_s in (5, 5, 90, 90)]
    assert units["tts"][:2] == texts[:2] and len(units["tts"]) == 4
    assert all(0 < paid < whole for paid, whole in zip(units["tts"][2:], texts[2:], strict=True))
    assert saved == 2 * len(chats)
