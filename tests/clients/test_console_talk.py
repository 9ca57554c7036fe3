"""The console's conversation by voice, in Chromium with a spoken microphone."""

import wave
from pathlib import Path

import httpx
import pytest

from models.stt.base import STT_SAMPLE_RATE
from tests.api.local_server import Server
from tests.clients import browser
from tests.clients.browser import Page, open_url
from tests.clients.dialogue import GREETING, STORY
from tests.clients.test_console_browser import page, run, submit, wait_until
from tests.hostile.audio_files import wav

__all__ = ["page"]  # a fixture

# Keeps the loudest sample that was played in `loudest`.
LISTEN = """(() => {
    const connect = AudioNode.prototype.connect;
    window.loudest = 0;
    AudioNode.prototype.connect = function (target, ...rest) {
        if (target !== this.context.destination) return connect.call(this, target, ...rest);
        const meter = new AnalyserNode(this.context);
        const samples = new Float32Array(meter.fftSize);
        setInterval(() => {
            meter.getFloatTimeDomainData(samples);
            window.loudest = samples.reduce((most, one) => Math.max(most, one), window.loudest);
        }, 20);
        connect.call(meter, target);
        return connect.call(this, meter);
    };
})"""
SAID = "[...document.querySelectorAll('#talk p')].map((line) => [line.className, line.textContent])"


@pytest.fixture
def microphone(tmp_path: Path, sentences: Path) -> Path:
    """Asks for a story, and interrupts it."""
    pcm = bytearray(4 * STT_SAMPLE_RATE * 2)  # silence, until the session has begun
    for name, silence_s in (("story", 5), ("stop", 1)):
        with wave.open(str(sentences / f"{name}.wav")) as file:
            pcm += file.readframes(file.getnframes())
        pcm += bytes(silence_s * STT_SAMPLE_RATE * 2)
    path = tmp_path / "microphone.wav"
    path.write_bytes(wav(bytes(pcm), rate=STT_SAMPLE_RATE))
    return path


def enter(page: Page, key: str) -> None:
    wait_until(page, "typeof enter === 'function' && at('work').hidden")
    submit(page, "key-form", key=key)
    wait_until(page, "!at('work').hidden")


def refusal(page: Page, **fields: str) -> str:
    """What the page says, when the conversation did not begin."""
    submit(page, "talk-form", **fields)
    said = str(wait_until(page, "at('status').className === 'bad' && STATUS"))
    wait_until(page, "document.querySelector('#talk-form button').textContent === 'Talk'")
    return said


@pytest.mark.weights
def test_a_story_is_heard_and_interrupted(agent_server: Server, microphone: Path) -> None:
    with open_url(agent_server.url, "console", microphone) as page:
        enter(page, agent_server.key)
        page.call(LISTEN)
        submit(page, "talk-form")
        wait_until(page, "STATUS === 'Speak …'")
        wait_until(page, "at('talk').textContent.includes('beside the sea')")
        assert run(page, "loudest") > 0.05
        wait_until(page, "document.querySelectorAll('#talk p').length === 4")
        wait_until(page, f"{SAID}[3][1].length === {len(GREETING)}")
        asked, story, stopped, answer = run(page, SAID)
        assert asked[0] == stopped[0] == "user"
        assert "story" in asked[1] and "enough" in stopped[1]
        assert story[0] == "assistant" and STORY.startswith(story[1][:60])
        assert len(story[1]) < len(STORY) / 2  # what was heard
        assert answer == ["assistant", GREETING]

        submit(page, "talk-form")  # hangs up
        wait_until(page, "hangUp === null && sockets.size === 0 && STATUS === ''")
        assert run(page, "at('talk').textContent") != ""
        run(page, "leave()")
        assert run(page, "at('talk').textContent") == ""


def test_a_credential_that_ends_ends_the_conversation(page: Page, tone_server: Server) -> None:
    enter(page, tone_server.key)
    submit(page, "talk-form")
    wait_until(page, "STATUS === 'Speak …'")
    run(page, "leave()")  # what a refused credential does
    wait_until(page, "hangUp === null && sockets.size === 0")


def test_what_is_wrong_is_shown(page: Page, tone_server: Server) -> None:
    answer = httpx.post(
        f"{tone_server.url}/developer/api",
        headers={"Authorization": f"Bearer {tone_server.key}"},
        json={"name": "hears and speaks", "scopes": ["stt", "tts"]},
    )
    enter(page, answer.raise_for_status().json()["key"])
    assert refusal(page) == "the API key lacks the scope 'chat'"
    run(page, "leave()")
    enter(page, tone_server.key)
    assert "no voice has that name" in refusal(page, agent_voice="none such")


def test_a_user_who_allows_no_microphone_reads_why(
    tone_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asking = [flag for flag in browser.FLAGS if flag != "--use-fake-ui-for-media-stream"]
    monkeypatch.setattr(browser, "FLAGS", asking)
    with browser.open_url(tone_server.url, "console", tmp_path / "none.wav") as page:
        enter(page, tone_server.key)
        permission = {"name": "microphone"}
        page.command("Browser.setPermission", permission=permission, setting="denied")
        assert refusal(page) == "The browser gives no microphone: Permission denied."
