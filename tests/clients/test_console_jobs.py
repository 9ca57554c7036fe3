"""Jobs on the console, in Chromium over engines without weights; this process does the jobs."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from api.services import Services
from tests.api.local_server import local_settings, serve_services
from tests.api.local_services import local_services
from tests.api.native.jobs.doing import do_next
from tests.clients.browser import Browser, Page
from tests.clients.console_page import enter, go, press, run, wait_until
from tests.clients.test_console_voices import ADD
from tests.clients.test_console_work import KEEP_FILES

ROW = "at('.queue-row')?.innerText"
SLOW = {"latency": 5, "downloadThroughput": -1, "uploadThroughput": 4_000_000}
CHOOSE_BOOK = """(() => {
    const files = new DataTransfer();
    files.items.add(new File(['# One\\n\\nA sentence.\\n\\n# Two\\n\\nEnd.'], 'tale.md'));
    const input = document.querySelectorAll('.jobs input[type=file]')[1];
    input.files = files.files;
    input.dispatchEvent(new Event('change'));
})"""


@pytest.fixture
def services(tmp_path: Path) -> Services:
    return local_services(local_settings(tmp_path))


@pytest.fixture
def page(services: Services, browser: Browser) -> Iterator[Page]:
    with serve_services(services) as server, browser.open(server.url, "console") as opened:
        enter(opened, server.key)
        go(opened, "jobs")
        yield opened


def online(page: Page, *, is_online: bool, **limits: float) -> None:
    page.command("Network.emulateNetworkConditions", offline=not is_online, **(SLOW | limits))


def test_an_upload_survives_the_network_and_its_transcript_is_read(
    page: Page, services: Services
) -> None:
    press(page, "Upload and transcribe")
    wait_until(page, "failed() === 'Choose a file first.'")
    page.call(ADD.replace(".voices", ".jobs"), 560)  # nine megabytes: two parts
    wait_until(page, "document.body.innerText.includes('9:20 of audio cost about 0.06 USD')")
    page.command("Network.enable")
    online(page, is_online=True)
    press(page, "Upload and transcribe")
    press(page, "Pause the upload of 0.wav")
    wait_until(page, f"{ROW}.includes('% uploaded; paused')")
    press(page, "Continue the upload of 0.wav")
    wait_until(page, "button('Pause the upload of 0.wav')")
    online(page, is_online=False)
    wait_until(page, f"{ROW}.includes('waiting for the network')")
    online(page, is_online=True, uploadThroughput=-1)
    wait_until(page, f"{ROW}.includes('waiting for its turn')")
    asyncio.run(do_next(services))
    press(page, "Show the result of 0.wav")
    wait_until(page, "all('.word').length > 10")
    assert "0.06 USD" in run(page, ROW)
    page.call(KEEP_FILES)
    press(page, "Export as SRT")
    assert "-->" in page.call("(() => window.files.at(-1).text())")
    press(page, "Delete 0.wav")
    press(page, "Delete")
    wait_until(page, "!at('.queue-row') && !at('.word')")


def test_a_book_is_heard_by_chapters(page: Page, services: Services) -> None:
    press(page, "Book to audio")
    page.call(CHOOSE_BOOK.replace("tale.md", "tale.pdf"))
    wait_until(page, "failed().includes('convert it to EPUB')")
    assert "characters cost about" not in run(page, "document.body.innerText")
    page.call(CHOOSE_BOOK)
    wait_until(page, "document.body.innerText.includes('characters cost about')")
    press(page, "Create the audio")
    wait_until(page, f"{ROW}?.includes('waiting for its turn')")
    asyncio.run(do_next(services))
    press(page, "Show the result of tale.md")
    press(page, "Two · 0:01")
    wait_until(page, "document.querySelector('.player:not([hidden]) audio').currentTime > 0")
    assert run(page, "at('a[download]').pathname").startswith("/files/")
    assert run(page, "at('a[download]').download") == "tale.m4b"
