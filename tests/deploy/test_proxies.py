"""nginx and Caddy with the files of deploy/, in front of the gateway: only addresses, certificates
and folders are replaced."""

import io
import json
import os
import shutil
import ssl
import tempfile
import threading
import wave
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import httpx
import pytest
import trustme
from websockets.sync.client import connect

from api.http.uploads import MAX_FILE_BYTES
from configs.settings import PROJECT_DIR
from models.audio import AudioChunk
from models.llm.base import GenerationDelta, GenerationRequest
from models.registry import CHAT, TTS, load_model
from models.tts.base import SynthesisRequest
from models.weights.store import WeightStore
from tests.api.local_server import local_settings, serve_services
from tests.api.local_services import local_services
from tests.engines import ECHO, TONE
from tests.local_ports import LocalChatModel, LocalTTSModel
from tests.patience import PATIENCE_S, until
from tests.servers import HOW_TO_INSTALL, Server, free_port

DEPLOY = PROJECT_DIR / "deploy"
PROXIES = ("nginx", "caddy")
CLIENT = "127.0.0.9"  # the address of clients; the proxy has 127.0.0.1
TEXT = "The harbour lay still, and nothing moved on the water until the ship arrived."


class Gate:
    """Where engines wait in the middle of their work; `left` is set when a client has gone."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.left = threading.Event()

    async def wait(self) -> None:
        await until(self.open.is_set)


class GatedVoice(LocalTTSModel):
    """Stops after a second of audio until the gate opens."""

    gate = Gate()

    async def synthesize(self, request: SynthesisRequest) -> AsyncGenerator[AudioChunk, None]:
        number = 0
        try:
            async for chunk in super().synthesize(request):
                yield chunk
                if (number := number + 1) == 10:
                    await self.gate.wait()
        except BaseException:
            self.gate.left.set()
            raise


class GatedChat(LocalChatModel):
    """Stops after two words until the gate opens."""

    gate = Gate()

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[GenerationDelta, None]:
        number = 0
        async for delta in super().generate(request):
            yield delta
            if (number := number + 1) == 2:
                await self.gate.wait()


@pytest.fixture(autouse=True)
def gate() -> Gate:
    GatedVoice.gate = GatedChat.gate = fresh = Gate()
    return fresh


@dataclass(frozen=True)
class Site:
    """The proxy's address, what its certificate is checked with, and a key of the service."""

    proxy: str
    address: str
    redirect: str
    trust: ssl.SSLContext
    key: str
    folder: Path  # with its logs

    def client(self) -> httpx.Client:
        return httpx.Client(
            base_url=f"https://{self.address}",
            headers={"Authorization": f"Bearer {self.key}"},
            transport=httpx.HTTPTransport(verify=self.trust, local_address=CLIENT),
            timeout=PATIENCE_S,
        )


@pytest.fixture(scope="module", params=PROXIES)
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    program = shutil.which(request.param)
    if program is None:
        pytest.skip(f"no {request.param} on this machine; {HOW_TO_INSTALL}")
    # Not in the folder of pytest, whose name may mean something in a configuration.
    with tempfile.TemporaryDirectory(prefix="antiphon-proxy-", dir="/tmp") as name:
        yield from behind(request.param, program, Path(name))


def behind(name: str, program: str, folder: Path) -> Iterator[Site]:
    settings = replace(local_settings(folder), trusted_proxies=("127.0.0.1",))
    weights = WeightStore(settings.weights_dir)
    echo, info = load_model(CHAT, ECHO, weights)
    services = local_services(
        settings,
        speakers={"tone": GatedVoice(*load_model(TTS, TONE, weights))},
        chat_models={"echo": GatedChat(echo, info)},
    )
    with serve_services(services, settings.trusted_proxies) as server:
        upstream = server.url.removeprefix("http://")
        start = nginx if name == "nginx" else caddy
        with start(program, folder, upstream) as (address, redirect, trust):
            yield Site(name, address, redirect, trust, server.key, folder)


Started = tuple[str, str, ssl.SSLContext]


def replaced(text: str, changes: dict[str, str]) -> str:
    for old, new in changes.items():
        assert old in text, old
        text = text.replace(old, new)
    return text


