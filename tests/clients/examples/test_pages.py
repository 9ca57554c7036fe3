"""The pages of docs/examples in Chromium: captions of a spoken microphone, speech as a stream."""

import wave
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import pytest

from api.services import Services
from models.weights.store import WeightStore
from tests.api.local_server import local_settings, serve_services
from tests.api.local_services import local_services
from tests.api.replaced import with_infrastructure
from tests.clients.browser import open_url
from tests.clients.conftest import dialogue_services
from tests.clients.examples.programs import running
from tests.clients.microphone import RATE
from tests.clients.waiting import MEASURE_SOUND, run, wait_until
from tests.hostile.audio_files import wav
from tests.servers import free_port

# Keeps what an element has shown, and the texts are replaced within it.
KEEP = """((id) => {
    window.kept = [];
    const node = document.getElementById(id);
    new MutationObserver(() => kept.push(node.textContent)).observe(node, {childList: true});
})"""


@dataclass(frozen=True)
class Pages:
    url: str
    service: str


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory, weights: WeightStore) -> Iterator[Pages]:
    with served(dialogue_services(tmp_path_factory.mktemp("pages"), weights)) as made:
        yield made


@contextmanager
def served(services: Services, program: str = "page_server.py") -> Iterator[Pages]:
    """The page server beside a service that lets its pages call it."""
    port = free_port()
    url = f"http://localhost:{port}"
    settings = replace(services.infrastructure.settings, cors_origins=(url,))
    services = with_infrastructure(services, settings=settings)
    with (
        serve_services(services) as server,
        running(
            program,
            port=port,
            PAGE_PORT=str(port),
            SERVICE=server.url,
            ANTIPHON_KEY=server.key,
        ),
    ):
        yield Pages(url, server.url)


@pytest.fixture
def microphone(sentences: Path, tmp_path: Path) -> Path:
    with wave.open(str(sentences / "weather.wav")) as file:
        said = file.readframes(file.getnframes())
    path = tmp_path / "microphone.wav"
    path.write_bytes(wav(bytes(RATE * 4) + said + bytes(RATE * 8), rate=RATE))
    return path


@pytest.mark.weights
@pytest.mark.slow
def test_captions_show_what_is_said_while_it_is_said(pages: Pages, microphone: Path) -> None:
    # A busy machine may begin to listen after the first time that it is said.
    with open_url(pages.url, "captions.html", microphone, again=True) as page:
        page.call(KEEP, "interim")
        run(page, "document.getElementById('toggle').click()")
        heard = "document.getElementById('texts').textContent.includes('weather') && 'heard'"
        state = "document.getElementById('state').textContent.replace('Speak …', '')"
        assert wait_until(page, f"{heard} || {state}") == "heard"  # else it ended with that error
        assert any(run(page, "kept")), "no interim text was shown"
        run(page, "document.getElementById('toggle').click()")
        wait_until(page, "/^[\\d.]+ s$/.test(document.getElementById('state').textContent)")
        wait_until(page, "document.getElementById('toggle').textContent === 'Start'")


@pytest.mark.weights
@pytest.mark.slow
def test_speech_sounds_before_it_is_whole(pages: Pages, tmp_path: Path) -> None:
    with open_url(pages.url, "speech.html", tmp_path / "none.wav") as page:
        page.call(MEASURE_SOUND)
        page.call(KEEP, "state")
        run(page, "document.getElementById('form').requestSubmit()")
        wait_until(page, "document.getElementById('state').textContent === 'done'")
        assert "speaks" in run(page, "kept")
        assert run(page, "loudest") > 0.05
        run(page, "document.getElementById('form').requestSubmit()")
        wait_until(page, "document.getElementById('state').textContent === 'speaks'")
        run(page, "document.getElementById('stop').click()")
        wait_until(page, "document.getElementById('state').textContent === 'stopped'")


@pytest.mark.parametrize("program", ["page_server.py", "page_server.mjs"])
def test_a_visitor_gets_a_token_for_speech_alone(tmp_path: Path, program: str) -> None:
    with served(local_services(local_settings(tmp_path)), program) as pages:
        given = httpx.post(f"{pages.url}/token").json()
        assert given["service"] == pages.service and given["token"].startswith("tk_")
        headers = {"Authorization": f"Bearer {given['token']}"}
        for path in ("/chats", "/billing/usage", "/developer/api"):
            refused = httpx.get(f"{pages.service}{path}", headers=headers)
            assert refused.json()["error"] == "insufficient_scope"
        assert httpx.get(f"{pages.url}/page_server.py").status_code == 404
        assert httpx.get(f"{pages.url}/").status_code == 404
