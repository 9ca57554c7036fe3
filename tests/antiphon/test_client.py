"""The client for Python against a service with engines without weights."""

import asyncio
import json
import subprocess
import sys
import threading
import wave
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from io import BytesIO
from pathlib import Path
from typing import Any, ClassVar

import httpx
import pytest
from standardwebhooks import Webhook as Verifier

from antiphon import Antiphon, AsyncAntiphon, ServiceError, SignatureError, verify_webhook
from antiphon.types import ScriptTurn
from antiphon.webhooks import signature_headers, signing_key
from configs.settings import PROJECT_DIR
from models.llm.base import GenerationRequest
from tests.antiphon.cutting_proxy import cutting_proxy
from tests.api.local_server import Server, serve_local
from tests.hostile.audio_files import wav
from tests.local_ports import LocalChatModel
from tests.patience import PATIENCE_S

SPEECH = wav(bytes(2 * 16_000), rate=16_000)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serve_local(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture
def client(server: Server) -> Iterator[Antiphon]:
    with Antiphon(server.url, server.key) as made:
        yield made


def test_every_method_waits_for_its_result(client: Antiphon, tmp_path: Path) -> None:
    with wave.open(BytesIO(client.speak("Good morning.", response_format="wav"))) as spoken:
        assert 0 < spoken.getnframes() == len(spoken.readframes(10**7)) // 2  # a true header
    assert b"".join(client.stream_speech("Good morning.", response_format="pcm"))
    file = tmp_path / "a.wav"
    file.write_bytes(SPEECH)
    for audio in (SPEECH, file, str(file), ("a.wav", SPEECH)):
        assert isinstance(client.transcribe(audio, timestamps=True)["text"], str)
    assert client.chat("Hello")["choices"][0]["message"]["content"]
    told = client.stream_chat([{"role": "user", "content": "Hello"}])
    text = "".join(
        choice["delta"].get("content") or "" for one in told for choice in one.get("choices", ())
    )
    assert text.strip()
    assert client.correct("i cant go")["choices"][0]["message"]["content"]
    assert client.default_voices()["data"] and client.voices()["data"] == []
    assert client.models()["data"] and client.usage()["usage"]
    assert client.create_token(scopes=["tts"])["token"].startswith("tk_")
    assert client.request("GET", "/auth/workspace")["id"]


def test_dictionaries_scripts_and_the_options_of_transcripts(client: Antiphon) -> None:
    made = client.save_dictionary("Products", [{"grapheme": "Nginx", "alias": "engine X"}])
    pls = client.export_dictionary(made["id"])
    client.save_dictionary("Products", pls, dictionary_id=made["id"])
    assert [one["version"] for one in client.dictionaries()["data"]] == [2]
    assert client.dictionary(made["id"], version=1)["entries"][0]["alias"] == "engine X"
    explained = client.explain("Nginx costs $5.", pronunciations=[made["id"]])
    assert explained["sentences"][0]["text"] == "engine X costs five dollars."
    assert client.speak("<speak>Nginx.</speak>", pronunciations=[made["id"]])
    assert client.delete_dictionary(made["id"])["success"]
    turns: list[ScriptTurn] = [{"text": "Hello."}, {"text": "Yes.", "voice": "Bass", "pause": 1}]
    assert len(client.explain(turns)["sentences"]) == 2
    spoken = client.speak_script(turns, output_format="wav")
    assert spoken.startswith(b"RIFF") and len(spoken) > 2 * 24_000
    two = wav(bytes(4 * 16_000), rate=16_000, channels=2)
    heard = client.transcribe(two, multichannel=True, keyterms=["Ann", "Bo"], numerals=True)
    assert heard["utterances"] == [], heard
    with pytest.raises(ServiceError, match="keyterms"):
        client.transcribe(SPEECH, keyterms=["x" * 101])
    assert isinstance(client.translate(SPEECH), str)
    assert client.transcribe(SPEECH, response_format="vtt").startswith("WEBVTT")


def test_a_misspelt_option_is_a_type_error_before_any_request(client: Antiphon) -> None:
    methods: dict[str, tuple[Any, ...]] = {
        "speak": ("Hello.",),
        "stream_speech": ("Hello.",),
        "speak_script": ([{"text": "Hello."}],),
        "explain": ("Hello.",),
        "transcribe": (SPEECH,),
        "chat": ("Hello",),
        "stream_chat": ("Hello",),
        "correct": ("Hello",),
        "create_voice": ("Ann", [SPEECH]),
        "create_token": (),
    }
    for method, arguments in methods.items():
        with pytest.raises(TypeError, match="unexpected keyword argument 'vocie'"):
            getattr(client, method)(*arguments, vocie="Greta")
        too_many = [*arguments, *"abc"]
        with pytest.raises(TypeError, match=rf"^{method}\(\): too many positional arguments"):
            getattr(client, method)(*too_many)
    with pytest.raises(TypeError, match=r"^voice\(\): missing a required argument"):
        client.voice()  # type: ignore[call-arg]
    with (PROJECT_DIR / "README.md").open("rb") as file, pytest.raises(TypeError, match="a path"):
        client.transcribe(file)  # type: ignore[call-overload]


async def test_the_same_methods_are_awaited(server: Server) -> None:
    async with AsyncAntiphon(server.url, server.key) as client:
        assert (await client.speak("Good morning.", response_format="wav")).startswith(b"RIFF")
        pieces = [one async for one in client.stream_speech("Hello.", response_format="pcm")]
        assert b"".join(pieces)
        assert isinstance((await client.transcribe(SPEECH))["text"], str)
        assert isinstance(await client.transcribe(SPEECH, response_format="text"), str)
        assert [event async for event in client.stream_chat("Hello")]


def test_address_and_key_come_from_the_environment(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTIPHON_URL", f"{server.url}/")
    monkeypatch.setenv("ANTIPHON_KEY", server.key)
    with Antiphon() as client:
        assert client.models()["data"]


def test_failures_say_what_the_service_says(server: Server, client: Antiphon) -> None:
    with pytest.raises(ServiceError, match="voice") as unknown:
        client.speak("Hello.", voice="none")
    assert (unknown.value.status, bool(unknown.value.code)) == (404, True)
    with pytest.raises(ServiceError) as streamed:
        list(client.stream_speech("Hello.", voice="none"))
    assert streamed.value.status == 404
    with Antiphon(server.url, "sk_wrong") as other:
        with pytest.raises(ServiceError, match="key") as refused:
            other.models()
    assert (refused.value.status, refused.value.code) == (401, "unauthorized")
    with Antiphon("http://127.0.0.1:9", retries=1) as other, pytest.raises(httpx.ConnectError):
        other.models()
    with pytest.raises(FileNotFoundError):
        client.transcribe(Path("/none.wav"))


class Busy(BaseHTTPRequestHandler):
    """Refuses the first requests as `waits` says, by Retry-After."""

    waits: ClassVar[list[str]] = []
    keys: ClassVar[list[str | None]] = []

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.keys.append(self.headers["Idempotency-Key"])
        body = json.dumps({"error": "overloaded", "message": "later"} if self.waits else {"a": 1})
        self.send_response(503 if self.waits else 200)
        if self.waits:
            self.send_header("Retry-After", self.waits.pop(0))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def busy() -> Iterator[str]:
    Busy.keys.clear()
    with HTTPServer(("127.0.0.1", 0), Busy) as http:
        thread = threading.Thread(target=http.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{http.server_port}"
        http.shutdown()
        thread.join()


@pytest.mark.parametrize("waits", [["0"], ["0", "Wed, 21 Oct 2026 07:28:00 GMT"], ["-1", "nan"]])
def test_a_busy_service_is_asked_again_for_the_same_work(busy: str, waits: list[str]) -> None:
    Busy.waits[:] = waits
    with Antiphon(busy) as client:
        assert client.request("POST", "/any", json={}) == {"a": 1}
    assert len(Busy.keys) == len(waits) + 1 and len({*Busy.keys}) == 1 and Busy.keys[0]


async def test_who_is_to_wait_long_is_told(busy: str) -> None:
    async with AsyncAntiphon(busy, retries=2) as client:
        Busy.waits[:] = ["3600"]
        with pytest.raises(ServiceError, match="later") as late:
            await client.request("POST", "/any", json={})
        told = (late.value.status, late.value.code, late.value.retry_after_s)
        assert told == (503, "overloaded", 3600)
        Busy.waits[:] = ["0", "0", "0"]
        with pytest.raises(ServiceError):
            await client.request("POST", "/any", json={})
    assert Busy.waits == []


async def test_work_that_outlives_its_connection_is_awaited(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    generate = LocalChatModel.generate
    began = threading.Event()
    requests = 0

    async def slow(model: LocalChatModel, request: GenerationRequest) -> AsyncIterator[Any]:
        nonlocal requests
        requests += 1
        began.set()
        await asyncio.sleep(4)  # longer than two retries
        async for delta in generate(model, request):
            yield delta

    monkeypatch.setattr(LocalChatModel, "generate", slow)
    async with (
        cutting_proxy(server.url.removeprefix("http://")) as proxy,
        AsyncAntiphon(f"http://{proxy.address}", server.key) as client,
    ):
        asking = asyncio.ensure_future(client.chat("Hello"))
        assert await asyncio.to_thread(began.wait, PATIENCE_S)
        proxy.cut()
        assert (await asking)["choices"][0]["message"]["content"]
    assert requests == 1


SECRET = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="


@pytest.mark.parametrize("secret", [SECRET, "a secret of my own"])
def test_messages_of_webhooks_are_verified(secret: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 1_800_000_000.0)
    body = b'{"type": "voice.ready"}'
    headers = signature_headers("ev_1", 1_800_000_000, body, [signing_key(secret)])
    titled = {name.title(): value for name, value in headers.items()}
    assert verify_webhook(titled, body, secret) == {"type": "voice.ready"}
    for wrong_headers, wrong_body, wrong_secret in (
        (titled, body + b" ", secret),
        (titled, body, "another secret of mine"),
        ({**titled, "Webhook-Timestamp": "1799999000"}, body, secret),
        ({**titled, "Webhook-Id": "ev_2"}, body, secret),
        ({}, body, secret),
    ):
        with pytest.raises(SignatureError):
            verify_webhook(wrong_headers, wrong_body, wrong_secret)
    with pytest.raises(ValueError, match="base64") as wrong:  # the receiver's own fault
        verify_webhook(titled, body, "whsec_no base64")
    assert not isinstance(wrong.value, SignatureError)


def test_signatures_are_those_of_the_published_vector_and_of_the_reference_library() -> None:
    """The vector is in the tests of all reference libraries of Standard Webhooks."""
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    event_id = "msg_p5jXN8AQM9LWM0D4loKWxJek"
    body = b'{"test": 2432232314}'
    headers = signature_headers(event_id, 1614265330, body, [signing_key(secret)])
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    sent_at = datetime.fromtimestamp(1614265330, tz=UTC)
    signature = Verifier(secret).sign(event_id, sent_at, body.decode())
    assert headers["webhook-signature"] == signature


def test_the_types_are_those_of_the_openapi_document() -> None:
    command = [sys.executable, "-m", "tools.client_types", "--check"]
    done = subprocess.run(command, cwd=PROJECT_DIR, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
