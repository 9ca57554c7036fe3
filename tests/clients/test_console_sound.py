"""The console's sound in Chromium when the browser, the device or a file is in its way."""

import struct
from pathlib import Path

import numpy as np
import pytest

from models.stt.base import STT_SAMPLE_RATE
from tests.api.local_server import Server
from tests.clients.browser import Page, open_url
from tests.clients.console_page import enter, fill, go, press, run, wait_until
from tests.clients.test_console_browser import page
from tests.clients.test_console_work import signed_in
from tests.hostile.audio_files import wav

__all__ = ["page", "signed_in"]  # fixtures

# Keeps the contexts for audio, and the tracks of the microphone.
KEEP_SOUND = """(() => {
    window.contexts = [];
    window.tracks = [];
    window.AudioContext = class extends AudioContext {
        constructor(options) {
            super(options);
            window.contexts.push(this);
        }
    };
    const { mediaDevices } = navigator;
    const open = mediaDevices.getUserMedia.bind(mediaDevices);
    mediaDevices.getUserMedia = async (wish) => {
        const stream = await open(wish);
        window.tracks.push(...stream.getTracks());
        return stream;
    };
})"""
# As on iOS, a context that is made outside of a click is suspended.
WITHOUT_AUTOPLAY = """(() => {
    window.AudioContext = class extends AudioContext {
        constructor(options) {
            super(options);
            if (!window.event) this.suspend();
        }
    };
})"""
UNPLUG = """(() => {
    for (const track of tracks) {
        track.stop();
        track.dispatchEvent(new Event('ended'));
    }
})"""
WITHOUT_WORKLET = """(() => {
    AudioWorklet.prototype.addModule = async () => {
        throw new DOMException('no module', 'AbortError');
    };
})"""
SUSPEND = """(async () => {
    for (const one of contexts) if (one.state !== 'closed') await one.suspend();
})"""
CLOSED = (
    "contexts.every((one) => one.state === 'closed')"
    " && tracks.every((one) => one.readyState === 'ended')"
)
PAUSED = "at('#paused')"
# Page, button that starts, button that stops, and a text that is shown once sound comes.
RECORDERS = [
    ("talk", "Start talking", "Hang up", "Speak …"),
    ("listen/microphone", "Start listening", "Stop", "Listening."),
    ("voices", "Record here", "Stop and keep", "Recording: "),
]
CLICK = {"x": 5, "y": 300, "button": "left", "clickCount": 1}


def shows(text: str) -> str:
    return f"document.body.innerText.includes('{text}')"


def click_anywhere(page: Page) -> None:
    for kind in ("mousePressed", "mouseReleased"):
        page.command("Input.dispatchMouseEvent", type=kind, **CLICK)


@pytest.mark.parametrize(("panel", "start", "stop", "begun"), RECORDERS)
def test_a_microphone_that_is_lost_is_said_and_closed(
    signed_in: Page, panel: str, start: str, stop: str, begun: str
) -> None:
    signed_in.call(KEEP_SOUND)
    go(signed_in, panel)
    press(signed_in, start)
    wait_until(signed_in, shows(begun))
    signed_in.call(UNPLUG)
    assert "was disconnected" in wait_until(signed_in, "failed()")
    wait_until(signed_in, f"button('{start}') && !button('{stop}')")
    wait_until(signed_in, CLOSED)
    takes = run(signed_in, "all('.take').length")
    assert takes == (panel == "voices")

    signed_in.call(WITHOUT_WORKLET)
    press(signed_in, start)
    wait_until(signed_in, "failed().includes('cannot open the microphone: no module')")
    wait_until(signed_in, f"button('{start}') && {CLOSED}")
    assert run(signed_in, "all('.take').length") == takes


# What a browser reports when it gives no microphone, and what the console then says to do.
REFUSALS = [
    ("NotAllowedError", "Permission denied", "icon left of the address"),
    (
        "NotAllowedError",
        "The request is not allowed",
        "Settings for This Website",
    ),
    ("NotAllowedError", "Permission dismissed", "Try again, and choose Allow"),
    ("NotAllowedError", "Permission denied by system", "Allow your browser there"),
    ("SecurityError", "Blocked by a policy", "icon left of the address"),
    ("NotFoundError", "Requested device not found", "Connect a microphone"),
    ("NotReadableError", "Device in use", "Close it, then try again"),
    ("TypeError", "no reason", "cannot open the microphone: no reason"),
]