@contextmanager
def nginx(program: str, folder: Path, upstream: str) -> Iterator[Started]:
    ca = trustme.CA()
    certificate = ca.issue_cert("127.0.0.1")
    certificate.private_key_pem.write_to_path(folder / "key.pem")
    for blob in certificate.cert_chain_pems:
        blob.write_to_path(folder / "chain.pem", append=True)
    port, plain = free_port(), free_port()
    site = replaced(
        (DEPLOY / "nginx.conf").read_text(),
        {
            "listen 80;": f"listen 127.0.0.1:{plain};",
            "listen 443 ssl": f"listen 127.0.0.1:{port} ssl",
            "    listen [::]:80;\n": "",
            "    listen [::]:443 ssl http2;\n": "",
            "speech.example.com;": "127.0.0.1;",
            "/etc/letsencrypt/live/speech.example.com/fullchain.pem": f"{folder}/chain.pem",
            "/etc/letsencrypt/live/speech.example.com/privkey.pem": f"{folder}/key.pem",
            "127.0.0.1:8000": upstream,
            "/var/log/nginx/": f"{folder}/",
        },
    )
    (folder / "site.conf").write_text(site)
    paths = "".join(
        f"{kind}_temp_path {folder}/{kind};"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    user = "user root;" if os.geteuid() == 0 else ""
    (folder / "nginx.conf").write_text(
        f"{user} daemon off; pid {folder}/pid; error_log stderr; events {{}}\n"
        # As Debian's: what a site does not change, it logs with queries.
        f"http {{ {paths} access_log {folder}/access.log; include {folder}/site.conf; }}\n"
    )
    context = ssl.create_default_context()
    ca.configure_trust(context)
    command = [program, "-e", "stderr", "-p", str(folder), "-c", str(folder / "nginx.conf")]
    with serving(command, folder, f"127.0.0.1:{port}", context):
        yield f"127.0.0.1:{port}", f"127.0.0.1:{plain}", context


@contextmanager
def caddy(program: str, folder: Path, upstream: str) -> Iterator[Started]:
    port, plain = free_port(), free_port()
    # A local name or address gets a certificate of Caddy's own authority.
    config = replaced(
        (DEPLOY / "Caddyfile").read_text(),
        {
            "\tskip_install_trust\n": f"\tskip_install_trust\n\thttp_port {plain}\n",
            # The file leaves access logs out; an operator who adds them gets its format.
            "\theader Strict": "\tlog\n\theader Strict",
        },
    )
    (folder / "Caddyfile").write_text(config)
    variables = {
        "SITE": f"https://127.0.0.1:{port}",
        "UPSTREAM": upstream,
        "XDG_DATA_HOME": str(folder),
        "XDG_CONFIG_HOME": str(folder),
        "CADDY_ADMIN": f"127.0.0.1:{free_port()}",
    }
    context = ssl.create_default_context()
    command = [program, "run", "--config", str(folder / "Caddyfile"), "--adapter", "caddyfile"]
    root = folder / "caddy/pki/authorities/local/root.crt"
    with serving(
        command, folder, f"127.0.0.1:{port}", context, root, env={**os.environ, **variables}
    ):
        yield f"127.0.0.1:{port}", f"127.0.0.1:{plain}", context


@contextmanager
def serving(
    command: list[str],
    folder: Path,
    address: str,
    context: ssl.SSLContext,
    root: Path | None = None,
    **options: object,
) -> Iterator[None]:
    """Runs a proxy until the block ends; `root` is the certificate that it makes at its start."""

    def is_ready() -> bool:
        with suppress(httpx.TransportError, OSError):
            if root is not None:
                context.load_verify_locations(root)
            return httpx.get(f"https://{address}/healthz", verify=context).status_code == 200
        return False

    with Server(address, command, is_ready, folder / "proxy.log", dict(options)).running():
        yield


def test_clients_are_sent_to_tls(site: Site) -> None:
    answer = httpx.get(f"http://{site.redirect}/plans?a=b")
    assert answer.status_code == 308
    assert answer.headers["location"].endswith("/plans?a=b")
    with site.client() as client:
        healthy = client.get("/healthz")
    assert healthy.json() == {"status": "ok"}
    assert "max-age" in healthy.headers["strict-transport-security"]


def test_audio_arrives_while_it_is_synthesised(site: Site, gate: Gate) -> None:
    body = {"text": TEXT, "format": "pcm"}
    with site.client() as client, client.stream("POST", "/tts-stream", json=body) as answer:
        assert answer.status_code == 200, answer.read()
        lines = answer.iter_lines()
        assert json.loads(next(lines))
        gate.open.set()
        assert len(list(lines)) > 3


def test_tokens_arrive_one_by_one(site: Site, gate: Gate) -> None:
    body = {"messages": [{"role": "user", "content": "one two three four"}], "stream": True}
    with site.client() as client:
        with client.stream("POST", "/v1/chat/completions", json=body) as answer:
            assert answer.status_code == 200, answer.read()
            lines = (line for line in answer.iter_lines() if line)
            for line in lines:
                if "two" in line:
                    break
            gate.open.set()
            rest = "".join(lines)
    assert "four" in rest and "[DONE]" in rest


def test_a_client_that_leaves_ends_its_work(site: Site, gate: Gate) -> None:
    body = {"text": TEXT, "format": "pcm"}
    with site.client() as client, client.stream("POST", "/tts-stream", json=body) as answer:
        next(answer.iter_lines())
    assert gate.left.wait(PATIENCE_S)


def test_a_websocket_passes_in_both_directions(site: Site) -> None:
    url = f"wss://{site.address}/ws/tts"
    headers = {"Authorization": f"Bearer {site.key}"}
    patient = partial(connect, open_timeout=PATIENCE_S, proxy=None)
    with patient(url, ssl=site.trust, additional_headers=headers) as socket:
        hello = [json.loads(socket.recv(PATIENCE_S)) for _ in range(2)]
        assert "connection_established" in hello[1]
        socket.send("no message of the protocol")
        assert "error" in json.loads(socket.recv(PATIENCE_S))


def recording(size_bytes: int) -> bytes:
    """A silent WAV file of less than ten minutes."""
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(1)
        writer.setsampwidth(2)
        writer.setframerate(24_000)
        writer.writeframes(bytes(size_bytes - 44))
    return file.getvalue()


@pytest.mark.parametrize(
    ("size_bytes", "status"), [(MAX_FILE_BYTES, 200), (MAX_FILE_BYTES + 2, 400)]
)
def test_the_size_of_an_upload_is_that_of_the_service(
    site: Site, size_bytes: int, status: int
) -> None:
    with site.client() as client:
        answer = client.post("/stt", files={"audio": recording(size_bytes)})
    assert answer.status_code == status, answer.text
    if status == 400:
        assert answer.json()["error"] == "file_too_large"


def test_an_upload_far_above_the_limit_is_refused(site: Site) -> None:
    with site.client() as client:
        answer = client.post("/stt", files={"audio": recording(3 * MAX_FILE_BYTES)})
        # Without 502: a proxy sees the answer before the connection is closed.
        assert (answer.status_code, answer.json()["error"]) == (400, "file_too_large")
        assert client.get("/healthz").status_code == 200


def test_the_service_sees_the_address_of_the_client(site: Site) -> None:
    account = {"email": "a@example.com", "password": "correct horse", "name": "A"}
    with site.client() as client:
        forged = {"X-Forwarded-For": "6.6.6.6"}
        made = client.post("/auth/signup", json=account, headers=forged)
        assert made.status_code == 201, made.text
        token = {"Authorization": f"Bearer {made.json()['token']}"}
        (session,) = client.get("/auth/sessions", headers=token).json()["sessions"]
    assert session["address"] == CLIENT


def test_the_metrics_are_not_shown(site: Site) -> None:
    with site.client() as client:
        assert client.get("/metrics").status_code == 404


def test_the_gateway_answers_the_readiness_probe_of_kuberay(site: Site) -> None:
    with site.client() as client:
        assert client.get("/-/healthz").text == "success"


CREDENTIALS = ("apiKey", "api_key", "access_token", "token", "xi-api-key", "authorization", "key")
SECRET = "sk_thisIsNotForLogs"


def test_no_log_of_the_proxy_has_a_credential(site: Site) -> None:
    """Neither of the queries and headers that the dialects read, nor of the paths of telephony."""
    paths = [f"/ws/tts?{name}={SECRET}&language=en" for name in CREDENTIALS]
    paths += [f"/plans?a=b&{name}={SECRET}" for name in CREDENTIALS]
    paths += [
        f"/telephony/twilio/{SECRET}",
        f"/telephony/twilio/{SECRET}?a=b",
        "/metrics?key=" + SECRET,
    ]
    headers = {name: SECRET for name in ("xi-api-key", "x-api-key", "api-key", "authorization")}
    headers |= {
        "sec-websocket-protocol": f"token, {SECRET}",
        "referer": f"https://a.b/?key={SECRET}",
    }
    with httpx.Client(verify=site.trust, timeout=PATIENCE_S) as client:
        for path in paths:
            for url in (f"http://{site.redirect}{path}", f"https://{site.address}{path}"):
                assert client.get(url).status_code < 500
        client.get(f"https://{site.address}/plans?a=b", headers=headers)
        # An error of the gateway, which proxies log with the request.
        broken = {"upgrade": "websocket", "connection": "upgrade"}
        client.get(f"https://{site.address}{paths[0]}", headers=headers | broken)
    logs = [file for file in site.folder.iterdir() if file.suffix == ".log"]
    text = "".join(file.read_text(errors="replace") for file in logs)
    assert "/ws/tts" in text and "/telephony/twilio" in text  # requests are logged
    assert SECRET not in text and "language=en" not in text
