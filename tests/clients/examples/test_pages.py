"""The pages of docs/examples in Chromium: captions and an agent that hear a recording, speech."""

import json
import re
import wave
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import pytest

from api.services import Services
from configs.settings import PROJECT_DIR
from models.weights.store import WeightStore
from tests.api.local_server import local_settings, serve_services
from tests.api.local_services import local_services
from tests.api.replaced import with_infrastructure
from tests.clients.browser import open_url
from tests.clients.conftest import dialogue_services
from tests.clients.dialogue import FAREWELL, GREETING
from tests.clients.examples.programs import running
from tests.clients.microphone import RATE
from tests.clients.test_console_sound import KEEP_SOUND, UNPLUG
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
            ANTIPHON_URL=server.url,
            ANTIPHON_KEY=server.key,
        ),
    ):
        yield Pages(url, server.url)


def microphone(folder: Path, sentence: Path, lead_s: int = 2) -> Path:
    """Writes a recording of the sentence, with silence before and after it."""
    with wave.open(str(sentence)) as file:
        said = file.readframes(file.getnframes())
    path = folder / "microphone.wav"
    path.write_bytes(wav(bytes(RATE * 2 * lead_s) + said + bytes(RATE * 8), rate=RATE))
    return path


@pytest.mark.weights
@pytest.mark.slow
def test_captions_show_what_is_said_while_it_is_said(
    pages: Pages, sentences: Path, tmp_path: Path
) -> None:
    spoken = microphone(tmp_path, sentences / "weather.wav")
    # A busy machine may begin to listen after the first time that it is said.
    with open_url(pages.url, "captions.html", spoken, again=True) as page:
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
def test_an_agent_greets_and_answers_in_a_page(
    pages: Pages, sentences: Path, tmp_path: Path
) -> None:
    spoken = microphone(tmp_path, sentences / "goodbye.wav", lead_s=10)
    with open_url(pages.url, "agent.html", spoken, again=True) as page:
        run(page, "document.getElementById('toggle').click()")
        text = "document.getElementById('transcript').innerText"
        state = "document.getElementById('state').textContent.replace('Speak …', '')"
        wait_until(page, f"{text}.includes({json.dumps(FAREWELL)}) || {state}")
        assert run(page, state) == ""
        greeting, *dialogue = [line for line in run(page, text).splitlines() if line]
        assert greeting == GREETING, (greeting, dialogue)
        assert dialogue[0].startswith("You: ") and "bye" in dialogue[0].lower()
        assert run(page, "document.getElementById('voice').currentTime") > 1
        run(page, "document.getElementById('toggle').click()")
        assert run(page, "document.getElementById('toggle').textContent") == "Start"


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
        guide = (PROJECT_DIR / "docs" / "tasks" / "speech.md").read_text()
        run(page, "loudest = 0")
        program = re.findall(r"```js\n(.*?)```", guide, re.DOTALL)[-1]
        page.call(f"(async () => {{ {program} }})")
        assert run(page, "loudest") > 0.05


@pytest.mark.parametrize("name", ["captions.html", "agent.html"])
def test_a_page_releases_a_microphone_that_it_cannot_use(tmp_path: Path, name: str) -> None:
    with (
        served(local_services(local_settings(tmp_path))) as pages,
        open_url(pages.url, name, tmp_path / "none.wav") as page,
    ):
        page.call(KEEP_SOUND)
        toggle = "document.getElementById('toggle')"
        state = "document.getElementById('state').textContent"
        released = (
            f"tracks.length && tracks.every((one) => one.readyState === 'ended')"
            f" && {toggle}.textContent === 'Start'"
        )
        page.call("(() => { window.fetched = fetch; window.fetch = () => Promise.reject('no'); })")
        run(page, f"{toggle}.click()")
        wait_until(page, released)
        page.call("(() => { window.fetch = fetched; })")
        run(page, f"{toggle}.click()")
        wait_until(page, f"{state} === 'Speak …'")
        page.call(UNPLUG)
        wait_until(page, released)


@pytest.mark.parametrize("program", ["page_server.py", "page_server.mjs"])
def test_a_visitor_gets_credentials_for_speech_alone(tmp_path: Path, program: str) -> None:
    with served(local_services(local_settings(tmp_path)), program) as pages:
        given = httpx.post(f"{pages.url}/token").json()
        assert given["service"] == pages.service and given["token"].startswith("tk_")
        call = httpx.post(f"{pages.url}/client-secret").json()
        assert call["service"] == pages.service and call["secret"].startswith("ek_")
        assert httpx.post(f"{pages.url}/other").status_code == 404
        headers = {"Authorization": f"Bearer {given['token']}"}
        for path in ("/chats", "/billing/usage", "/developer/api"):
            refused = httpx.get(f"{pages.service}{path}", headers=headers)
            assert refused.json()["error"] == "insufficient_scope"
        assert httpx.get(f"{pages.url}/page_server.py").status_code == 404
        assert httpx.get(f"{pages.url}/").status_code == 404
