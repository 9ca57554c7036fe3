"""The console of a service that serves only its own machine, in Chromium: no prices for its owner,
a link that logs in, and tabs that stay logged in."""

import httpx
import pytest

from tests.api.alone import Machine
from tests.clients.browser import Browser
from tests.clients.console_page import enter, go, press, run, sign_out, sign_up, wait_until

PANELS = ("speak", "listen", "talk", "chat", "voices", "jobs", "account/overview")
# Lets another tab see each change of the storage before the next one.
SLOW_STORAGE = """
    const set = Storage.prototype.setItem;
    Storage.prototype.setItem = function (...pair) {
        for (const end = performance.now() + 300; performance.now() < end; );
        return set.apply(this, pair);
    };
"""
MONEY = r"document.body.innerText.match(/USD|[Cc]redit|[Pp]rice|[Cc]ost|charge|\b[Pp]lans?\b/)?.[0]"


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    return Machine.make(tmp_path_factory.mktemp("alone"))


def test_a_link_logs_all_tabs_in_and_the_owner_sees_no_prices(
    machine: Machine, browser: Browser
) -> None:
    link = f"#login={machine.link()}"
    with machine.start(alone=True) as url, browser.open(url, "console", link) as page:
        wait_until(page, "at('.frame')")
        assert "login" not in run(page, "location.href + JSON.stringify(history.state)")
        press(page, "Create a file")
        wait_until(page, "said().includes('of speech')")
        for panel in PANELS:
            go(page, panel)
            wait_until(page, "!at('.loading') && !at('.busy')")
            assert run(page, MONEY) is None, panel
        go(page, "talk")
        press(page, "Start talking")
        wait_until(page, "said() === 'Speak …'")
        press(page, "Hang up")
        with browser.tab(url, "console", "", page.context) as other:
            wait_until(other, "at('.frame')")
            assert run(other, "document.querySelector('.who').textContent") == "owner@localhost"
            assert run(other, "sessionStorage.length") <= 1
            go(other, "account/settings")
            wait_until(other, "document.body.innerText.includes('this machine')")
            sign_out(page)
            wait_until(other, "at('.enter')")
            assert run(other, "localStorage.length + sessionStorage.length") == 0
        with browser.tab(url, "console", link, page.context) as used:
            wait_until(used, "failed()")
            assert "link was used" in run(used, "failed()")
            enter(used, machine.key)
            with browser.tab(url, "console", "", page.context) as third:
                wait_until(third, "at('.frame')")
            sign_out(used)
        body = {"name": "Speech", "scopes": ["tts"]}
        headers = {"Authorization": f"Bearer {machine.key}"}
        made = httpx.post(f"{url}/developer/api", json=body, headers=headers).json()
        enter(page, made["key"])
        assert run(page, MONEY) is None
        sign_out(page)
        sign_up(page, "guest@example.com")
        wait_until(page, "at('.credit').innerText.includes('5.00 USD')")
        with browser.tab(url, "console", "", page.context) as fourth:
            wait_until(fourth, "at('.enter')")
            enter(fourth, machine.key)
            sign_out(page)
            assert run(fourth, "Boolean(at('.frame') && localStorage.credential)")


def test_a_tab_that_opens_signs_no_other_tab_out(machine: Machine, browser: Browser) -> None:
    with machine.start(alone=True) as url, browser.open(url, "console") as page:
        enter(page, machine.key)
        with browser.tab(url, "console", "", page.context) as other:
            other.command("Page.enable")
            other.command("Page.addScriptToEvaluateOnNewDocument", source=SLOW_STORAGE)
            run(other, "(window.isOld = true)")
            other.command("Page.reload")
            wait_until(other, "!window.isOld && at('.frame')")
            wait_until(page, "Boolean(at('.frame'))")


def test_a_linked_session_ends_when_the_service_serves_other_machines(
    machine: Machine, browser: Browser
) -> None:
    with machine.start(alone=True) as url:
        token = httpx.post(f"{url}/auth/link", json={"token": machine.link()}).json()["token"]
    with machine.start(alone=False) as url, browser.open(url, "console") as page:
        page.call("((token) => localStorage.setItem('credential', token))", token)
        page.call("(() => location.reload())")
        wait_until(page, "at('.enter') && localStorage.length === 0")
        enter(page, machine.key)
        wait_until(page, "at('.credit').innerText.includes('0.00 USD')")
        with browser.tab(url, "console", "", page.context) as other:
            wait_until(other, "at('.enter')")
