"""Jobs on the console, in Chromium over engines without weights; this process does the jobs."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest

from api.services import Services
from pipelines.errors import StorageUnavailable
from tests.api.local_server import local_settings, serve_services
from tests.api.local_services import local_services
from tests.api.native.jobs.doing import do_next
from tests.clients.browser import Browser, Page
from tests.clients.console_page import (
    enter,
    expect,
    expect_part,
    fill,
    go,
    hurry,
    key,
    press,
    record_requests,
    run,
    unfold,
    wait_until,
)
from tests.clients.test_console_voices import ADD
from tests.clients.test_console_work import KEEP_FILES

ROW = "at('.queue-row')?.innerText"
PERCENT = f"/\\d+ % uploaded/.exec({ROW})?.[0]"
SLOW = {"latency": 5, "downloadThroughput": -1, "uploadThroughput": 4_000_000}
# Chooses a file for the first input that fits: its name, its content or how long it is, its type.
CHOOSE = """((selector, name, content, type) => {
    const whole = typeof content === 'number' ? new Uint8Array(content) : content;
    const files = new DataTransfer();
    files.items.add(new File([whole], name, {type}));
    const input = document.querySelector(selector);
    input.files = files.files;
    input.dispatchEvent(new Event('change'));
})"""
HAVE_SIZE = """((size) => {
    Object.defineProperty(File.prototype, 'size', {get: () => size});
})"""
# Loses the first answer to the third part.
LOSE_ANSWER = """(() => {
    const { open, send } = XMLHttpRequest.prototype;
    XMLHttpRequest.prototype.open = function (method, path) {
        this.isLast = path.endsWith('/parts/3');
        open.call(this, method, path);
    };
    XMLHttpRequest.prototype.send = function (form) {
        if (this.isLast && !window.lost) {
            window.lost = true;
            this.onload = this.onerror;
        }
        send.call(this, form);
    };
})"""
RECORDING = ".jobs input[type=file]"
AGAIN = "#jobs-list input[type=file]"
UPLOADS = "Object.keys(JSON.parse(localStorage.getItem('uploads') || '{}')).length"
CHOOSE_BOOK = """((name, text) => {
    const files = new DataTransfer();
    files.items.add(new File([text], name));
    const input = document.querySelectorAll('.jobs input[type=file]')[1];
    input.files = files.files;
    input.dispatchEvent(new Event('change'));
})"""
TALE = "# Contents\n\nOne, two.\n\n# <b>One</b>\n\nA sentence.[^1]\n\n# Two\n\nEnd.\n\n[^1]: No."
TICKS = "all('.chapter-plan input').map((one) => one.checked).join()"

# From now on an upload waits for `go()`.
HOLD = """(() => {
    const send = XMLHttpRequest.prototype.send;
    XMLHttpRequest.prototype.send = function (body) {
        window.go = () => {
            window.go = null;
            send.call(this, body);
        };
    };
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
    wait_until(page, "document.body.innerText.includes('9:20 of audio costs about 0.06 USD')")
    page.call(
        "(() => { for (const one of document.querySelectorAll('main details')) one.open = true; })"
    )
    fill(page, Key_terms="Nginx, Ann Lee")
    page.command("Network.enable")
    online(page, is_online=True)
    press(page, "Upload and transcribe")
    press(page, "Pause the upload of 0.wav")
    wait_until(page, f"{ROW}.includes('% uploaded; paused')")
    paused_at = run(page, PERCENT)
    expect(page, "document.querySelector('.chosen-file').textContent", "")
    press(page, "Continue the upload of 0.wav")
    wait_until(page, f"button('Pause the upload of 0.wav') && {PERCENT} !== {paused_at!r}")
    online(page, is_online=False)
    wait_until(page, f"{ROW}.includes('waiting for the network')")
    online(page, is_online=True, uploadThroughput=-1)
    wait_until(page, f"{ROW}.includes('waiting for its turn')")
    run(page, "(button('Cancel 0.wav').focus(), true)")
    asyncio.run(do_next(services))
    wait_until(page, "button('Delete 0.wav')")
    # The row of a completed job has other buttons.
    expect(page, "named(document.activeElement)", "Show the result of 0.wav")
    press(page, "Show the result of 0.wav")
    wait_until(page, "all('.word').length > 10")
    expect_part(page, ROW, "0.06 USD")
    page.call(KEEP_FILES)
    press(page, "Export as SRT")
    assert "-->" in page.call("(() => window.files.at(-1).text())")
    press(page, "Export as DOCX")
    wait_until(page, "files.at(-1).type.includes('wordprocessingml')")
    press(page, "Code")
    code = wait_until(page, "top().querySelectorAll('pre').length && top().textContent")
    assert "keyterms=Ann Lee" in code and "transcript?format=json' \\" in code
    press(page, "Close")
    press(page, "Delete 0.wav")
    press(page, "Delete")
    wait_until(page, "!at('.queue-row') && !at('.word')")


def test_an_upload_continues_after_a_reload(page: Page) -> None:
    page.call(ADD.replace(".voices", ".jobs"), 1120)  # 18 megabytes: three parts
    page.command("Network.enable")
    online(page, is_online=True, uploadThroughput=6_000_000)
    press(page, "Upload and transcribe")
    wait_until(page, f"/(4|5|6)\\d % uploaded/.test({ROW})")
    page.command("Page.reload")
    wait_until(page, f"{ROW}?.includes('33 % uploaded; choose 0.wav again to continue')")
    expect(page, UPLOADS, 1)
    online(page, is_online=True, uploadThroughput=-1)
    page.call(CHOOSE, AGAIN, "0.wav", 1120 * 16000 + 44, "audio/wav")  # the same size
    wait_until(page, "failed().includes('Choose 0.wav, unchanged')")
    sent = "performance.getEntriesByType('resource').filter((one) => /parts/.test(one.name))"
    assert run(page, f"{sent}.length") == 0
    page.call(ADD.replace(".voices", "#jobs-list"), 1120)
    wait_until(page, f"{ROW}.includes('waiting for its turn')")
    expect(page, f"{sent}.map((one) => one.name.slice(-1)).join()", "2,3")
    assert run(page, UPLOADS) == 0 and not run(page, "failed()")
    page.call(ADD.replace(".voices", ".jobs"), 3)
    press(page, "Upload and transcribe")
    wait_until(page, f"{ROW}.includes('no worker has begun it')")


def test_a_lost_answer_to_the_last_part_is_no_failure(page: Page) -> None:
    page.call(LOSE_ANSWER)
    page.call(ADD.replace(".voices", ".jobs"), 1120)
    press(page, "Upload and transcribe")
    wait_until(page, f"window.lost && {ROW}.includes('waiting for its turn')")
    wait_until(page, f"{UPLOADS} === 0")
    assert not run(page, "failed()")


def test_the_list_is_read_again_after_the_network_was_away(page: Page) -> None:
    hurry(page)
    page.command("Network.enable")
    online(page, is_online=False)
    go(page, "speak")
    go(page, "jobs")
    wait_until(page, "failed()")
    online(page, is_online=True)
    wait_until(page, "!failed()")
    wait_until(page, "document.body.innerText.includes('There are no jobs yet')")


def test_an_upload_that_the_service_no_longer_has_is_forgotten(page: Page) -> None:
    page.call(ADD.replace(".voices", ".jobs"), 1120)
    page.command("Network.enable")
    online(page, is_online=True, uploadThroughput=1_000_000)
    press(page, "Upload and transcribe")
    press(page, "Pause the upload of 0.wav")
    wait_until(page, f"{ROW}.includes('paused') && {UPLOADS} === 1")
    for name in ("Cancel 0.wav", "Cancel the job"):
        press(page, name)
    wait_until(page, f"!at('.queue-row') && {UPLOADS} === 0")


def test_files_that_no_job_takes_are_refused_beside_the_button(page: Page) -> None:
    record_requests(page)
    for name, content, kind, said in (
        ("notes.pdf", 9, "application/pdf", "notes.pdf is not a recording"),
        ("long.wav", 2**32 + 1, "audio/wav", "a recording may have at most 4 GB"),
    ):
        if content > 2**20:  # a size without its bytes
            page.call(HAVE_SIZE, content)
        page.call(CHOOSE, RECORDING, name, 9, kind)
        beside = "at('[type=submit]').parentElement.querySelector('.failed').innerText"
        wait_until(page, f"{beside}.includes({said!r})")
        press(page, "Upload and transcribe")
        expect_part(page, beside, said)
        expect(page, "document.querySelector('.chosen-file').textContent", "")
    press(page, "Book to audio")
    page.call(CHOOSE_BOOK, "notes.pdf", "%PDF-1.4")
    wait_until(page, "failed().includes('convert it')")
    sent = "performance.getEntriesByType('resource').filter((one) => /estimate/.test(one.name))"
    assert run(page, f"{sent}.length") == 0
    assert not [one for one in run(page, "requests") if one.startswith("POST")]


def test_jobs_are_used_by_the_keyboard(page: Page) -> None:
    page.call(ADD.replace(".voices", ".jobs"), 3)
    press(page, "Upload and transcribe")
    wait_until(page, f"{ROW}?.includes('waiting for its turn')")
    run(page, "(at('.panel-head .button').focus(), true)")
    order = []
    for _ in range(6):
        key(page, "Tab")
        order.append(run(page, "named(document.activeElement) || document.activeElement.name"))
    language = run(page, "named(labelled('Language'))")
    assert order == [
        *("Recording to text", "Choose a file", language, "Options"),
        *("Upload and transcribe", "Cancel 0.wav"),
    ]
    press(page, "Cancel 0.wav")
    wait_until(page, "document.activeElement.innerText === 'Go back'")
    key(page, "Escape")
    wait_until(page, "!at('dialog') && named(document.activeElement) === 'Cancel 0.wav'")
    press(page, "Cancel 0.wav")
    # The list is drawn again meanwhile: the button that opened the dialog is another.
    page.call(
        "(() => { const [row] = document.querySelectorAll('.queue-row'); row.outerHTML += ''; })"
    )
    key(page, "Escape")
    wait_until(page, "!at('dialog') && named(document.activeElement) === 'Cancel 0.wav'")


def test_a_book_is_heard_by_chapters(page: Page, services: Services) -> None:
    hurry(page)
    press(page, "Book to audio")
    page.call(CHOOSE_BOOK, "tale.md", "%PDF-1.4")
    wait_until(page, "failed().includes('convert it')")
    assert not run(page, "at('.chapter-plan')")
    run(page, "(window.isOld = true)")
    page.command("Page.reload")  # the address names the kind of job
    wait_until(page, "!window.isOld && button('Create the audio')")
    page.call(CHOOSE_BOOK, "tale.md", TALE)
    wait_until(page, "document.body.innerText.includes('2 of 3 chapters: about 3 s of audio')")
    wait_until(page, "at('.chapter-plan').innerText.includes('<b>One</b> English, about 2 s')")
    expect(page, TICKS, "false,true,true")
    wait_until(page, "document.body.innerText.includes('Left out: 1 footnote.')")
    press(page, "Read none")
    press(page, "Create the audio")
    wait_until(page, "failed().includes('Tick at least one chapter.')")
    press(page, "Recording to text")
    press(page, "Code")
    assert "/jobs/transcriptions" in wait_until(
        page, "top().querySelector('pre') && top().textContent"
    )
    press(page, "Close")
    press(page, "Book to audio")
    press(page, "Read all")
    run(page, "(all('.chapter-plan input')[1].focus(), true)")
    key(page, " ")
    wait_until(page, "document.body.innerText.includes('2 of 3 chapters')")
    press(page, "Code")
    assert "chapters=1,3" in wait_until(page, "top().querySelector('pre') && top().textContent")
    press(page, "Close")
    run(
        page,
        "(labelled('Voice').selectedIndex = [...labelled('Voice').options].findIndex("
        "(one) => one.text.startsWith('Ton')), true)",
    )
    run(page, "labelled('Voice').dispatchEvent(new Event('change'))")
    warning = "the voice Ton does not speak English"
    wait_until(page, f"at('.note')?.innerText.toLowerCase().includes({warning.lower()!r})")
    press(page, "Create the audio")
    wait_until(page, f"{ROW}?.includes('waiting for its turn')")
    expect_part(page, ROW, "Ton · chapters 1, 3 · M4B · created ")
    asyncio.run(do_next(services))
    wait_until(page, f"{ROW}.includes(' · ended ')")
    press(page, "Show the result of tale.md")
    press(page, "Two · 0:02")
    wait_until(page, "document.querySelector('.player:not([hidden]) audio').currentTime > 0")
    press(page, "Pause")
    kind = "fetch(at('a[download]').href).then((answer) => answer.headers.get('Content-Type'))"
    expect(page, kind, "audio/mp4")  # downloaded while its player is paused
    assert run(page, "at('a[download]').pathname").startswith("/files/")
    expect(page, "at('a[download]').download", "tale.m4b")


def test_a_book_is_spoken_with_the_chosen_dictionary(page: Page, services: Services) -> None:
    hurry(page)
    go(page, "speak/pronunciations")
    press(page, "New dictionary")
    fill(page, Name="Rivers", Word="Weir", Said_as="a wall across a river, " * 6)
    press(page, "Save")
    wait_until(page, "said() === 'Version 1 is saved.'")
    go(page, "jobs/speech")
    for is_named in (False, True):
        page.call(CHOOSE_BOOK, "tale.md", "# One\n\nThe Weir.")
        wait_until(page, "document.body.innerText.includes('1 of 1 chapter')")
        if is_named:
            unfold(page)
            run(page, "(labelled('Rivers').click(), true)")
        press(page, "Create the audio")
        wait_until(page, f"{ROW}?.includes('waiting for its turn')")
        asyncio.run(do_next(services))
        wait_until(page, f"{ROW}.includes(' · ended ')")
    length = "Number(/(\\d+):(\\d+) of audio/.exec(one.innerText)[2])"
    named, plain = run(page, f"all('.queue-row').map((one) => {length})")
    assert named > plain + 3


def test_a_book_stays_chosen_after_a_failure_that_passes(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    press(page, "Book to audio")
    monkeypatch.setattr("api.native.jobs.read_document", Mock(side_effect=StorageUnavailable))
    page.call(CHOOSE_BOOK, "tale.md", TALE)
    wait_until(page, "button('Try again')")
    press(page, "Create the audio")
    wait_until(page, "failed()")
    expect(page, "all('.chosen-file')[0].textContent", "tale.md")
    monkeypatch.undo()
    press(page, "Create the audio")
    wait_until(page, f"{ROW}?.includes('waiting for its turn')")


def test_a_pasted_text_is_read(page: Page, services: Services) -> None:
    hurry(page)
    press(page, "Book to audio")
    run(page, "(all('summary').find((one) => named(one) === 'Paste a text instead').click(), true)")
    fill(page, Text="The Sea\n\nChapter 1\n\nA sentence.\n\nChapter Hope\n\nAnother.")
    wait_until(page, "document.body.innerText.includes('2 of 2 chapters')")
    expect(page, "all('.chapter-plan li').map((one) => one.innerText[0]).join('')", "TC")
    fill(page, Text="# Eins\n\nA sentence.\n\n# Zwei\n\n# Deux\n\nAnother.")
    wait_until(page, "document.body.innerText.includes('3 of 3 chapters')")
    fill(page, Text="Chapter 1\n\nA sentence.\n\nChapter Two\n\nAnother.")  # sent at once
    press(page, "Create the audio")
    wait_until(page, "at('.queue-name')?.innerText.startsWith('Pasted text')")
    wait_until(page, "labelled('Text').value === '' && !at('.chapter-plan')")
    asyncio.run(do_next(services))
    press(page, "Show the result of Pasted text.txt")
    wait_until(page, "all('button').some((one) => one.innerText.startsWith('Chapter Two'))")


def test_a_text_that_is_written_during_the_upload_stays(page: Page) -> None:
    press(page, "Book to audio")
    run(page, "(all('summary').find((one) => named(one) === 'Paste a text instead').click(), true)")
    fill(page, Text="Chapter 1\n\nA sentence.")
    wait_until(page, "document.body.innerText.includes('1 of 1 chapters')")
    page.call(HOLD)
    press(page, "Create the audio")
    wait_until(page, "Boolean(window.go)")
    fill(page, Text="Chapter 1\n\nA sentence.\n\nChapter 2\n\nAnother.")
    run(page, "(go(), true)")
    wait_until(page, "at('.queue-name')?.innerText.startsWith('Pasted text')")
    wait_until(page, "labelled('Text').value.endsWith('Another.')")
    wait_until(page, "Boolean(window.go)")
    run(page, "(go(), true)")
    wait_until(page, "document.body.innerText.includes('2 of 2 chapters')")
