"""The console's conversation by voice, in Chromium with a spoken microphone."""

import wave
from pathlib import Path

import httpx
import pytest

from models.stt.base import STT_SAMPLE_RATE
from tests.api.local_server import Server
from tests.clients import browser
from tests.clients.browser import Page, open_url
from tests.clients.console_page import (
    enter,
    expect,
    expect_part,
    fill,
    go,
    press,
    run,
    sign_out,
    unfold,
    wait_until,
)
from tests.clients.dialogue import FAREWELL, GREETING, STORY
from tests.clients.test_console_browser import page
from tests.clients.test_console_work import KEEP_FRAMES
from tests.clients.waiting import MEASURE_SOUND
from tests.hostile.audio_files import wav

__all__ = ["page"]  # a fixture

TURNS = "[...document.querySelectorAll('.talk .turn')]"
SAID = f"{TURNS}.map((one) => [one.dataset.who, one.querySelector('.said-text').textContent])"
IDLE = "button('Start talking')"


def dialogue(path: Path, sentences: Path, said: dict[str, int]) -> Path:
    """A microphone that says sentences, each followed by seconds of silence."""
    pcm = bytearray(4 * STT_SAMPLE_RATE * 2)  # silence, until the session has begun
    for name, silence_s in said.items():
        with wave.open(str(sentences / f"{name}.wav")) as file:
            pcm += file.readframes(file.getnframes())
        pcm += bytes(silence_s * STT_SAMPLE_RATE * 2)
    path.write_bytes(wav(bytes(pcm), rate=STT_SAMPLE_RATE))
    return path


@pytest.fixture
def microphone(tmp_path: Path, sentences: Path) -> Path:
    """Asks for a story, and interrupts it."""
    return dialogue(tmp_path / "microphone.wav", sentences, {"story": 5, "stop": 1})


def talk(page: Page, key: str) -> None:
    """Enters, shows the panel and starts."""
    enter(page, key)
    go(page, "talk")
    press(page, "Start talking")


@pytest.mark.slow
@pytest.mark.weights
def test_a_story_is_heard_and_interrupted(agent_server: Server, microphone: Path) -> None:
    with open_url(agent_server.url, "console", microphone) as page:
        enter(page, agent_server.key)
        go(page, "talk")
        page.call(MEASURE_SOUND)
        press(page, "Start talking")
        wait_until(page, "said() === 'Speak …'")
        wait_until(page, "at('.talk .turns').textContent.includes('beside the sea')")
        assert run(page, "loudest") > 0.05
        wait_until(page, f"{TURNS}.length === 4")
        wait_until(page, f"{SAID}[3][1].length === {len(GREETING)}")
        asked, story, stopped, answer = run(page, SAID)
        assert asked[0] == stopped[0] == "user"
        assert "story" in asked[1] and "enough" in stopped[1]
        assert story[0] == "assistant" and STORY.startswith(story[1][:60])
        assert len(story[1]) < len(STORY) / 2  # what was heard
        expect_part(page, f"{TURNS}[1].innerText", "interrupted")
        assert answer == ["assistant", GREETING]
        stages = run(page, f"{TURNS}[3].querySelectorAll('.latency-bar span').length")
        assert stages == 3
        expect_part(page, f"{TURNS}[3].innerText", "heard")
        expect_part(page, "at('.delay').textContent", "Delay ")

        press(page, "Hang up")
        wait_until(page, f"{IDLE} && said() === 'The conversation has ended.'")
        expect(page, f"{TURNS}.length", 4)
        sign_out(page)
        expect(page, f"{TURNS}.length", 0)


@pytest.mark.slow
@pytest.mark.weights
def test_an_answer_heard_whole_is_not_interrupted(
    agent_server: Server, tmp_path: Path, sentences: Path
) -> None:
    said = {"goodbye": 8, "stop": 8}
    microphone = dialogue(tmp_path / "microphone.wav", sentences, said)
    with open_url(agent_server.url, "console", microphone) as page:
        page.call(KEEP_FRAMES)
        talk(page, agent_server.key)
        wait_until(page, f"{TURNS}.length === 4")
        wait_until(page, f"{SAID}[3][1].length === {len(GREETING)}")
        expect(page, f"{SAID}[1]", ["assistant", FAREWELL])
        assert "interrupted" not in run(page, "at('.talk .turns').innerText")
        sent = run(page, "frames_sent.map((one) => one.type)")
        assert "input_audio_buffer.append" in sent
        assert "conversation.item.truncate" not in sent


def test_signing_out_ends_the_conversation(page: Page, tone_server: Server) -> None:
    page.call(
        """(() => {
            window.endings = 0;
            const close = AudioContext.prototype.close;
            AudioContext.prototype.close = function () {
                window.endings += 1;
                return close.call(this);
            };
        })"""
    )
    talk(page, tone_server.key)
    wait_until(page, "said() === 'Speak …'")
    sign_out(page)
    wait_until(page, "endings === 2")  # the microphone's and the loudspeaker's


def test_what_is_wrong_is_shown(page: Page, tone_server: Server) -> None:
    answer = httpx.post(
        f"{tone_server.url}/developer/api",
        headers={"Authorization": f"Bearer {tone_server.key}"},
        json={"name": "hears and speaks", "scopes": ["stt", "tts"]},
    )
    talk(page, answer.raise_for_status().json()["key"])
    assert wait_until(page, "failed()").startswith("The API key or token lacks the scope 'chat'.")
    wait_until(page, IDLE)
    unfold(page)
    fill(page, **{"Tools (JSON)": "[{"})
    press(page, "Start talking")
    assert "this is not JSON" in wait_until(page, "failed()")


def test_a_user_who_allows_no_microphone_reads_why(
    tone_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asking = [flag for flag in browser.FLAGS if flag != "--use-fake-ui-for-media-stream"]
    monkeypatch.setattr(browser, "FLAGS", asking)
    with browser.open_url(tone_server.url, "console", tmp_path / "none.wav") as page:
        permission = {"name": "microphone"}
        page.command("Browser.setPermission", permission=permission, setting="denied")
        talk(page, tone_server.key)
        assert "Chrome and Edge: click the icon left of" in wait_until(page, "failed()")
        wait_until(page, IDLE)
