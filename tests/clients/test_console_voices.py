"""Custom voices on the console, in Chromium."""

import base64
from dataclasses import replace
from pathlib import Path

import httpx

from models.audio import float_to_pcm16, resample
from tests.api.local_server import Server, local_settings, serve_services
from tests.api.local_services import local_services
from tests.clients.browser import Browser
from tests.clients.console_page import (
    enter,
    expect,
    expect_part,
    fill,
    go,
    hurry,
    press,
    record_requests,
    run,
    sign_out,
    wait_until,
)
from tests.hostile.audio_files import wav
from tests.pipelines.voices.recordings import RATE, called, good_files, recording

# Adds recordings of a tone that swells, as files that were chosen.
ADD = """((...lengths) => {
    const files = new DataTransfer();
    lengths.forEach((seconds, at) => {
        const bytes = new Uint8Array(44 + seconds * 16000);
        const view = new DataView(bytes.buffer);
        const words = [0x52494646, 0, 0x57415645, 0x666d7420];
        words.forEach((word, i) => view.setUint32(i * 4, word));
        view.setUint32(4, 36 + seconds * 16000, true);
        view.setUint32(16, 16, true);
        const shorts = [[20, 1], [22, 1], [32, 2], [34, 16]];
        shorts.forEach(([i, value]) => view.setUint16(i, value, true));
        view.setUint32(24, 8000, true);
        view.setUint32(28, 16000, true);
        view.setUint32(36, 0x64617461);
        view.setUint32(40, seconds * 16000, true);
        for (let i = 44; i < bytes.length; i += 2) {
            view.setInt16(i, 4500 * Math.sin(i * 0.07) * (1 + Math.sin(i * 0.0004)), true);
        }
        files.items.add(new File([bytes], `${at}.wav`, {type: 'audio/wav'}));
    });
    const input = document.querySelector('.voices input[type=file]');
    input.files = files.files;
    input.dispatchEvent(new Event('change'));
})"""


# From now on voices are expected an hour later.
LATER = """(() => {
    const fetched = window.fetch;
    window.fetch = async (path, options) => {
        const answer = await fetched(path, options);
        if (!path.startsWith('/voices?')) return answer;
        const listed = await answer.json();
        const end = new Date(Date.now() + 3600000);
        for (const one of listed.data) one.estimated_completion = end;
        return new Response(JSON.stringify(listed));
    };
})"""

# The next upload is answered with a voice named Ann at `answerNow()`.
HELD_ANSWER = """(() => {
    XMLHttpRequest.prototype.send = function () {
        const answer = {id: 'x', name: 'Ann'};
        for (const [name, value] of [['status', 201], ['responseText', JSON.stringify(answer)]]) {
            Object.defineProperty(this, name, {value});
        }
        window.answerNow = () => this.onload();
    };
})"""


def test_a_voice_in_progress_is_shown_and_deleted(tone_server: Server, browser: Browser) -> None:
    headers = {"Authorization": f"Bearer {tone_server.key}"}
    files = [("files", one) for one in good_files()]
    name = "<b>Ann</b>"
    answer = httpx.post(
        f"{tone_server.url}/voices", headers=headers, data={"name": name}, files=files, timeout=60
    )
    assert answer.status_code == 201, answer.text
    with browser.open(tone_server.url, "console") as page:
        hurry(page)
        enter(page, tone_server.key)
        go(page, "voices")
        shown = wait_until(page, "at('.voice-own')?.innerText")
        assert shown.startswith(name) and "0 %, ready in about" in shown and "Report" not in shown
        wait_until(page, "at('.credit').innerText.includes('1.00 held')")
        languages = httpx.get(f"{tone_server.url}/voices/languages", headers=headers).json()
        codes = [one["code"] for one in languages["languages"]]
        choices = "[...document.querySelector('.voices select[name=language]').options]"
        offered = wait_until(page, f"({choices}.length > 1) && {choices}.map((one) => one.value)")
        assert sorted(offered) == sorted(["", "en-GB", *codes])
        expect(page, "all('.voice-own progress').length", 1)
        page.call(LATER)
        wait_until(
            page, "at('.voice-own').innerText.includes('because the machine is busy or slow')"
        )
        press(page, f"Delete {name}")
        expect_part(page, "top().innerText", "at least 5 %")  # what it costs
        press(page, "Delete")
        wait_until(page, "!at('.voice-own')")
        sign_out(page)
        assert run(page, "document.querySelectorAll('.voice-own').length") == 0
    listed = httpx.get(f"{tone_server.url}/voices", headers=headers).json()
    assert listed["data"] == []


