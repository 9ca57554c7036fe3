"""Multipart forms with limits."""

import asyncio
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.requests import Request
from starlette.types import Message

from api.http.admission import BodySpace
from api.http.context import begin_context
from api.http.errors import ApiError
from api.http.turns import Turn, Turns
from api.http.uploads import MultipartForm, UploadLimits, receive_form
from api.services import Services
from configs.schema.platform import SlowClients
from tests.patience import PATIENCE_S

BOUNDARY = "edge"
LIMITS = UploadLimits(max_files=2, max_fields=3, max_file_bytes=100_000)


def part(name: str, data: bytes, filename: str | None = None) -> bytes:
    file = f'; filename="{filename}"' if filename is not None else ""
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"{file}\r\n\r\n'
    return head.encode() + data + b"\r\n"


def form(*parts: bytes) -> bytes:
    return b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()


class Upload:
    """A request that arrives in chunks, and counts how many were read."""

    def __init__(
        self,
        body: bytes,
        chunk: int = 1000,
        headers: dict[str, str] | None = None,
        space: BodySpace | None = None,
        workspace_id: int = 0,
    ) -> None:
        self.read = 0
        self._chunks: Iterator[bytes] = (body[at : at + chunk] for at in range(0, len(body), chunk))
        fields = {"content-type": f"multipart/form-data; boundary={BOUNDARY}", **(headers or {})}
        scope: dict[str, Any] = {
            "type": "http",
            "method": "POST",
            "path": "/stt",
            "headers": [(name.encode(), value.encode()) for name, value in fields.items()],
        }
        self.request = Request(scope, self._receive)
        context = begin_context(scope, Turn(Turns(10), "10.0.0.1"), SlowClients())
        context.upload_space = partial((space or BodySpace(2**40, "uploads")).of, workspace_id)

    async def _receive(self) -> Message:
        chunk = next(self._chunks, None)
        self.read += 1
        return {"type": "http.request", "body": chunk or b"", "more_body": chunk is not None}


async def receive(sent: Upload, limits: UploadLimits = LIMITS) -> tuple[MultipartForm, list[bytes]]:
    async with receive_form(sent.request, limits) as received:
        return received, [file.path.read_bytes() for file in received.files]


async def refusal(sent: Upload, limits: UploadLimits = LIMITS) -> ApiError:
    with pytest.raises(ApiError) as caught:
        await receive(sent, limits)
    assert caught.value.status == 400
    return caught.value


async def test_large_fields_are_received_as_files_and_count_as_such() -> None:
    limits = UploadLimits(
        max_files=2,
        max_fields=1,
        max_file_bytes=100_000,
        file_fields=frozenset({"large"}),
    )
    large = b"x" * 50_000
    sent = form(part("large[]", large), part("plain", b"y"), part("audio", b"z", "a.wav"))
    received, files = await receive(Upload(sent), limits)
    assert files == [large, b"z"] and received.fields == {"plain": "y"}
    assert [one.field for one in received.files] == ["large[]", "audio"]
    many = form(*[part("large", large)] * 3)
    assert (await refusal(Upload(many), limits)).code == "invalid_file_count"
    assert (await refusal(Upload(form(part("large", large * 3))), limits)).code == "file_too_large"
    assert (await refusal(Upload(sent))).code == "validation_error"


@pytest.mark.parametrize("chunk", [1, 7, 1000, 1_000_000])
async def test_form_fields_and_files_are_complete_for_every_chunk_size(chunk: int) -> None:
    data = bytes(range(256)) * 20 + b"\r\n--edg"
    body = form(part("language", "françês".encode()), part("audio", data, "../../a.wav"))
    received, contents = await receive(Upload(body, chunk))
    assert received.fields == {"language": "françês"}
    assert contents == [data]
    assert received.files[0].size_bytes == len(data)


async def test_filenames_are_never_used_as_paths_and_files_are_deleted() -> None:
    body = form(part("audio", b"x", "../../etc/passwd"), part("audio", b"y", "/etc/passwd"))
    async with receive_form(Upload(body).request, LIMITS) as received:
        paths = [file.path for file in received.files]
        assert [path.name for path in paths] == ["0", "1"]
        assert paths[0].parent.stat().st_mode & 0o077 == 0
        assert all(path.exists() for path in paths)
    assert not paths[0].parent.exists()


