"""The report of a voice, as JSON and as a page."""

import base64
import hashlib
import re
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from api.native.voices.reports import HEADERS, _prefers_page
from api.services import Services
from pipelines.voices.report import VoiceReport
from tests.altered import altered
from tests.api.money import principal_of
from tests.api.native.voices.sample_reports import full_report
from tests.api.native.voices.voice_making import claim, create, finish, queue_of
from tests.cpu_time import check_cpu_units

Headers = dict[str, str]
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


async def ready(client: httpx.AsyncClient, auth: Headers, services: Services, **fields: Any) -> str:
    voice = await create(client, auth, **fields)
    await finish(services)
    return f"/voices/{voice['id']}/report"


def path_and_query(address: str) -> str:
    """The path and query of a signed address."""
    parts = urlsplit(address)
    return f"{parts.path}?{parts.query}"


async def test_a_report_describes_the_fitting_and_the_recordings(
    client: httpx.AsyncClient, auth: Headers, services: Services
) -> None:
    address = await ready(client, auth, services)
    answer = await client.get(address, headers=auth)
    assert (answer.status_code, answer.headers["vary"]) == (200, "Accept"), answer.text
    shown = answer.json()
    assert (shown["name"], shown["status"], shown["reason"]) == ("Ann", "ready", None)
    assert VoiceReport.model_validate(shown) == full_report()
    assert len(shown["recordings"]) == 3
    for recording in shown["recordings"]:
        assert recording["seconds"] >= 10
        assert 0.4 <= recording["speech_share"] <= 1
        assert recording["snr_db"] >= 10
        assert -50 <= recording["level_dbfs"] <= 0
        assert 0 <= recording["clipped_share"] <= 0.003


async def test_browsers_get_an_html_report_and_other_clients_json(
    client: httpx.AsyncClient, auth: Headers, services: Services
) -> None:
    address = await ready(client, auth, services)
    for accept, query, media_type in (
        ("*/*", "", "application/json"),
        (BROWSER, "", "text/html"),
        ("text/html;q=0.5, application/json", "", "application/json"),
        ("text/html;q=x", "", "application/json"),
        ("*/*", "?format=html", "text/html"),
        (BROWSER, "?format=json", "application/json"),
    ):
        answer = await client.get(address + query, headers={**auth, "Accept": accept})
        assert answer.status_code == 200
        assert answer.headers["content-type"].partition(";")[0] == media_type


@pytest.mark.parametrize("accept", ["a" * 60_000, "a/a;" * 15_000, "a/a;q=" + "1" * 60_000 + "x"])
def test_no_header_takes_long_to_read(accept: str) -> None:
    # Less than 0.1 is measured; to read the rest of it from each place takes 200.
    check_cpu_units(lambda: _prefers_page(accept), below=2)