def test_each_refusal_of_a_permission_says_what_to_do(signed_in: Page) -> None:
    for panel, start, _, _ in RECORDERS:
        go(signed_in, panel)
        for name, message, remedy in REFUSALS:
            error = "TypeError(message)" if name == "TypeError" else "DOMException(message, name)"
            refuse = f"navigator.mediaDevices.getUserMedia = async () => {{ throw new {error}; }}"
            signed_in.call(f"((name, message) => {{ {refuse}; }})", name, message)
            press(signed_in, start)
            wait_until(signed_in, f"failed().includes({remedy!r})")
            wait_until(signed_in, f"button('{start}')")
    signed_in.call(
        """(() => {
            navigator.clipboard.writeText = async () => {
                throw new DOMException('', 'NotAllowedError');
            };
            document.execCommand = () => false;
        })"""
    )
    go(signed_in, "account/webhooks")
    press(signed_in, "Add a webhook")
    press(signed_in, "Copy")
    wait_until(
        signed_in,
        "document.getElementById('announcer')?.textContent.startsWith('Not copied: the browser')",
    )


def test_sound_that_the_browser_pauses_goes_on_after_a_click(signed_in: Page) -> None:
    signed_in.call(KEEP_SOUND)
    signed_in.call(WITHOUT_AUTOPLAY)
    fill(signed_in, Text="One sentence after another. " * 8)
    press(signed_in, "Speak live")
    wait_until(signed_in, "said() === 'Live'")
    assert run(signed_in, "contexts[0].state") == "running"  # made by the click
    assert not run(signed_in, PAUSED)
    signed_in.call(SUSPEND)
    assert "Click anywhere" in wait_until(signed_in, f"{PAUSED}?.innerText")
    click_anywhere(signed_in)
    wait_until(signed_in, f"!{PAUSED}")
    wait_until(signed_in, "said().includes('of speech')")

    go(signed_in, "talk")
    press(signed_in, "Start talking")
    wait_until(signed_in, PAUSED)  # both were made after the permission
    click_anywhere(signed_in)
    wait_until(signed_in, "contexts.slice(-2).every((one) => one.state === 'running')")
    wait_until(signed_in, f"!{PAUSED}")
    signed_in.call(SUSPEND)
    wait_until(signed_in, PAUSED)
    press(signed_in, "Hang up")
    wait_until(signed_in, f"!{PAUSED} && {CLOSED}")


def test_a_voice_on_either_channel_is_recorded_at_its_speed(
    tone_server: Server, tmp_path: Path
) -> None:
    """An audio interface may have the microphone at its second input."""
    seconds = np.arange(4 * STT_SAMPLE_RATE) / STT_SAMPLE_RATE
    tone = (9000 * np.sin(2 * np.pi * 440 * seconds)).astype("<i2")
    stereo = np.stack([np.zeros_like(tone), tone], axis=1)
    path = tmp_path / "microphone.wav"
    path.write_bytes(wav(stereo.tobytes(), rate=STT_SAMPLE_RATE, channels=2))
    with open_url(tone_server.url, "console", path, again=True) as page:
        enter(page, tone_server.key)
        page.call(
            """(() => {
                const create = URL.createObjectURL;
                URL.createObjectURL = (blob) => {
                    window.take = blob;
                    return create.call(URL, blob);
                };
            })"""
        )
        go(page, "voices")
        press(page, "Record here")
        wait_until(page, shows("Recording: 2"))
        press(page, "Stop and keep")
        wait_until(page, "Boolean(window.take)")
        taken = bytes(page.call("(async () => [...new Uint8Array(await take.arrayBuffer())])"))
    (rate,) = struct.unpack_from("<I", taken, 24)
    samples = np.frombuffer(taken[44:], "<i2").astype(float)[rate:]
    spectrum = np.abs(np.fft.rfft(samples))
    assert np.abs(samples).max() > 2000
    assert np.argmax(spectrum) * rate / len(samples) == pytest.approx(440, abs=5)


def test_a_file_that_the_browser_cannot_play_is_explained(signed_in: Page) -> None:
    signed_in.call(
        """(() => {
            const fetched = window.fetch;
            window.fetch = async (path, options) => {
                const answer = await fetched(path, options);
                if (path !== '/tts-synthesize') return answer;
                const spoken = await answer.json();
                return new Response(JSON.stringify({...spoken, audio_base64: btoa('no sound')}));
            };
        })"""
    )
    press(signed_in, "Create a file")
    wait_until(
        signed_in, "at('.player')?.innerText.includes('The browser cannot play this audio.')"
    )
