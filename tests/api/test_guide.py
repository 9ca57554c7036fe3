"""The site of docs/: what `make guide` builds, and how the gateway serves it at /guide."""

import re
from html.parser import HTMLParser
from os.path import dirname, join, normpath
from pathlib import Path

import httpx
import pytest
import yaml

from api.guide import routes
from configs.settings import PROJECT_DIR
from tests.guide_site import CONFIG, build_site

DOCS = PROJECT_DIR / "docs"
LOADED = {("script", "src"), ("link", "href"), ("img", "src"), ("iframe", "src"), ("source", "src")}
LOADED |= {("audio", "src")}
GENERATED = {"index.md", "SECURITY.md", "CHANGELOG.md", "endpoints.md"}
ELSEWHERE = {"/docs", "/console"}

pytestmark = pytest.mark.in_process


class ReadPage(HTMLParser):
    """What one page has, links to and loads."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.is_strict = True  # nothing that the policy would refuse
        self.feed(html)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attributes}
        self.ids.update(given[name] for name in ("id", "name") if name in given)
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if given.get("rel") not in ("canonical", "prev", "next"):
            self.loaded += [value for name, value in given.items() if (tag, name) in LOADED]
        is_code = tag == "script" and "src" not in given and given.get("type") != "application/json"
        if is_code or tag == "style" or any(name.startswith("on") for name in given):
            self.is_strict = False


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_site(tmp_path_factory)


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, ReadPage]:
    return {
        path.relative_to(site).as_posix(): ReadPage(path.read_text())
        for path in site.rglob("*.html")
    }


@pytest.fixture
def served(site: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(routes, "SITE_DIR", site)
    return site


def test_each_page_is_in_the_navigation() -> None:
    listed = set(re.findall(r"[\w/-]+\.md", str(yaml.safe_load(CONFIG.read_text())["nav"])))
    there = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    assert listed == there | GENERATED


def test_each_link_leads_to_a_page_and_a_section(pages: dict[str, ReadPage], site: Path) -> None:
    assert len(pages) > 25
    wrong = []
    for name, page in pages.items():
        for link in page.links:
            path, _, anchor = link.partition("#")
            if re.match(r"\w+:", path) or path in ELSEWHERE or link == "." or name == "404.html":
                continue
            target = normpath(join(dirname(name), path)) if path else name
            found = pages.get(target)
            if found is None or (anchor and anchor not in found.ids):
                wrong.append((name, link))
    assert wrong == []
    assert {link.partition("#")[0] for link in pages["404.html"].links if "://" not in link} <= {
        *(f"/guide/{name}" for name in pages),
        *("", ".", "/guide/", *ELSEWHERE),
    }


def test_nothing_is_loaded_from_elsewhere(pages: dict[str, ReadPage], site: Path) -> None:
    for name, page in pages.items():
        assert page.is_strict, name
        for address in page.loaded:
            local = address.removeprefix("/guide/") if name == "404.html" else address
            assert (site / dirname(name) / local).is_file(), (name, address)
    for sheet in site.rglob("*.css"):
        assert re.findall(r"(?:@import|url\()\s*[\"']?(?:https?:)?//", sheet.read_text()) == []


def test_the_pages_have_every_endpoint_and_play_sounds(site: Path) -> None:
    endpoints = (site / "endpoints.html").read_text()
    assert "POST /openai/v1/audio/speech" in endpoints and "WebSocket" in endpoints
    assert (site / "voices.html").read_text().count("<audio ") > 5
    assert "<img " in (site / "index.html").read_text()


def test_no_code_of_the_service_looks_changed_by_a_built_site(site: Path) -> None:
    # The release is a digest of these (deployments/cluster/release.py).
    assert [path for path in site.rglob("*") if path.suffix in (".py", ".yaml")] == []


def test_examples_are_shown_whole(site: Path) -> None:
    shown = "".join(path.read_text() for path in site.rglob("*.html"))
    for example in (DOCS / "examples").iterdir():
        assert f"docs/examples/{example.name}<" in shown, example.name


async def test_pages_and_their_parts_are_served_with_their_types(
    client: httpx.AsyncClient, served: Path
) -> None:
    home = await client.get("/guide")
    assert (home.status_code, home.headers["location"]) == (307, "/guide/")
    page = await client.get("http://test//guide/")
    assert page.status_code == 200 and "Quick start" in page.text
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "unsafe" not in page.headers["content-security-policy"]
    assert page.headers["x-content-type-options"] == "nosniff"
    types = {".css": "text/css", ".js": "text/javascript", ".json": "application/json"}
    for suffix, expected in types.items():
        path = next(served.rglob(f"*{suffix}")).relative_to(served).as_posix()
        part = await client.get(f"/guide/{path}")
        assert part.status_code == 200
        assert part.headers["content-type"].split(";")[0] == expected


async def test_redirects_keep_scheme_and_host(client: httpx.AsyncClient, served: Path) -> None:
    """Behind a proxy, the gateway may know neither."""
    folder = next(path.name for path in served.iterdir() if (path / "index.html").is_file())
    redirects = {
        "/": "/console",
        "/console/": "/console",
        "/guide": "/guide/",
        f"/guide/{folder}": f"/guide/{folder}/",
    }
    for path, place in redirects.items():
        answer = await client.get(path, follow_redirects=False)
        assert (answer.status_code, answer.headers["location"]) == (307, place)
        assert (await client.get(place)).status_code == 200


async def test_a_page_that_is_unchanged_is_not_sent_again(
    client: httpx.AsyncClient, served: Path
) -> None:
    first = await client.get("/guide/api.html")
    assert first.headers["cache-control"] == "no-cache"
    again = await client.get("/guide/api.html", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    head = await client.head("/guide/api.html")
    assert (head.status_code, head.content) == (200, b"")


@pytest.mark.parametrize(
    "path",
    [
        "none.html",
        "tasks/none",
        "x" * 400,
        "../routes.py",
        "%2e%2e/routes.py",
        "..%2f..%2fapp.py",
        "%2fetc/passwd",
        "/etc/passwd",
        "assets/..%5c..%5croutes.py",
        "%00",
    ],
)
async def test_what_is_no_page_is_not_served(
    client: httpx.AsyncClient, served: Path, path: str
) -> None:
    answer = await client.get(httpx.URL(f"http://test/guide/{path}"))
    assert answer.status_code in (400, 404)
    assert "SITE_DIR" not in answer.text and "root:" not in answer.text
    assert "default-src" in answer.headers.get("content-security-policy", "default-src")


async def test_only_reading_is_allowed(client: httpx.AsyncClient, served: Path) -> None:
    answer = await client.post("/guide/")
    assert (answer.status_code, answer.json()["error"]) == (405, "method_not_allowed")


async def test_a_guide_that_is_not_built_is_said(
    client: httpx.AsyncClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "SITE_DIR", tmp_path / "none")
    answer = await client.get("/guide/")
    assert (answer.status_code, answer.json()["error"]) == (404, "not_found")
    assert "make guide" in answer.json()["message"]
    assert (await client.get("/healthz")).status_code == 200
