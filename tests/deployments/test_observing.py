"""What an operator sees of a cluster: metrics, logs and what is stored, without users' secrets."""

import asyncio
import base64
import re
import subprocess
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from prometheus_client.parser import text_string_to_metric_families as parse
from prometheus_client.samples import Sample
from redis import Redis
from sqlalchemy import create_engine, make_url, text

from benchmarks.service import free_port
from db.migrate import upgrade
from db.outbox import EVENT_KINDS
from tests.deployments.conftest import TestCluster, gateway_app, until_ready
from tests.deployments.socket_client import listening, speaking
from tests.pipelines.recordings import good_files
from tests.servers import postgres_program

pytestmark = [pytest.mark.ray, pytest.mark.redis, pytest.mark.asyncio(loop_scope="session")]
ON_SQLITE = pytest.mark.parametrize("site", ["sqlite"], indirect=True, scope="module")

CANARY = "Quixotic zephyrs bewilder"
REQUEST_ID = "observed-request-1"
PASSWORD, WRONG_PASSWORD = "long enough canary", "wrong canary password"
SECRET = "whsec_" + base64.b64encode(b"canary of a webhook's secret").decode()
MISTYPED_KEY = "sk_" + "Canary0" * 6 + "Cana"
CONSENT = "Ottoline agreed to it, as nobody else may know."
FILE_NAME = "ottoline-in-the-kitchen"


@dataclass
class Site:
    """A gateway with its data and its Redis, and what nobody but its user may know."""

    url: str
    data: Path
    redis_url: str
    database_url: str
    secrets: dict[str, bytes] = field(default_factory=dict)
    in_database: dict[str, bytes] = field(
        default_factory=dict
    )  # what may lie there and nowhere else


@pytest.fixture(scope="module")
def site(
    request: pytest.FixtureRequest,
    ray_cluster: TestCluster,
    tmp_path_factory: pytest.TempPathFactory,
    redis_url: str,
) -> Iterator[Site]:
    data, port = tmp_path_factory.mktemp("observed"), free_port()
    database_url = f"sqlite:///{data / 'antiphon.db'}"
    if request.param == "postgresql":
        database_url = new_database(request.getfixturevalue("postgres_url"))
    upgrade(database_url)
    Redis.from_url(redis_url).flushall()
    environment = {"ANTIPHON_DATA": str(data), "PORT": str(port), "HOST": "127.0.0.1"}
    environment |= {"REDIS_URL": redis_url, "DATABASE_URL": database_url}
    ray_cluster.extra_apps = [gateway_app(environment)]
    ray_cluster.deploy()
    yield Site(f"http://127.0.0.1:{port}", data, redis_url, database_url)
    ray_cluster.extra_apps = []
    ray_cluster.deploy()


def new_database(server_url: str) -> str:
    """On a server that lives for the test run."""
    name, server = f"observed_{uuid.uuid4().hex}", make_url(server_url)
    engine = create_engine(server, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    engine.dispose()
    plain = server.set(drivername="postgresql", database=name)
    return plain.render_as_string(hide_password=False)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def client(site: Site) -> AsyncIterator[httpx.AsyncClient]:
    """Signed in, after `say_everything`."""
    headers = {"X-Request-Id": REQUEST_ID}
    async with httpx.AsyncClient(base_url=site.url, timeout=30, headers=headers) as made:
        await until_ready(made)
        await say_everything(made, site)
        yield made


async def say_everything(made: httpx.AsyncClient, site: Site) -> None:
    """Signs in and uses every path, with a canary in each; `site.secrets` has them all."""
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


async def samples(client: httpx.AsyncClient) -> list[Sample]:
    page = await client.get("/metrics")
    assert page.status_code == 200, page.text
    return [sample for family in parse(page.text) for sample in family.samples]


def total(found: list[Sample], name: str, **labels: str) -> float:
    return sum(
        one.value for one in found if one.name == name and labels.items() <= one.labels.items()
    )


@ON_SQLITE
async def test_one_page_shows_every_process(client: httpx.AsyncClient) -> None:
    wanted = {"Gateway", "TTSFast", "STT", "Chat"}
    deadline = time.monotonic() + 20
    while True:
        found = await samples(client)
        spoke = total(found, "antiphon_tts_audio_seconds_total", deployment="TTSFast")
        chatted = total(found, "antiphon_chat_tokens_total", deployment="Chat")
        seen = {sample.labels["deployment"] for sample in found}
        if wanted <= seen and spoke and chatted:
            break
        assert time.monotonic() < deadline, (seen, spoke, chatted)
        await asyncio.sleep(0.5)
    requests = "antiphon_http_requests_total"
    assert total(found, requests, deployment="Gateway", route="/tts-synthesize", status="200") >= 1
    assert total(found, "antiphon_calls_total", target="TTSFast", outcome="ok") >= 1
    assert total(found, "antiphon_tts_queue_seconds_count", deployment="TTSFast") >= 1
    assert total(found, "antiphon_models_ready", target="Chat") >= 1
    assert total(found, "antiphon_loop_lag_seconds_count", deployment="STT") >= 1


@ON_SQLITE
async def test_no_counter_goes_back_between_two_looks(client: httpx.AsyncClient) -> None:
    before: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    for _ in range(8):
        for sample in await samples(client):
            if sample.name.endswith(("_total", "_count", "_bucket")):
                key = (sample.name, tuple(sorted(sample.labels.items())))
                assert sample.value >= before.get(key, 0), key
                before[key] = sample.value
        await client.get("/plans")
        await asyncio.sleep(0.2)


@ON_SQLITE
async def test_replicas_log_the_id_of_the_request_that_they_serve(
    client: httpx.AsyncClient,
) -> None:
    deadline = time.monotonic() + 10
    while True:
        lines = [line for line in logs().splitlines() if f'"{REQUEST_ID}"' in line]
        loggers = {name for name in ("deployments.model", "api.access") if name in "\n".join(lines)}
        if loggers == {"deployments.model", "api.access"}:
            return
        assert time.monotonic() < deadline, lines
        await asyncio.sleep(0.2)


@pytest.mark.parametrize(
    "site",
    ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)],
    indirect=True,
    scope="module",
)
async def test_no_secret_and_nothing_that_users_said_lies_anywhere(
    client: httpx.AsyncClient, site: Site
) -> None:
    found = await asyncio.to_thread(stored, site)
    database = b"".join(found.pop(name) for name in list(found) if name.startswith("antiphon.db"))
    for kept in (b"observer@example.com", *site.in_database.values()):
        assert kept in database, "nothing is found there"
    assert sum("file_" in name for name in found) > len(good_files())
    found["metrics"] = (await client.get("/metrics")).content
    found["logs"] = logs().encode()
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
    """Everything that is kept, by where it lies."""
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
    """All that a database of PostgreSQL holds: as text, and what of it is bytes as these."""
    program = postgres_program("pg_dump")
    assert program is not None, "it comes with the server"
    plain = subprocess.run([program, f"--dbname={url}"], check=True, capture_output=True).stdout
    found = re.findall(rb"\\\\x((?:[0-9a-f]{2})+)", plain)
    assert found, "digests of keys are bytes"
    return plain + b"\n".join(bytes.fromhex(one.decode()) for one in found)


def logs() -> str:
    """Everything that the processes of this cluster have written."""
    from ray._private import worker

    assert worker._global_node is not None
    folder = Path(worker._global_node.get_logs_dir_path())
    files = [path for path in folder.rglob("*") if path.is_file()]
    return "\n".join(path.read_text(errors="replace") for path in files)
