"""The console in Chromium: what its tests see and press, by the names that users read."""

import json
import time
from collections.abc import Callable
from typing import Any

from tests.clients import waiting
from tests.clients.browser import Page

TIMEOUT_S = 20.0
PASSWORD = "correct horse"
# From now on what the console does every 5 s, such as looking at jobs, it does every 0.2 s.
HURRY = """(() => {
    const wait = window.setTimeout;
    window.setTimeout = (work, ms, ...rest) => wait(work, ms === 5000 ? 200 : ms, ...rest);
})"""
TOOLS = """
    const shown = (one) => one.checkVisibility();
    const all = (selector) => [...document.querySelectorAll(selector)].filter(shown);
    const at = (selector) => all(selector)[0];
    const named = (one) => (one.getAttribute('aria-label') || one.textContent).trim();
    const top = () => [...document.querySelectorAll('dialog[open]')].at(-1) || document;
    const within = (one) => top().contains(one);
    const button = (name) => all('button').find((one) => within(one) && named(one) === name);
    const words = (label) => label.firstChild.textContent.trim();
    const labelled = (name) => {
        const label = all('label').find((one) => within(one) && words(one) === name);
        return label && document.getElementById(label.htmlFor);
    };
    const fill = (name, value) => {
        const control = labelled(name);
        control.value = value;
        for (const kind of ['input', 'change']) {
            control.dispatchEvent(new Event(kind, {bubbles: true}));
        }
        return true;
    };
    const said = () => all('.said, .failed').map((one) => one.innerText.trim()).join(' ').trim();
    const failed = () => all('.failed').map((one) => one.innerText.trim()).join(' ');
    const rows = (selector) => all(`${selector} tbody tr`).map((row) => row.innerText);
"""


def run(page: Page, expression: str) -> Any:
    """The value of an expression over TOOLS, true for an element; a promise is awaited."""
    value = f"((found) => found instanceof Node || found)({expression})"
    return page.call(f"(() => {{ {TOOLS} return {value}; }})")


def hurry(page: Page) -> None:
    """Makes the console do every 0.2 s what it does every 5 s, also after a reload."""
    page.call(HURRY)
    page.command("Page.enable")
    page.command("Page.addScriptToEvaluateOnNewDocument", source=f"({HURRY})()")


def wait_until(page: Page, expression: str) -> Any:
    """As for any page, with TOOLS."""
    return waiting.wait_until(page, expression, run, TIMEOUT_S)


def expect(page: Page, expression: str, value: Any) -> None:
    """Waits until an expression has a value: the page may be drawn after what came before."""
    wait_for(page, expression, lambda found: found == value, f"is not {value!r}")


def expect_part(page: Page, expression: str, part: str) -> None:
    """Waits until a text of the page contains a part."""
    wait_for(page, expression, lambda found: part in (found or ""), f"lacks {part!r}")


def wait_for(page: Page, expression: str, is_right: Callable[[Any], bool], fault: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not is_right(found := run(page, expression)):
        assert time.monotonic() < deadline, f"{expression} {fault}: {found!r}"
        time.sleep(0.05)


def press(page: Page, name: str) -> None:
    """Presses the button or tab of that name, as soon as it is there. It gets the focus."""
    quoted = json.dumps(name)
    wait_until(page, f"button({quoted})")
    run(page, f"(button({quoted}).focus(), button({quoted}).click(), true)")


def key(page: Page, name: str) -> None:
    """Presses a key, such as Tab, Enter or Escape."""
    codes = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32}
    for kind in ("keyDown", "keyUp"):
        fields = {"type": kind, "key": name, "code": name, "windowsVirtualKeyCode": codes[name]}
        page.command("Input.dispatchKeyEvent", **fields)


def fill(page: Page, **fields: str) -> None:
    """Fills controls by their labels, with `_` for a space; the first letter may be small."""
    for name, value in fields.items():
        label = json.dumps(name.replace("_", " "))
        wait_until(page, f"labelled({label})")
        run(page, f"fill({label}, {json.dumps(value)})")


def go(page: Page, path: str) -> None:
    """Shows a panel, such as `account/keys`."""
    page.call(f"(() => {{ location.hash = '#/{path}'; }})")
    title = json.dumps(path.split("/")[0].capitalize())
    wait_until(page, f"at('h1')?.textContent === {title}")


def unfold(page: Page) -> None:
    """Opens all options of the panel."""
    wait_until(page, "all('main details').length")
    opened = "for (const one of document.querySelectorAll('main details')) one.open = true;"
    page.call(f"(() => {{ {opened} }})")


def sign_up(page: Page, email: str) -> None:
    press(page, "Sign up")
    fill(page, Email=email, Password=PASSWORD)
    press(page, "Create my account")
    wait_until(page, "at('.frame')")


def log_in(page: Page, email: str) -> None:
    press(page, "Log in")
    fill(page, Email=email, Password=PASSWORD)
    run(page, "(all('form button[type=submit]')[0].click(), true)")
    wait_until(page, "at('.frame')")


def enter(page: Page, key: str) -> None:
    press(page, "Use an API key")
    fill(page, **{"API key": key})
    press(page, "Enter")
    wait_until(page, "at('.frame')")


def sign_out(page: Page) -> None:
    press(page, "Sign out")
    if wait_until(page, "at('.enter') ? 'out' : at('dialog[open]') && 'asked'") == "asked":
        press(page, "Sign out")
    wait_until(page, "at('.enter')")


def kept(page: Page) -> Any:
    """How much the browser keeps: of both storages, and of each store of the database."""
    return page.call(
        """(async () => {
            const database = await new Promise((resolve) => {
                const request = indexedDB.open('console');
                request.onsuccess = () => resolve(request.result);
            });
            const counts = [...database.objectStoreNames].map((name) => new Promise((resolve) => {
                const request = database.transaction(name).objectStore(name).count();
                request.onsuccess = () => resolve(request.result);
            }));
            const found = await Promise.all(counts);
            database.close();
            return [sessionStorage.length, localStorage.length, ...found];
        })"""
    )


def record_requests(page: Page) -> None:
    """From now on `requests` of the page has the method and path of each."""
    page.call(
        """(() => {
            const fetched = window.fetch;
            window.requests = [];
            window.fetch = (path, options = {}) => {
                window.requests.push(`${options.method || 'GET'} ${path}`);
                return fetched(path, options);
            };
        })"""
    )
