"""Chromium without a window, driven over its DevTools protocol."""

import functools
import http.server
import itertools
import json
import shutil
import subprocess
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import ClientConnection, connect

PAGES = Path(__file__).parent
START_TIMEOUT_S = 30.0
FLAGS = [
    "--headless",
    "--no-sandbox",  # else it does not run as root; it loads only our page
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--autoplay-policy=no-user-gesture-required",
    "--use-fake-ui-for-media-stream",  # grants the microphone
    "--use-fake-device-for-media-stream",
    "--remote-debugging-port=0",
]


# Messages of Chromium about a page that was left while it was asked.
GONE = ("Inspected target navigated or closed", "Cannot find default execution context")


class Navigated(Exception):
    """The page was left, or loaded again, before it could answer."""


class Page:
    """An open page; `call` runs its functions."""

    def __init__(self, devtools: ClientConnection) -> None:
        self._devtools = devtools
        self.context: dict[str, Any] = {}  # for another tab of the same browser
        self._ids = itertools.count(1)

    def command(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._ids)
        message = {"id": number, "method": method, "params": parameters}
        self._devtools.send(json.dumps(message))
        while True:
            answer = json.loads(self._devtools.recv(timeout=60))
            if answer.get("id") == number:
                if answer.get("error", {}).get("message") in GONE:
                    raise Navigated(answer["error"])
                assert "error" not in answer, answer["error"]
                result: dict[str, Any] = answer["result"]
                return result

    def wait_until_loaded(self, name: str) -> None:
        """Chromium shows an empty page first."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            with suppress(Navigated):
                loaded = self.call("(() => location.pathname + document.readyState)")
                if loaded == f"/{name}complete":
                    return
            assert time.monotonic() < deadline, f"{name} did not load"
            time.sleep(0.05)

    def call(self, function: str, *arguments: Any) -> Any:
        """Awaits a function of the page and returns its value; its exceptions fail the test."""
        expression = f"{function}({', '.join(json.dumps(argument) for argument in arguments)})"
        result = self.command(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")


@contextmanager
def open_page(name: str, microphone: Path) -> Iterator[Page]:
    """A page of this folder over HTTP. The microphone plays the WAV file, once, when it is opened.

    Skips the test where there is no Chromium.
    """
    with pages() as url, open_url(url, name, microphone) as page:
        yield page


@contextmanager
def open_url(url: str, name: str, microphone: Path, again: bool = False) -> Iterator[Page]:
    """As `open_page`, for the page `name` of a server; `again` plays the microphone in a loop."""
    with (
        chromium(f"{url}/{name}", microphone, again) as profile,
        connect(devtools_url(profile, name), max_size=None) as devtools,
    ):
        page = Page(devtools)
        page.wait_until_loaded(name)
        yield page


class Browser:
    """One process for many pages, of which each has cookies and storage of its own."""

    def __init__(self, profile: Path) -> None:
        """Returns when it has started."""
        devtools_url(profile, "about:blank")
        port, path = (profile / "DevToolsActivePort").read_text().split()
        self._address = f"ws://127.0.0.1:{port}"
        self._path = path

    @contextmanager
    def open(self, url: str, name: str, hash: str = "") -> Iterator[Page]:
        """The page `name` of a server, whose storage is deleted with it."""
        with self._connected(self._path) as devtools:
            made = devtools.command("Target.createBrowserContext", disposeOnDetach=False)
        try:
            with self.tab(url, name, hash, made) as page:
                yield page
        finally:
            with self._connected(self._path) as devtools:
                devtools.command("Target.disposeBrowserContext", **made)

    @contextmanager
    def tab(self, url: str, name: str, hash: str, context: dict[str, Any]) -> Iterator[Page]:
        """The page `name` in a tab of a `context`, which shares its storage with other tabs."""
        with self._connected(self._path) as devtools:
            target = devtools.command("Target.createTarget", url=f"{url}/{name}{hash}", **context)
        with self._connected(f"/devtools/page/{target['targetId']}") as page:
            page.command("Emulation.setFocusEmulationEnabled", enabled=True)
            page.wait_until_loaded(name)
            page.context = context
            yield page

    @contextmanager
    def _connected(self, path: str) -> Iterator[Page]:
        with connect(f"{self._address}{path}", max_size=None) as devtools:
            yield Page(devtools)


@contextmanager
def browser_of_pages(microphone: Path) -> Iterator[Browser]:
    """Skips the test where there is no Chromium."""
    with chromium("about:blank", microphone) as profile:
        yield Browser(profile)


@contextmanager
def chromium(page: str, microphone: Path, again: bool = False) -> Iterator[Path]:
    """Runs it with the page, and yields the folder of its profile."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("Chromium is not installed, so the sockets were NOT tried from a browser")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = subprocess.Popen(
            [
                program,
                *FLAGS,
                f"--user-data-dir={profile}",
                f"--use-file-for-fake-audio-capture={microphone}{'' if again else '%noloop'}",
                page,
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield Path(profile)
        finally:
            browser.terminate()
            try:
                browser.wait(10)
            except subprocess.TimeoutExpired:
                browser.kill()
                browser.wait()


def devtools_url(profile: Path, page: str) -> str:
    """The DevTools URL of the page; Chromium writes its port into the profile."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            port = (profile / "DevToolsActivePort").read_text().split()[0]
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/json", timeout=5) as answer:
                targets = json.load(answer)
            return next(
                str(target["webSocketDebuggerUrl"])
                for target in targets
                if target["type"] == "page" and target["url"].endswith(page)
            )
        except (OSError, IndexError, StopIteration):
            assert time.monotonic() < deadline, "Chromium did not start"
            time.sleep(0.1)


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def pages() -> Iterator[str]:
    """The address of this folder: a microphone needs a page from http://127.0.0.1 or https."""
    handler = functools.partial(QuietHandler, directory=str(PAGES))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
