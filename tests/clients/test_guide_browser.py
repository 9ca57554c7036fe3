"""The guide and the reference in Chromium: search, themes, and the width of a telephone."""

from collections.abc import Iterator

import pytest

from api.guide import routes
from tests.api.local_server import Server
from tests.clients.browser import Page, open_url
from tests.clients.waiting import run, wait_until
from tests.guide_site import build_site

REFUSED = """
    window.refused = [];
    addEventListener('securitypolicyviolation', (event) => refused.push(event.violatedDirective));
"""
SEARCH = """((words) => {
    const field = document.querySelector('[data-md-component=search-query]');
    document.querySelector('#__search').checked = true;
    field.focus();
    field.value = words;
    for (const name of ['input', 'keyup']) field.dispatchEvent(new Event(name, {bubbles: true}));
})"""
FOUND = "[...document.querySelectorAll('.md-search-result__link')].map((link) => link.href)"
LOADED = "performance.getEntriesByType('resource').map((one) => one.name)"
BACKGROUND = "getComputedStyle(document.body).backgroundColor"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory, tone_server: Server) -> Iterator[Page]:
    folder = tmp_path_factory.mktemp("guide")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(routes, "SITE_DIR", build_site(tmp_path_factory))
        with open_url(tone_server.url, "guide/tasks/index.html", folder / "none.wav") as opened:
            opened.command("Page.enable")
            opened.command("Page.addScriptToEvaluateOnNewDocument", source=REFUSED)
            show(opened, tone_server, "guide/operating.html")
            yield opened


def show(page: Page, server: Server, path: str) -> None:
    page.command("Page.navigate", url=f"{server.url}/{path}")
    page.wait_until_loaded(path)


def test_the_search_finds_pages_without_leaving_the_service(
    page: Page, tone_server: Server
) -> None:
    page.call(SEARCH, "WEBHOOK_CA_FILE")
    found = wait_until(page, f"{FOUND}.length && {FOUND}")
    assert any("/guide/operating.html" in link for link in found), found
    assert run(page, "refused") == []
    assert all(name.startswith((tone_server.url, "blob:")) for name in run(page, LOADED))
    page.command("Page.navigate", url=found[0])
    wait_until(page, "document.readyState === 'complete' && location.pathname.includes('/guide/')")
    assert run(page, "refused") == []


def test_a_search_for_audiobooks_lists_the_task_first(page: Page, tone_server: Server) -> None:
    show(page, tone_server, "guide/operating.html")
    page.call(SEARCH, "audiobook")
    found = wait_until(page, f"{FOUND}.length && {FOUND}")
    assert "/guide/tasks/long.html" in found[0], found


def test_the_reference_is_not_wider_than_a_telephone(page: Page, tone_server: Server) -> None:
    screen = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    page.command("Emulation.setDeviceMetricsOverride", **screen)
    show(page, tone_server, "docs")
    wait_until(page, "document.querySelector('.opblock') !== null")
    widest = "Math.max(document.documentElement.scrollWidth, innerWidth)"
    assert run(page, widest) == 390
    page.command("Emulation.clearDeviceMetricsOverride")


def test_it_is_light_or_dark_as_the_system_is(page: Page, tone_server: Server) -> None:
    shown = []
    for scheme in ("light", "dark"):
        feature = {"name": "prefers-color-scheme", "value": scheme}
        page.command("Emulation.setEmulatedMedia", features=[feature])
        show(page, tone_server, "guide/tasks/captions.html")
        shown.append(run(page, BACKGROUND))
    light, dark = (sum(map(int, one[4:-1].split(", ")[:3])) for one in shown)
    assert light > 600 and dark < 200, shown
    assert run(page, "refused") == []


def test_a_page_that_does_not_exist_still_has_its_style(page: Page, tone_server: Server) -> None:
    show(page, tone_server, "guide/none/none.html")
    assert "404" in run(page, "document.body.textContent")
    assert run(page, "document.styleSheets.length") >= 2
    assert run(page, "refused") == []
