"""The console in Chromium, over engines without weights."""

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from configs.settings import SignUpPolicy
from tests.api.local_server import Server, local_settings, serve_services
from tests.api.local_services import local_services
from tests.clients.browser import Page, open_url

TIMEOUT_S = 20.0


@pytest.fixture
def page(tone_server: Server, tmp_path: Path) -> Iterator[Page]:
    """The console, with no user signed in."""
    with open_url(tone_server.url, "console", tmp_path / "none.wav") as opened:
        yield opened


def test_signing_out_clears_all_data_of_the_account(tone_server: Server, page: Page) -> None:
    sign_up(page, "first@example.com")
    submit(page, "speak-form", text="No other user may hear this.")
    wait_until(page, "!at('spoken').hidden")
    submit(page, "create-form", name="mine")
    made = wait_until(page, "at('created').textContent")
    assert made.startswith("sk_")
    run(page, "leave()")  # what a refused credential does; the button reloads the page as well

    sign_up(page, "second@example.com")
    assert run(page, "document.documentElement.innerHTML.includes('sk_')") is False
    assert run(page, "at('spoken').hidden && !at('spoken').hasAttribute('src')") is True
    assert run(page, "document.querySelector('#key-form input').value") == ""
    assert run(page, "document.querySelector('#login-form [name=email]').value") == ""


def test_the_account_page_shows_usage_charges_and_webhook_deliveries(page: Page) -> None:
    sign_up(page, "third@example.com")
    assert run(page, "at('credit').textContent") == "5.00 USD"
    assert "Free" in run(page, "at('plan').textContent")
    hook = {"url": "https://hooks.example.com/", "events": ["tts.completed"]}
    run(page, f"call('/webhooks', {{method: 'POST', json: {json.dumps(hook)}}}).then(() => true)")
    submit(page, "speak-form", text="Ten chars.")
    wait_until(page, "STATUS.includes('of speech')")
    run(page, "document.querySelector('#refresh button').click()")
    wait_until(page, "at('usage').rows.length === 1")
    assert run(page, "at('usage').innerText.split('\\t')") == [
        "Speech",
        "10 characters",
        "1",
        "0.00015 USD",
    ]
    assert run(page, "document.activeElement.textContent") == "Refresh"  # the focus is kept
    run(page, "document.querySelectorAll('#hooks button')[1].click()")
    assert "tts.completed is on its way" in wait_until(page, "STATUS.includes('way') && STATUS")
    assert run(page, "at('deliveries').rows.length") == 2  # of the speech, and the sample
    run(page, "leave()")
    for word in ("hooks.example.com", "0.00015", "4.99", "Free"):
        assert run(page, f"at('work').innerHTML.includes('{word}')") is False, word


def test_the_page_lists_and_ends_sessions_and_changes_the_password(
    tone_server: Server, page: Page
) -> None:
    sign_up(page, "fourth@example.com")
    body = {"email": "fourth@example.com", "password": "correct horse"}
    other = httpx.post(f"{tone_server.url}/auth/login", json=body).json()["token"]
    agents = "[...at('session-rows').rows].map((row) => row.cells[3].textContent)"
    run(page, "showSessions().then(() => true)")
    assert "python-httpx" in run(page, f"{agents}[0]") and len(run(page, agents)) == 2
    run(page, "at('session-rows').rows[0].querySelector('button').click()")
    wait_until(page, "STATUS === 'The session has ended.' && at('session-rows').rows.length === 1")
    assert plans(tone_server, other) == 401
    other = httpx.post(f"{tone_server.url}/auth/login", json=body).json()["token"]
    run(page, "showSessions().then(() => true)")
    run(page, "document.querySelector('#end-others button').click()")
    wait_until(page, "STATUS.includes('All other') && at('session-rows').rows.length === 1")
    assert plans(tone_server, other) == 401
    other = httpx.post(f"{tone_server.url}/auth/login", json=body).json()["token"]
    submit(page, "password-form", current="wrong horse", new="battery staple")
    refusal = wait_until(page, "at('status').className === 'bad' && STATUS")
    assert refusal == "current_password: is not the password of this account"
    submit(page, "password-form", current="correct horse", new="battery staple")
    wait_until(page, "STATUS.includes('is changed')")
    token = run(page, "sessionStorage.getItem('credential')")
    assert [plans(tone_server, one) for one in (other, token)] == [401, 200]
    assert run(page, f"{agents}.length") == 1
    run(page, "at('leave').click()")
    wait_until(page, "typeof at === 'function' && at('work').hidden && sessionStorage.length === 0")
    assert plans(tone_server, token) == 401


