"""Stored files over HTTP: whole, in byte ranges, and only for a signed URL."""

import os
from urllib.parse import urlsplit

import httpx
import pytest

from api.services import Services
from pipelines.storage.files import PIECE_BYTES
from tests.altered import altered
from tests.api.money import principal_of

DATA = os.urandom(PIECE_BYTES + 1000)


@pytest.fixture
async def address(services: Services, auth: dict[str, str]) -> str:
    """Path and query of a file with DATA."""
    principal = await principal_of(services, auth)
    owner = principal.workspace_id
    file_id = await services.infrastructure.files.put(owner, "speech", "audio/mpeg", DATA, 86_400)
    parts = urlsplit(services.infrastructure.files.url(file_id, owner, 86_400))
    return f"{parts.path}?{parts.query}"


async def test_a_signed_url_needs_no_key(client: httpx.AsyncClient, address: str) -> None:
    answer = await client.get(address)
    assert (answer.status_code, answer.content) == (200, DATA)
    assert answer.headers["content-type"] == "audio/mpeg"
    assert answer.headers["accept-ranges"] == "bytes"
    assert answer.headers["content-length"] == str(len(DATA))


async def test_head_returns_the_file_size(client: httpx.AsyncClient, address: str) -> None:
    answer = await client.head(address)
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["content-length"] == str(len(DATA))


@pytest.mark.parametrize(
    ("asked", "start", "end"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=5-9", 5, 10),
        (f"bytes={PIECE_BYTES - 2}-{PIECE_BYTES + 2}", PIECE_BYTES - 2, PIECE_BYTES + 3),
        (f"bytes={PIECE_BYTES}-", PIECE_BYTES, len(DATA)),
        ("bytes=-3", len(DATA) - 3, len(DATA)),
        (f"bytes=-{10 * len(DATA)}", 0, len(DATA)),
        (f"bytes=9-{10 * len(DATA)}", 9, len(DATA)),
    ],
)
async def test_a_byte_range_returns_that_part_of_the_file(
    client: httpx.AsyncClient, address: str, asked: str, start: int, end: int
) -> None:
    answer = await client.get(address, headers={"Range": asked})
    assert (answer.status_code, answer.content) == (206, DATA[start:end])
    assert answer.headers["content-range"] == f"bytes {start}-{end - 1}/{len(DATA)}"
    assert answer.headers["content-length"] == str(end - start)


@pytest.mark.parametrize("asked", ["bytes=5-2", "bytes=", "bytes=0-1,4-5", "lines=1-2", "bytes=-"])
async def test_invalid_and_multiple_ranges_return_the_whole_file(
    client: httpx.AsyncClient, address: str, asked: str
) -> None:
    answer = await client.get(address, headers={"Range": asked})
    assert (answer.status_code, answer.content) == (200, DATA)


@pytest.mark.parametrize("asked", [f"bytes={len(DATA)}-", "bytes=-0", f"bytes={10**14}-"])
async def test_a_range_beyond_the_end_is_416_with_the_file_size(
    client: httpx.AsyncClient, address: str, asked: str
) -> None:
    answer = await client.get(address, headers={"Range": asked})
    assert (answer.status_code, answer.json()["error"]) == (416, "range_not_satisfiable")
    assert answer.headers["content-range"] == f"bytes */{len(DATA)}"


async def test_if_none_match_and_if_range_compare_the_etag(
    client: httpx.AsyncClient, address: str
) -> None:
    etag = (await client.head(address)).headers["etag"]
    assert (await client.get(address, headers={"If-None-Match": etag})).status_code == 304
    part = {"Range": "bytes=0-1"}
    assert (await client.get(address, headers={"If-Range": etag, **part})).status_code == 206
    assert (await client.get(address, headers={"If-Range": '"old"', **part})).status_code == 200


@pytest.mark.parametrize("change", ["no query", "signature", "expires", "id", "path"])
async def test_a_changed_signed_url_is_not_found(
    client: httpx.AsyncClient, address: str, change: str
) -> None:
    path, _, query = address.partition("?")
    other = {
        "no query": path,
        "signature": altered(address),
        "expires": address.replace("expires=", "expires=1"),
        "id": f"{altered(path)}?{query}",
        "path": f"/files/..%2F..%2Fsecrets.json?{query}",
    }[change]
    answer = await client.get(other)
    assert (answer.status_code, answer.json()["error"]) == (404, "not_found")