async def test_uploaded_files_are_deleted_when_the_request_fails() -> None:
    path = Path()
    with pytest.raises(RuntimeError):
        async with receive_form(Upload(form(part("audio", b"x", "a"))).request, LIMITS) as received:
            path = received.files[0].path
            raise RuntimeError
    assert not path.parent.exists()


async def test_a_declared_length_over_the_limit_is_refused_before_reading() -> None:
    sent = Upload(form(part("audio", b"x", "a")), headers={"content-length": "999999999"})
    error = await refusal(sent)
    assert (error.code, error.headers, sent.read) == ("file_too_large", {"Connection": "close"}, 0)


async def test_a_callback_can_refuse_a_large_body_before_reading() -> None:
    async def refuse() -> None:
        raise ApiError("plan_required", "no room")

    limits = UploadLimits(max_file_bytes=2**21)
    small = Upload(form(part("audio", b"x", "a")), headers={"content-length": "1048576"})
    async with receive_form(small.request, limits, refuse) as received:
        assert len(received.files) == 1
    large = Upload(b"", headers={"content-length": "1048577"})
    with pytest.raises(ApiError, match="no room"):
        async with receive_form(large.request, limits, refuse):
            pass
    assert large.read == 0


async def test_a_callback_can_refuse_a_large_body_that_declares_no_length() -> None:
    calls = []

    async def refuse() -> None:
        calls.append(1)
        if len(calls) == 2:
            raise ApiError("insufficient_credit", "no credit")

    limits = UploadLimits(max_file_bytes=2**23)
    small = Upload(form(part("audio", b"x" * 2**19, "a")), chunk=2**16)
    async with receive_form(small.request, limits, refuse):
        assert calls == []
    large = Upload(form(part("audio", b"x" * 2**22, "a")), chunk=2**16)
    async with receive_form(large.request, limits, refuse):
        assert calls == [1]
    large = Upload(form(part("audio", b"x" * 2**22, "a")), chunk=2**16)
    with pytest.raises(ApiError, match="no credit"):
        async with receive_form(large.request, limits, refuse):
            pass
    assert large.read == 17  # 1 MiB and a little


async def test_files_are_made_opened_and_deleted_outside_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads: dict[str, threading.Thread] = {}

    def noting(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*args: Any, **options: Any) -> Any:
            threads[name] = threading.current_thread()
            return call(*args, **options)

        return noted

    monkeypatch.setattr(tempfile, "mkdtemp", noting("made", tempfile.mkdtemp))
    monkeypatch.setattr(Path, "open", noting("opened", Path.open))
    monkeypatch.setattr(shutil, "rmtree", noting("deleted", shutil.rmtree))
    _, contents = await receive(Upload(form(part("audio", b"", "a"), part("audio", b"x", "b"))))
    assert contents == [b"", b"x"]
    assert set(threads) == {"made", "opened", "deleted"}
    assert threading.main_thread() not in {threads["made"], threads["deleted"]}


async def test_uploads_in_progress_are_bounded_in_bytes_in_all_and_by_workspace() -> None:
    space = BodySpace(10_000, "uploads")

    def upload(size: int, workspace_id: int) -> Upload:
        body = form(part("audio", b"x" * size, "a"))
        return Upload(body, chunk=500, space=space, workspace_id=workspace_id)

    async with receive_form(upload(4000, 1).request, LIMITS):
        with pytest.raises(ApiError, match="too many uploads") as caught:
            await receive(upload(1000, 1))
        assert (caught.value.code, caught.value.headers) == ("overloaded", {"Connection": "close"})
        async with receive_form(upload(3000, 2).request, LIMITS):
            await receive(upload(1000, 3))
            with pytest.raises(ApiError, match="too many uploads"):
                await receive(upload(4000, 3))
    async with (
        receive_form(upload(4500, 1).request, LIMITS),
        receive_form(upload(4500, 2).request, LIMITS),
        receive_form(upload(2000, 3).request, LIMITS),  # two do not keep a third out
    ):
        with pytest.raises(ApiError, match="too many uploads"):
            await receive(upload(1000, 3))
    await receive(upload(4000, 1))
    assert not space._shares.holders