@pytest.mark.parametrize(
    ("policy", "shown"),
    [("open", [True, False]), ("invite", [True, True]), ("closed", [False, False])],
)
def test_the_page_shows_sign_up_by_the_policy_of_the_service(
    tmp_path: Path, policy: SignUpPolicy, shown: list[bool]
) -> None:
    services = local_services(replace(local_settings(tmp_path), sign_up=policy))
    with serve_services(services) as server:
        with open_url(server.url, "console", tmp_path / "none.wav") as page:
            wait_until(page, "typeof enter === 'function' && at('work').hidden")
            button = "document.querySelector('[value=\"/auth/signup\"]').checkVisibility()"
            assert run(page, f"[{button}, at('invite').checkVisibility()]") == shown


def plans(server: Server, token: str) -> int:
    headers = {"Authorization": f"Bearer {token}"}
    return httpx.get(f"{server.url}/plans", headers=headers).status_code


def test_a_key_with_one_scope_hides_billing_and_webhooks(tone_server: Server, page: Page) -> None:
    answer = httpx.post(
        f"{tone_server.url}/developer/api",
        headers={"Authorization": f"Bearer {tone_server.key}"},
        json={"name": "speaks", "scopes": ["tts"]},
    )
    submit(page, "key-form", key=answer.raise_for_status().json()["key"])
    wait_until(page, "!at('work').hidden")
    assert run(page, "at('money').hidden && at('webhooks').hidden") is True
    submit(page, "speak-form", text="Only this.")
    assert "s of speech" in wait_until(page, "at('status').textContent.includes('of') && STATUS")
    submit(page, "chat-form", message="And chat?")
    refusal = wait_until(page, "at('status').className === 'bad' && STATUS")
    assert refusal == "the API key lacks the scope 'chat'"


def test_a_wrong_key_is_reported_and_not_stored(page: Page) -> None:
    submit(page, "key-form", key="sk_wrong")
    assert "wrong" in wait_until(page, "at('status').className === 'bad' && STATUS")
    assert run(page, "at('work').hidden && sessionStorage.length === 0") is True
    assert run(page, "document.querySelector('#key-form input').value") == "sk_wrong"


def sign_up(page: Page, email: str) -> None:
    wait_until(page, "typeof enter === 'function' && at('work').hidden")
    fill(page, "login-form", email=email, password="correct horse")
    run(page, "document.querySelector('[value=\"/auth/signup\"]').click()")
    wait_until(page, "!at('work').hidden")


def submit(page: Page, form: str, **fields: str) -> None:
    fill(page, form, **fields)
    run(page, f"document.querySelector('#{form} button').click()")


def fill(page: Page, form: str, **fields: str) -> None:
    for name, value in fields.items():
        run(page, f"document.querySelector('#{form} [name={name}]').value = {json.dumps(value)}")


def wait_until(page: Page, expression: str) -> Any:
    """Polls an expression until it is truthy, and returns its value."""
    deadline = time.monotonic() + TIMEOUT_S
    while not (value := run(page, expression)):
        assert time.monotonic() < deadline, f"{expression} did not come true"
        time.sleep(0.05)
    return value


def run(page: Page, expression: str) -> Any:
    status = "at('status').textContent"
    return page.call(f"(() => {expression.replace('STATUS', status)})")