def test_lengths_are_checked_before_anything_is_uploaded(
    tone_server: Server, browser: Browser
) -> None:
    with browser.open(tone_server.url, "console") as page:
        enter(page, tone_server.key)
        go(page, "voices")
        run(page, "(labelled('Name').value = 'Ann', true)")
        wait_until(page, "!labelled('What the speaker agreed to (optional)').required")
        wait_until(page, "button('Create the voice for 1.00 USD')")  # the price is said
        press(page, "Get a sentence")
        sentence = wait_until(page, "all('.read-aloud').length > 1 && at('.read-aloud').innerText")
        language = "document.querySelector('.voices select[name=language]')"
        wait_until(page, f"{language}.options.length > 1")
        run(page, f"({language}.value = 'de', {language}.dispatchEvent(new Event('change')))")
        wait_until(page, f"![undefined, {sentence!r}].includes(at('.read-aloud')?.innerText)")
        expect_part(page, "all('.read-aloud').at(-1).innerText", "In German, read")
        record_requests(page)
        page.call(ADD, 20, 20)
        wait_until(page, "at('.total').innerText.includes('40 of at least 120 seconds, 2 rec')")
        press(page, "Create the voice for 1.00 USD")
        wait_until(page, "failed() === '3 to 10 recordings are needed; there are 2.'")
        page.call(ADD, 20, 4)
        wait_until(page, "all('.guidance').at(-1).textContent.includes('at least 10 seconds')")
        expect_part(page, "at('.total').innerText", "60 of at least 120 seconds, 3 rec")
        leaving = (
            "((event) => !dispatchEvent(event))(new Event('beforeunload', {cancelable: true}))"
        )
        assert run(page, leaving)  # the browser asks before a reload
        press(page, "Create the voice for 1.00 USD")
        wait_until(page, "failed().includes('cannot be used; see the list')")
        run(page, "(all('.take button[aria-label^=Remove]').at(-1).click(), true)")
        press(page, "Create the voice for 1.00 USD")
        wait_until(page, "failed().includes('at least 120 are needed')")
        posted = run(page, "requests.filter((one) => one.startsWith('POST')).length")
        assert posted == 0


# Adds files, given in base64.
ADD_FILES = """((...contents) => {
    const files = new DataTransfer();
    contents.forEach((content, at) => {
        const bytes = Uint8Array.from(atob(content), (one) => one.charCodeAt(0));
        files.items.add(new File([bytes], `${at}.wav`, {type: 'audio/wav'}));
    });
    const input = document.querySelector('.voices input[type=file]');
    input.files = files.files;
    input.dispatchEvent(new Event('change'));
})"""


def test_the_page_judges_a_recording_of_a_call_as_the_service_does(
    tone_server: Server, browser: Browser
) -> None:
    speech = recording(4, 12)
    call = called(speech)
    stored = [
        (call, RATE),
        (resample(call, RATE, 24_000), 24_000),
        (resample(call, RATE, 8000), 8000),
        (speech, RATE),
        (resample(speech, RATE, 24_000), 24_000),
    ]
    files = [wav(float_to_pcm16(pcm), rate=rate) for pcm, rate in stored]
    with browser.open(tone_server.url, "console") as page:
        enter(page, tone_server.key)
        go(page, "voices")
        page.call(ADD_FILES, *(base64.b64encode(file).decode() for file in files))
        wait_until(page, "all('.guidance').filter((one) => one.textContent).length === 5")
        told = run(page, "all('.guidance').map((one) => one.textContent)")
    assert ["of telephone quality" in text for text in told] == [True] * 3 + [False] * 2
    assert all("good so far" in text for text in told[3:])


def test_what_changes_during_an_upload_is_kept_for_the_next_voice(
    tone_server: Server, browser: Browser
) -> None:
    with browser.open(tone_server.url, "console") as page:
        enter(page, tone_server.key)
        go(page, "voices")
        page.call(HELD_ANSWER)
        fill(page, Name="Ann", Description="Warm")
        page.call(ADD, 50, 50, 50)
        wait_until(page, "at('.total').innerText.includes('150 of')")
        press(page, "Create the voice for 1.00 USD")
        wait_until(page, "Boolean(window.answerNow)")
        fill(page, Name="Bob")
        page.call(ADD, 15)
        wait_until(page, "all('.take').length === 4")
        run(page, "(answerNow(), true)")
        wait_until(page, "said().includes('Ann')")
        values = "[labelled('Name').value, labelled('Description').value]"
        expect(page, values, ["Bob", ""])
        wait_until(page, "at('.total').innerText.includes('15 of')")


def test_a_required_statement_is_asked_for_and_a_take_is_recorded(
    tmp_path: Path, browser: Browser
) -> None:
    settings = replace(local_settings(tmp_path), require_consent="attest")
    with (
        serve_services(local_services(settings)) as server,
        browser.open(server.url, "console") as page,
    ):
        enter(page, server.key)
        go(page, "voices")
        consent = "What the speaker agreed to (required)"
        wait_until(page, f"labelled('{consent}').matches(':invalid')")
        fill(page, Name="Ann", **{consent: " "})
        press(page, "Create the voice for 1.00 USD")
        wait_until(page, "failed().startsWith('Write what the speaker agreed to')")
        press(page, "Record here")
        wait_until(page, "document.body.innerText.includes('Recording: ')")
        press(page, "Stop and keep")
        wait_until(page, "at('.take .guidance').innerText.includes('too short')")
        wait_until(page, "button('Record here')")