async def test_the_html_report_is_self_contained_and_escapes_user_text(
    client: httpx.AsyncClient, auth: Headers, services: Services
) -> None:
    voice = await create(client, auth, name='<script>alert("x")</script>')
    queue, work = queue_of(services), await claim(services)
    report = full_report('<img src="https://example.com/x">').model_dump_json().encode()
    reason = "It does not <b>sound</b> alike."
    assert await queue.fail(work, "voice_unlike", reason, report)
    answer = await client.get(f"/voices/{voice['id']}/report?format=html", headers=auth)
    page = answer.text
    assert {answer.headers[name] for name in HEADERS} == set(HEADERS.values())
    assert not re.search(r"<(script|img|link|iframe|b)\b|\son\w+=|\sstyle=|url\(", page)
    assert "&lt;script&gt;" in page and "could not be made" in page
    assert set(re.findall(r"""(?:src|href)=["']([^;]+);""", page)) == {"data:audio/ogg"}
    (style,) = re.findall("<style>(.*?)</style>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"'sha256-{digest}'" in answer.headers["content-security-policy"]
    assert page.count("<svg") == 5 and page.count("<audio") == 2
    assert "Name 0" in page and "am_voice0" not in page


async def test_the_signed_report_url_needs_no_key_and_cannot_be_changed(
    client: httpx.AsyncClient, auth: Headers, services: Services
) -> None:
    address = await ready(client, auth, services)
    page_url = path_and_query((await client.get(address, headers=auth)).json()["page_url"])
    page = await client.get(page_url)
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert page.text == (await client.get(address + "?format=html", headers=auth)).text
    for wrong in (altered(page_url), page_url.replace("expires=1", "expires=2"), "/reports/x"):
        answer = await client.get(wrong)
        assert (answer.status_code, answer.json()["error"]) == (404, "not_found")
    assert (await client.delete(address.removesuffix("/report"), headers=auth)).status_code == 200
    assert (await client.get(page_url)).status_code == 404
    assert (await client.get(address, headers=auth)).json()["error"] == "voice_not_found"


async def test_a_signed_url_of_another_file_is_not_a_report(
    client: httpx.AsyncClient, auth: Headers, services: Services
) -> None:
    address = await ready(client, auth, services)
    principal = await principal_of(services, auth)
    other = await services.infrastructure.files.put(
        principal.workspace_id, "speech", "text/plain", b"words", 60
    )
    signed = services.infrastructure.files.url(other, principal.workspace_id, 60, "reports")
    answer = await client.get(path_and_query(signed))
    assert (answer.status_code, answer.json()["error"]) == (404, "not_found")
    assert (await client.get(address, headers=auth)).status_code == 200


async def test_a_processing_voice_has_no_report_yet(
    client: httpx.AsyncClient, auth: Headers
) -> None:
    voice = await create(client, auth)
    answer = await client.get(f"/voices/{voice['id']}/report", headers=auth)
    assert (answer.status_code, answer.json()["error"]) == (400, "voice_not_ready")


async def test_a_failed_voice_shows_its_partial_report(
    client: httpx.AsyncClient, auth: Headers, services: Services
) -> None:
    voice = await create(client, auth)
    queue, work = queue_of(services), await claim(services)
    short = VoiceReport(evaluations=3, seconds=9.0, similarity_curve=[(1, 0.5)], stock=[])
    assert await queue.fail(
        work, "voice_unlike", "It does not sound alike.", short.model_dump_json().encode()
    )
    address = f"/voices/{voice['id']}/report"
    shown = (await client.get(address, headers=auth)).json()
    assert (shown["status"], shown["reason"]) == ("failed", "It does not sound alike.")
    assert (shown["judged"], shown["samples"], shown["pitch"]) == (None, None, None)
    page = (await client.get(f"{address}?format=html", headers=auth)).text
    assert "<svg" not in page and "It does not sound alike." in page


@pytest.mark.parametrize("report", [None, b"{}", b"no json"])
async def test_a_missing_or_unreadable_report_is_not_found(
    client: httpx.AsyncClient, auth: Headers, services: Services, report: bytes | None
) -> None:
    voice = await create(client, auth)
    assert await queue_of(services).fail(await claim(services), "voice_unlike", "No.", report)
    for query in ("", "?format=html"):
        answer = await client.get(f"/voices/{voice['id']}/report{query}", headers=auth)
        assert (answer.status_code, answer.json()["error"]) == (404, "not_found")


def test_a_report_that_violates_the_schema_is_refused() -> None:
    whole = full_report().model_dump()
    for change in (
        {"version": 2},
        {"seconds": float("nan")},
        {"pitch": {"hz_bins": [1.0], "source": [], "clone": []}},
        {"spectrum": {"hz": [1.0, 2.0], "source_db": [0.0], "clone_db": [0.0, 1.0]}},
        {"samples": {"sentence": "x", "source": "no base64!", "clone": ""}},
    ):
        with pytest.raises(ValueError):
            VoiceReport.model_validate(whole | change)
    with pytest.raises(ValueError):
        VoiceReport.model_validate_json(b"[]")
