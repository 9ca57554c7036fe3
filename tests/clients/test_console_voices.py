"""Custom voices on the console, in Chromium."""

from pathlib import Path

import httpx

from tests.api.local_server import Server
from tests.clients.browser import open_url
from tests.clients.test_console_browser import run, submit, wait_until
from tests.pipelines.voices.recordings import good_files

CLICK_DELETE = "[...document.querySelectorAll('#voices button')].at(-1).click()"


def test_a_voice_in_progress_is_shown_and_deleted(tone_server: Server, tmp_path: Path) -> None:
    headers = {"Authorization": f"Bearer {tone_server.key}"}
    files = [("files", one) for one in good_files()]
    name = "<b>Ann</b>"
    answer = httpx.post(
        f"{tone_server.url}/voices", headers=headers, data={"name": name}, files=files, timeout=60
    )
    assert answer.status_code == 201, answer.text
    with open_url(tone_server.url, "console", tmp_path / "none.wav") as page:
        submit(page, "key-form", key=tone_server.key)
        shown = wait_until(page, "at('voices').textContent")
        assert shown.startswith(name) and "ready about" in shown and "Report" not in shown
        assert run(page, "document.querySelectorAll('#voices progress').length") == 1
        run(page, f"(window.confirm = () => true, {CLICK_DELETE})")
        wait_until(page, "at('voices-table').hidden")
        run(page, "leave()")
        assert run(page, "at('voices').childElementCount") == 0
    listed = httpx.get(f"{tone_server.url}/voices", headers=headers).json()
    assert listed["data"] == []