async def test_uploads_over_the_bound_are_refused_over_http(
    client: httpx.AsyncClient, auth: dict[str, str], services: Services
) -> None:
    async with AsyncExitStack() as others:
        for workspace_id, size in ((-1, 2**30), (-2, 2**30), (-3, 2**29), (-4, 2**29 - 100)):
            uploads = services.infrastructure.uploads.of(workspace_id)
            await (await others.enter_async_context(uploads))(size)
        answer = await client.post("/stt", headers=auth, files={"audio": b"x" * 1000})
        assert (answer.status_code, answer.json()["error"]) == (503, "overloaded")
    answer = await client.post("/stt", headers=auth, files={"audio": b"x" * 1000})
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_audio")


async def test_a_cancelled_upload_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    made = asyncio.Event()
    make = tempfile.mkdtemp

    def slowly(*args: Any, **options: Any) -> str:
        loop.call_soon_threadsafe(made.set)
        time.sleep(0.1)
        return str(make(*args, **options))

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(tempfile, "mkdtemp", slowly)
    work = asyncio.create_task(receive(Upload(form(part("audio", b"x", "a")))))
    await made.wait()
    work.cancel()
    await asyncio.wait([work])
    async with asyncio.timeout(PATIENCE_S):
        while list(tmp_path.iterdir()) or len(asyncio.all_tasks()) > 1:
            await asyncio.sleep(0.01)


async def test_a_body_without_content_length_is_refused_at_the_size_limit() -> None:
    sent = Upload(form(part("audio", b"x" * 10_000_000, "a")), chunk=10_000)
    assert (await refusal(sent)).code == "file_too_large"
    assert sent.read < 20


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (form(*[part("audio", b"x", "a")] * 3), "invalid_file_count"),
        (form(*[part(f"f{number}", b"x") for number in range(4)]), "validation_error"),
        (form(part("language", b"x" * 9000)), "validation_error"),
        (form(part("language", b"\xff\xfe")), "validation_error"),
        (part("audio", b"x", "a"), "validation_error"),  # no end
        (b"", "validation_error"),
        (b"nonsense", "validation_error"),
        (b"--edge\r\nno colon\r\n\r\n", "validation_error"),
        (b"--edge\r\nContent-Type: text/plain\r\n\r\nx\r\n--edge--\r\n", "validation_error"),
        (b"--edge\r\nX: " + b"y" * 100_000, "validation_error"),
    ],
)
async def test_a_malformed_or_oversized_form_is_refused_and_nothing_is_logged(
    body: bytes, error: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert (await refusal(Upload(body))).code == error
    assert not caplog.records


@pytest.mark.parametrize(
    ("content_type", "error"),
    [
        ("application/json", "unsupported_media_type"),
        ("", "unsupported_media_type"),
        ("multipart/form-data", "validation_error"),
        (f"multipart/form-data; boundary={'x' * 100}", "validation_error"),
    ],
)
async def test_a_wrong_media_type_or_boundary_is_refused(content_type: str, error: str) -> None:
    assert (await refusal(Upload(b"", headers={"content-type": content_type}))).code == error


@pytest.mark.parametrize(
    "head",
    [
        "filename*=UTF-8''b%C3%A9.wav",
        "FileName*=utf-8'en'b%C3%A9.wav",
        'filename="bé.wav"',
        None,
    ],
)
async def test_a_part_is_a_file_by_either_name_or_by_its_field(head: str | None) -> None:
    named = f"; {head}" if head else ""
    first = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="audio"{named}\r\n\r\n'
    body = first.encode() + b"RIFF\0\0" + b"\0" * 10_000 + b"\r\n" + f"--{BOUNDARY}--\r\n".encode()
    async with receive_form(Upload(body).request, LIMITS) as received:
        (file,) = received.files
        assert (file.field, file.filename) == ("audio", "bé.wav" if head else "")
        assert file.size_bytes == 10_006 and file.path.stat().st_size == 10_006


async def test_a_large_part_without_a_file_name_says_what_is_missing() -> None:
    with pytest.raises(ApiError, match="without a filename in Content-Disposition"):
        async with receive_form(Upload(form(part("voice", b"a" * 9000))).request, LIMITS):
            pass
