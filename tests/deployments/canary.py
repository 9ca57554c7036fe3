"""Uses every path of a service with canary strings, and searches its stores and logs for them."""

import asyncio
import base64
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from psycopg.conninfo import make_conninfo
from redis import Redis
from sqlalchemy import make_url

from db.database import postgres_parameters
from db.webhooks import EVENT_KINDS
from deployments.cli.backup import postgres_program
from tests.deployments.gateway.socket_client import listening, speaking
from tests.pipelines.voices.recordings import good_files

CANARY = "Quixotic zephyrs bewilder"
PASSWORD, WRONG_PASSWORD = "long enough canary", "wrong canary password"
SECRET = "whsec_" + base64.b64encode(b"canary of a webhook's secret").decode()
MISTYPED_KEY = "sk_" + "Canary0" * 6 + "Cana"
CONSENT = "Ottoline agreed to it, as no other may know."
FILE_NAME = "ottoline-in-the-kitchen"


@dataclass
class Site:
    """A gateway, its data folder, logs and databases, and the secrets of its user."""

    url: str
    data: Path
    logs: Path
    redis_url: str
    database_url: str
    secrets: dict[str, bytes] = field(default_factory=dict)
    in_database: dict[str, bytes] = field(
        default_factory=dict
    )  # what only the database may contain


async def say_everything(made: httpx.AsyncClient, site: Site) -> None:
    """Signs up and uses every path with a canary in each; adds all of them to `site.secrets`."""
    person = {"email": "observer@example.com", "password": PASSWORD}
    answer = await made.post("/auth/signup", json=person)
    assert answer.status_code == 201, answer.text
    token = answer.json()["token"]
    assert (await made.post("/auth/login", json=person)).status_code == 200
    wrong = await made.post("/auth/login", json={**person, "password": WRONG_PASSWORD})
    assert wrong.status_code == 401
    made.headers["Authorization"] = f"Bearer {MISTYPED_KEY}"
    assert (await made.get("/plans")).status_code == 401
    made.headers["Authorization"] = f"Bearer {token}"
    key = (await made.post("/developer/api", json={"name": "observed"})).json()["key"]
    site.secrets = {
        "what was said": CANARY.encode(),
        "a word of it": b"bewilder",
        "the password": PASSWORD.encode(),
        "a wrong password": WRONG_PASSWORD.encode(),
        "the webhook's secret": SECRET.encode(),
        "its bytes": base64.b64decode(SECRET.removeprefix("whsec_")),
        "the token": token.encode(),
        "the API key": key.encode(),
        "a mistyped key": MISTYPED_KEY.encode(),
    }
    made.headers["Authorization"] = f"Bearer {key}"
    hook = {"url": "https://hooks.example.com/", "events": list(EVENT_KINDS), "secret": SECRET}
    assert (await made.post("/webhooks", json=hook)).status_code == 201
    body = {"text": CANARY, "output_format": "wav"}
    spoken = await made.post("/tts-synthesize", json=body, headers={"Idempotency-Key": "1"})
    assert spoken.status_code == 200, spoken.text
    audio = base64.b64decode(spoken.json()["audio_base64"])
    site.secrets["how it sounded"] = audio[len(audio) // 2 :][:4096]
    assert (await made.post("/tts-stream", json={"text": CANARY})).status_code == 200
    heard = await made.post("/stt", files={"audio": (f"{CANARY}.wav", audio)})
    assert heard.status_code == 200, heard.text
    messages = [{"role": "user", "content": CANARY}]
    chat = {"messages": messages, "stream": False}
    said = await made.post("/v1/chat/completions", json=chat, headers={"Idempotency-Key": "2"})
    assert said.status_code == 200, said.text
    assert (await made.post("/tts-synthesize", json={**body, "speed": 17})).status_code == 400
    voice_id = (await made.get("/default-voices")).json()["data"][0]["voice_id"]
    async with speaking(site.url, key, voice_id) as socket:
        assert await socket.speak(CANARY) == "flush_completed"
    async with listening(site.url, key) as socket:
        await socket.send(type="test", message=CANARY, timestamp=1)
        await socket.until("test_response")
    await ask_for_a_voice(made, site)


async def ask_for_a_voice(made: httpx.AsyncClient, site: Site) -> None:
    recordings = good_files()
    fields = {"name": "Ottoline", "language": "en", "consent": CONSENT}
    parts = [("files", (f"{FILE_NAME}-{name}", data)) for name, data in recordings]
    answer = await made.post("/voices", data=fields, files=parts, timeout=60)
    assert answer.status_code == 201, answer.text
    site.secrets["the name of a recording"] = FILE_NAME.encode()
    for name, data in recordings:
        site.secrets[f"the recording {name}"] = data[len(data) // 2 :][:1024]
    site.in_database = {"the consent": CONSENT.encode(), "whose voice it is": b"Ottoline"}


async def check_that_nothing_leaked(made: httpx.AsyncClient, site: Site) -> None:
    """Asserts that no secret is found in stores, metrics or logs; call after `say_everything`."""
    found = await asyncio.to_thread(stored, site)
    database = b"".join(found.pop(name) for name in list(found) if name.startswith("antiphon.db"))
    for kept in (b"observer@example.com", *site.in_database.values()):
        assert kept in database, "nothing is found there"
    assert sum("file_" in name for name in found) > len(good_files())
    found["metrics"] = (await made.get("/metrics")).content
    found["logs"] = written(site.logs).encode()
    for what in (b"observer@example.com", *site.in_database.values()):
        assert [where for where, text in found.items() if what in text] == []
    found["database"] = database
    leaks = [
        (what, where)
        for what, secret in site.secrets.items()
        for where, text in found.items()
        if secret in text
    ]
    assert leaks == []


def stored(site: Site) -> dict[str, bytes]:
    """Everything that is stored, by file or store."""
    found = {
        str(path.relative_to(site.data)): path.read_bytes()
        for path in site.data.rglob("*")
        if path.is_file()
    }
    with Redis.from_url(site.redis_url) as server:
        keys = list(server.scan_iter())
        assert keys, "limits are kept there"
        found["redis"] = b"".join(key + (server.dump(key) or b"") for key in keys)
    if site.database_url.startswith("postgresql"):
        found["antiphon.db"] = dump(site.database_url)
    return found


def dump(url: str) -> bytes:
    """The dump of a PostgreSQL database as text, followed by its bytea values as bytes."""
    program = postgres_program("pg_dump")
    assert program is not None, "it comes with the server"
    address = make_conninfo(**postgres_parameters(make_url(url)))
    plain = subprocess.run([program, f"--dbname={address}"], check=True, capture_output=True).stdout
    found = re.findall(rb"\\\\x((?:[0-9a-f]{2})+)", plain)
    assert found, "digests of keys are bytes"
    return plain + b"\n".join(bytes.fromhex(one.decode()) for one in found)


def written(logs: Path) -> str:
    """All log files that the processes of a cluster wrote in the folder `logs`."""
    files = [path for path in logs.rglob("*") if path.is_file()]
    return "\n".join(path.read_text(errors="replace") for path in files)
