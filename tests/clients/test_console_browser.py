"""Entering the console, leaving it, and its account pages, in Chromium over engines without
weights."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from configs.settings import SignUpPolicy
from tests.api.local_server import OPERATOR_TOKEN, Server, local_settings, serve_services
from tests.api.local_services import local_services
from tests.clients.browser import Browser, Page
from tests.clients.console_page import (
    PASSWORD,
    enter,
    expect,
    expect_part,
    fill,
    go,
    kept,
    log_in,
    press,
    run,
    sign_out,
    sign_up,
    wait_until,
)

SECRET = "No other user may read this."


@pytest.fixture
def page(tone_server: Server, browser: Browser) -> Iterator[Page]:
    """The console, with no user signed in."""
    with browser.open(tone_server.url, "console") as opened:
        yield opened


def test_signing_out_clears_all_data_of_the_account(page: Page) -> None:
    sign_up(page, "first@example.com")
    fill(page, Text=SECRET)
    press(page, "Create a file")
    wait_until(page, "all('.history-row').length === 1")
    press(page, "Preview Alto")
    go(page, "chat")
    fill(page, Message=SECRET)
    press(page, "Send")
    wait_until(page, "said().includes('tokens')")
    go(page, "account/keys")
    fill(page, Name="mine")
    press(page, "Create API key")
    assert wait_until(page, "at('.secret code')?.textContent").startswith("sk_")
    assert kept(page)[2:] == [1, 1]
    sign_out(page)
    assert kept(page) == [0, 0, 0, 0]

    sign_up(page, "second@example.com")
    html = "document.documentElement.innerHTML"
    assert run(page, f"{html}.includes('sk_')") is False
    for path in ("speak", "chat", "account/keys"):
        go(page, path)
        wait_until(page, "!at('.loading')")
        texts = "[...document.querySelectorAll('textarea, input')].map((one) => one.value).join()"
        assert run(page, f"({html} + {texts}).includes({json.dumps(SECRET)})") is False
    assert run(page, "document.querySelectorAll('.history-row').length") == 0


def test_an_answer_that_comes_after_the_sign_out_is_not_kept(page: Page) -> None:
    sign_up(page, "leaving@example.com")
    page.call(
        """(() => {
            const fetched = window.fetch;
            window.fetch = async (path, options) => {
                const answer = await fetched(path, options);
                if (path === '/tts-synthesize') {
                    await new Promise((resolve) => { window.let_pass = resolve; });
                }
                return answer;
            };
        })"""
    )
    fill(page, Text=SECRET)
    press(page, "Create a file")
    wait_until(page, "Boolean(window.let_pass)")
    sign_out(page)
    sign_up(page, "arriving@example.com")
    wait_until(page, "at('.voice-card')")
    run(page, "(let_pass(), new Promise((end) => setTimeout(end, 1000)))")
    assert kept(page)[2:] == [0, 0]


def test_work_of_an_ended_session_is_kept_for_its_user_alone(
    tone_server: Server, page: Page
) -> None:
    sign_up(page, "ended@example.com")
    for other in (False, True):
        fill(page, Text=SECRET)
        end_sessions(tone_server, "ended@example.com")
        press(page, "Create a file")
        wait_until(page, "at('.enter')")
        expect_part(page, "at('.enter').innerText", "session has ended")
        assert run(page, f"document.body.innerHTML.includes({json.dumps(SECRET)})") is False
        assert run(page, "sessionStorage.length") == 0
        if other:
            sign_up(page, "other@example.com")
            wait_until(page, "labelled('Text')?.value.startsWith('Good morning')")
            stored = "JSON.stringify({...localStorage})"
            assert run(page, f"{stored}.includes({json.dumps(SECRET)})") is False
        else:
            log_in(page, "ended@example.com")
            wait_until(page, f"labelled('Text')?.value === {json.dumps(SECRET)}")


def end_sessions(server: Server, email: str) -> None:
    """Ends all sessions of a user."""
    token = log_in_by_api(server, email)
    httpx.delete(f"{server.url}/auth/sessions", headers=bearer(token)).raise_for_status()
    httpx.post(f"{server.url}/auth/logout", headers=bearer(token)).raise_for_status()


def log_in_by_api(server: Server, email: str, password: str = PASSWORD) -> str:
    body = {"email": email, "password": password}
    return str(httpx.post(f"{server.url}/auth/login", json=body).raise_for_status().json()["token"])


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def plans(server: Server, token: str) -> int:
    return httpx.get(f"{server.url}/plans", headers=bearer(token)).status_code


def test_credit_moves_after_work_and_webhooks_are_made_tested_and_deleted(page: Page) -> None:
    sign_up(page, "third@example.com")
    wait_until(page, "at('.credit').innerText.includes('5.00 USD')")
    go(page, "account/100%")  # a sign that begins no code
    go(page, "account/webhooks")
    press(page, "Add a webhook")
    fill(page, Address="http://hooks.example.com/")
    press(page, "Add the webhook")
    assert wait_until(page, "failed()").startswith("Address: must begin with https://")
    expect(page, "labelled('Address').ariaInvalid", "true")
    page.call("(() => { location.hash = '#/account/keys'; })")
    wait_until(page, "!document.querySelector('dialog')")  # none lies over the next page
    go(page, "account/webhooks")
    press(page, "Add a webhook")
    fill(page, Address="https://hooks.example.com/")
    press(page, "Add the webhook")
    wait_until(page, "!top().matches?.('dialog') && all('.hook').length === 1")
    go(page, "speak")
    fill(page, Text="Ten chars.")
    press(page, "Create a file")
    wait_until(page, "said().includes('0.00015 USD')")
    wait_until(page, "at('.credit').innerText.includes('4.99985 USD')")  # without a refresh

    go(page, "account/overview")
    assert "Free" in wait_until(page, "at('#plan').textContent")
    wait_until(page, "rows('main').length === 1")
    press(page, "Refresh")
    row = run(page, "rows('main')[0].split('\\t')")
    assert row == ["Speech", "10 characters", "1", "0.00015 USD"]
    wait_until(page, "!at('.busy')")
    expect(page, "document.activeElement.id", "refresh-usage")  # the focus is kept
    for width, units in ((390, 340), (1280, 640)):
        page.command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=800,
            deviceScaleFactor=1,
            mobile=False,
        )
        box = f"at('.chart svg').getAttribute('viewBox').startsWith('0 0 {units} ')"
        wait_until(page, box)  # drawn again, so that its text keeps its size
    fill(page, **{"Group by": "key"})
    wait_until(page, "rows('main')[0]?.startsWith('Log-ins and tokens')")

    go(page, "account/webhooks")
    press(page, "Send a test to https://hooks.example.com/")
    wait_until(page, "said() === 'A sample of tts.completed is on its way.'")
    press(page, "Deliveries to https://hooks.example.com/")
    wait_until(page, "rows('dialog').length === 2")  # of the speech, and the sample
    press(page, "Close")
    sign_out(page)
    for word in ("hooks.example.com", "0.00015", "4.99", "Free"):
        assert run(page, f"document.body.innerHTML.includes('{word}')") is False, word


@pytest.mark.slow
def test_credit_and_plan_that_an_operator_changes_are_shown(
    tone_server: Server, page: Page
) -> None:
    sign_up(page, "stale@example.com")
    token = log_in_by_api(tone_server, "stale@example.com")
    workspace = httpx.get(f"{tone_server.url}/auth/workspace", headers=bearer(token)).json()["id"]

    def change(part: str, **json: str | float) -> None:
        url = f"{tone_server.url}/operator/workspaces/{workspace}/{part}"
        httpx.post(url, headers=bearer(OPERATOR_TOKEN), json=json).raise_for_status()

    go(page, "account/overview")
    wait_until(page, "at('#plan').textContent.startsWith('Free')")
    change("credit", usd=2.5)
    change("plan", plan_id="pro", billing_cycle="monthly")
    run(page, "(at('.credit').click(), true)")  # a link to the page that is shown
    wait_until(page, "at('#credit').textContent === '7.50 USD'")
    wait_until(page, "at('#plan').textContent.startsWith('Pro')")
    change("credit", usd=1)
    page.call("(() => { document.dispatchEvent(new Event('visibilitychange')); })")
    wait_until(page, "at('#credit').textContent === '8.50 USD'")
    for path in ("account/audit", "account/keys"):
        change("credit", usd=1)
        credit = float(run(page, "at('.credit strong').textContent").split()[0])
        go(page, path)
        wait_until(page, f"at('.credit strong').textContent === '{credit + 1:.2f} USD'")
    go(page, "account/audit")
    wait_until(page, "rows('main').some((one) => one.endsWith('2.50 USD'))")
    rows = run(page, "rows('main').join()")
    assert "stale@example.com" in rows and "user:" not in rows


@pytest.mark.slow
def test_the_profile_is_shown_and_a_cleared_field_is_emptied(
    tone_server: Server, page: Page
) -> None:
    sign_up(page, "profile@example.com")
    headers = bearer(log_in_by_api(tone_server, "profile@example.com"))
    url, profile = f"{tone_server.url}/auth/profile", {"name": "Ada", "company": "Engines"}
    httpx.put(url, headers=headers, json=profile).raise_for_status()
    go(page, "account/settings")
    wait_until(page, "labelled('Company')?.value === 'Engines' && labelled('Name').value === 'Ada'")
    fill(page, Company="")
    run(page, "(labelled('Company').form.requestSubmit(), true)")
    wait_until(page, "said() === 'Saved: Ada, –.'")
    shown = httpx.put(url, headers=headers, json={}).json()
    assert [shown["name"], shown["company"]] == ["Ada", ""]


def test_the_page_lists_and_ends_sessions_and_changes_the_password(
    tone_server: Server, page: Page
) -> None:
    sign_up(page, "fourth@example.com")
    other = log_in_by_api(tone_server, "fourth@example.com")
    go(page, "account/settings")
    wait_until(page, "rows('#sessions').length === 2")
    expect_part(page, "rows('#sessions')[0]", "python-httpx")
    run(page, "(all('#sessions button')[0].click(), true)")
    wait_until(page, "said() === 'The session has ended.' && rows('#sessions').length === 1")
    assert plans(tone_server, other) == 401
    other = log_in_by_api(tone_server, "fourth@example.com")
    go(page, "account/overview")
    go(page, "account/settings")
    wait_until(page, "rows('#sessions').length === 2")
    press(page, "End all others")
    wait_until(page, "said().includes('All other') && rows('#sessions').length === 1")
    assert plans(tone_server, other) == 401
    other = log_in_by_api(tone_server, "fourth@example.com")
    fill(page, Current_password="wrong horse", New_password="battery staple")
    press(page, "Change password")
    refusal = wait_until(page, "failed()")
    assert refusal == "Current password: is not the password of this account."
    expect(page, "document.activeElement.id", "change-password")
    fill(page, Current_password=PASSWORD, New_password="battery staple")
    press(page, "Change password")
    wait_until(page, "said().includes('is changed')")
    token = run(page, "sessionStorage.getItem('credential')")
    assert [plans(tone_server, one) for one in (other, token)] == [401, 200]
    sign_out(page)
    assert run(page, "sessionStorage.length") == 0
    assert plans(tone_server, token) == 401


@pytest.mark.parametrize(
    ("policy", "shown"),
    [
        pytest.param("open", [True, False], marks=pytest.mark.slow),
        ("invite", [True, True]),
        pytest.param("closed", [False, False], marks=pytest.mark.slow),
    ],
)
def test_the_page_shows_sign_up_by_the_policy_of_the_service(
    tmp_path: Path, browser: Browser, policy: SignUpPolicy, shown: list[bool]
) -> None:
    services = local_services(replace(local_settings(tmp_path), sign_up=policy))
    with serve_services(services) as server:
        with browser.open(server.url, "console") as page:
            wait_until(page, "at('.enter')")
            found = "[Boolean(button('Sign up')), Boolean(labelled('Invite code'))]"
            expect(page, found, shown)
            brings = run(page, "at('.enter').innerText.includes('5.00 USD of credit')")
            assert brings is (policy != "closed")


def test_a_key_with_one_scope_says_in_each_panel_what_it_lacks(
    tone_server: Server, page: Page
) -> None:
    answer = httpx.post(
        f"{tone_server.url}/developer/api",
        headers=bearer(tone_server.key),
        json={"name": "speaks", "scopes": ["tts"]},
    )
    enter(page, answer.raise_for_status().json()["key"])
    fill(page, Text="Only this.")
    press(page, "Create a file")
    wait_until(page, "said().includes('of speech')")
    go(page, "chat")
    fill(page, Message="And chat?")
    press(page, "Send")
    assert wait_until(page, "failed()").startswith("The API key or token lacks the scope 'chat'.")
    expect(page, "labelled('Message').value", "And chat?")  # can be sent again
    go(page, "account/webhooks")
    assert "lacks the scope 'webhooks'" in wait_until(page, "failed()")
    go(page, "listen/microphone")  # whose refused socket does not say why
    press(page, "Start listening")
    assert wait_until(page, "failed()").startswith("The API key or token lacks the scope 'stt'.")


def test_keys_have_scopes_and_an_end_and_are_deleted_by_name(page: Page) -> None:
    sign_up(page, "keys@example.com")
    go(page, "account/keys")
    run(page, "(labelled('All scopes').click(), true)")
    fill(page, Name="server", Expires="30")
    press(page, "Create API key")
    assert "at least one scope" in wait_until(page, "failed()")
    run(page, "(labelled('tts: speech').click(), true)")
    press(page, "Create API key")
    wait_until(page, "rows('#keys').length === 1 && at('.secret')")
    expect(page, "rows('#keys')[0].split('\\t')[2]", "tts")
    expect(page, "[labelled('All scopes').checked, labelled('Name').value]", [True, ""])
    html = "document.documentElement.innerHTML"
    for number, path in enumerate(("account/audit", "speak"), start=2):
        go(page, "account/keys")
        fill(page, Name=f"before {path}")
        press(page, "Create API key")
        wait_until(page, f"rows('#keys').length === {number}")  # no secret of the key before it
        made = wait_until(page, "at('.secret code')?.textContent")
        go(page, path)
        wait_until(page, f"!{html}.includes('{made}')")  # shown once
    go(page, "account/keys")
    wait_until(page, "rows('#keys').length === 3")
    for name in ("before account/audit", "before speak"):
        press(page, f"Delete the key {name}")
        press(page, "Delete")
        wait_until(page, f"said() === 'The key {name} is deleted.'")
    press(page, "Delete the key server")
    press(page, "Delete")
    wait_until(page, "said() === 'The key server is deleted.'")
    expect(page, "at('#keys').innerText", "There is no key yet.")


def test_a_wrong_key_is_reported_and_not_stored(page: Page) -> None:
    press(page, "Use an API key")
    fill(page, **{"API key": "sk_wrong"})
    press(page, "Enter")
    assert "wrong" in wait_until(page, "failed()")
    expect(page, "Boolean(at('.enter')) && sessionStorage.length === 0", True)
    expect(page, "labelled('API key').value", "sk_wrong")
