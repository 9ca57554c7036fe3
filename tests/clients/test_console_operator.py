"""The operator's page of the console, in Chromium over engines without weights."""

import httpx
import pytest

from tests.api.local_server import OPERATOR_TOKEN, Server
from tests.clients.browser import Page
from tests.clients.console_page import (
    enter,
    fill,
    go,
    hurry,
    kept,
    press,
    run,
    sign_out,
    wait_until,
)
from tests.clients.test_console_browser import page

__all__ = ["page"]  # a fixture

LINKS = "all('.nav-link').map((one) => one.textContent)"
EMAIL = "paying@example.com"
# From now on, each model has a canary.
CANARIES = """(() => {
    const fetched = window.fetch;
    window.fetch = async (path, options) => {
        const answer = await fetched(path, options);
        if (path !== '/operator/overview') return answer;
        const overview = await answer.json();
        for (const model of Object.values(overview.models)) {
            model.canary = {id: 'svc/new', share: 0.004};
        }
        return new Response(JSON.stringify(overview));
    };
})"""


@pytest.fixture
def operator(page: Page, tone_server: Server) -> Page:
    """The operator's page, with the workspace of a user."""
    body = {"email": EMAIL, "password": "a long password", "name": "Paying"}
    httpx.post(f"{tone_server.url}/auth/signup", json=body)  # refused the second time
    hurry(page)
    open_page(page, OPERATOR_TOKEN)
    wait_until(page, "at('.frame')")
    return page


def open_page(page: Page, token: str) -> None:
    press(page, "Operator")
    fill(page, **{"Operator's token": token})
    press(page, "Open the operator's page")


def test_without_a_workspace_only_the_operators_page_is_shown(
    operator: Page, tone_server: Server
) -> None:
    assert run(operator, LINKS) == ["Operator"]
    assert run(operator, "document.querySelector('.credit')") is None
    operator.call("(() => { location.hash = '#/speak'; })")
    wait_until(operator, "location.hash.startsWith('#/operator')")
    press(operator, "Log in to a workspace")
    enter(operator, tone_server.key)
    names = ["Speak", "Listen", "Talk", "Chat", "Jobs", "Voices", "Account", "Operator"]
    assert run(operator, LINKS) == names
    go(operator, "operator")
    wait_until(operator, "rows('[aria-label=Deployments]').length")
    sign_out(operator)
    assert kept(operator)[:2] == [0, 0]


def test_a_wrong_token_is_refused_and_not_kept(page: Page) -> None:
    open_page(page, "wrong")
    assert "token is missing or wrong" in wait_until(page, "failed()")
    assert run(page, "at('.enter-card').innerText.includes('credit')") is False
    assert kept(page)[0] == 0


@pytest.mark.slow
def test_the_overview_has_models_gateways_and_rates(operator: Page) -> None:
    assert wait_until(operator, "rows('[aria-label=Deployments]').length") >= 3
    models = run(operator, "rows('[aria-label=Deployments]').join()")
    assert "svc/" in models and "ready" in models
    assert run(operator, "rows('[aria-label=Gateways]').length") == 1
    link = run(operator, "all('a').find((one) => one.textContent === \"Ray's dashboard\").href")
    assert link.startswith("http://127.0.0.1")
    wait_until(operator, "all('.chart').length === 3")
    assert "Requests a second" in run(operator, "at('.chart figcaption').textContent")


def test_the_overview_names_a_canary(operator: Page) -> None:
    wait_until(operator, "rows('[aria-label=Deployments]').length")
    operator.call(CANARIES)
    wait_until(
        operator,
        "rows('[aria-label=Deployments]').join().includes('0.4 % of the requests go to svc/new')",
    )


def test_credit_and_plan_of_a_workspace_are_changed(operator: Page) -> None:
    go(operator, "operator/workspaces")
    wait_until(operator, "rows('[aria-label=Workspaces]').length > 1")
    run(operator, f"fill('Search by email, name or id', '{EMAIL}')")
    press(operator, "Search")
    wait_until(operator, "rows('[aria-label=Workspaces]').length === 1")
    for said in ("Paying now has 30.00 USD.", "Nothing changed: this reference was booked before."):
        press(operator, "Change the credit of Paying")
        fill(operator, USD="25", Reference="invoice-7")
        press(operator, "Save")
        wait_until(operator, f"said().includes('{said}')")
    press(operator, "Change the credit of Paying")
    fill(operator, USD="-1000")
    press(operator, "Save")
    assert "less than the 1000.000000 USD to take" in wait_until(operator, "failed()")
    press(operator, "Close")
    press(operator, "Change the plan of Paying")
    fill(operator, Plan="pro", Cycle="annual")
    press(operator, "Save")
    wait_until(operator, "said().includes('Paying is now on Pro.')")
    focused = run(operator, "document.activeElement.getAttribute('aria-label')")
    assert focused == "Change the plan of Paying"
    row = run(operator, "rows('[aria-label=Workspaces]')[0]")
    assert EMAIL in row and "pro" in row and "30.00 USD" in row


def test_a_configuration_is_checked_and_deployed_after_a_question(operator: Page) -> None:
    go(operator, "operator/models")
    label = "Configuration of the running models"
    wait_until(operator, f"labelled('{label}')?.value.includes('applications')")
    press(operator, "Check")
    wait_until(operator, "at('pre')?.innerText === 'nothing changes'")
    press(operator, "Deploy")
    wait_until(operator, "at('dialog[open]')")
    press(operator, "Go back")
    wait_until(operator, "!at('.busy') && !at('pre')")
    press(operator, "Deploy")
    wait_until(operator, "at('dialog[open]')")
    press(operator, "Deploy")
    wait_until(operator, "said().includes('The configuration is deployed.')")
    run(operator, f"fill('{label}', 'wrong: yes')")
    press(operator, "Check")
    assert "no configuration of Ray Serve" in wait_until(operator, "failed()")
    run(operator, f"fill('{label}', 'applications: broken')")
    run(operator, "(scrollTo(0, document.body.scrollHeight), true)")
    press(operator, "Check")
    wait_until(operator, "failed() === 'The configuration cannot be deployed.'")
    go(operator, "operator/overview")
    wait_until(operator, "rows('[aria-label=Deployments]').length")
    go(operator, "operator/models")
    wait_until(operator, f"labelled('{label}')")
    assert run(operator, "failed()") == "The configuration cannot be deployed."
    assert run(operator, "at('pre').innerText") == "svc/broken: its weights are missing"
    box = run(operator, "(({top, bottom}) => [top, bottom])(at('pre').getBoundingClientRect())")
    assert 0 <= box[0] and box[1] <= run(operator, "innerHeight")
