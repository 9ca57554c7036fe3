"""A client that leaves stops the work of its request on every route that keeps a model busy."""

import pytest

from configs.load import load_yaml
from configs.schema.platform import AdmissionConfig
from tests.api.leaving.conftest import Client, LeavingSite
from tests.api.leaving.work import NO_ENGINE, REQUESTS
from tests.openapi import document
from tests.patience import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

STREAMED = [path for path, work in REQUESTS.items() if work.is_streamed]
LEAVE = {"close": Client.close, "reset": Client.reset, "half": Client.close_half}
WAYS = [(path, "close") for path in REQUESTS]
WAYS += [(path, way) for path in ("/tts-synthesize", "/tts-stream", "/stt") for way in LEAVE]


async def test_every_route_that_keeps_a_model_busy_is_tested() -> None:
    tested = {path.partition("#")[0] for path in REQUESTS}
    counted = load_yaml(AdmissionConfig, "admission").work_per_core.keys()
    assert tested | NO_ENGINE.keys() == counted
    posts = {path for path, each in document()["paths"].items() if "post" in each}
    assert counted <= posts | {"/mcp"}


@pytest.mark.parametrize(("path", "leave"), dict.fromkeys(WAYS))
async def test_work_ends_for_a_client_that_leaves_before_the_answer(
    site: LeavingSite, path: str, leave: str
) -> None:
    await site.forget()
    work = REQUESTS[path]
    client = await site.send(site.request(path, work))
    await until(lambda: site.steps.made > 0)
    made = site.steps.made
    LEAVE[leave](client)
    charged = await site.check_left(made)
    client.close()
    if not work.is_streamed:  # a few an hour cost nothing
        assert charged == 0 or work.service == "chat"


@pytest.mark.parametrize("path", STREAMED)
async def test_an_abandoned_stream_ends_and_charges_what_was_sent(
    site: LeavingSite, path: str
) -> None:
    await site.forget()
    work = REQUESTS[path]
    client = await site.send(site.request(path, work))
    head = b""
    while not head.partition(b"\r\n\r\n")[2]:
        head += await client.read_some()
    assert head.startswith(b"HTTP/1.1 200"), head
    await until(lambda: site.steps.made > 5)
    made = site.steps.made
    client.reset()
    assert await site.check_left(made) > 0


@pytest.mark.parametrize("path", [path for path in REQUESTS if "#" not in path])
async def test_an_upload_that_is_left_begins_no_work(site: LeavingSite, path: str) -> None:
    await site.forget()
    data = site.request(path, REQUESTS[path])
    client = await site.send(data[: len(data) - 10])
    await until(lambda: _takes_requests(site) == 1)
    client.close()
    assert await site.check_left(0) == 0
    assert site.steps.made == 0


@pytest.mark.parametrize("path", ["/tts-synthesize", "/v1/chat/completions#stream"])
async def test_requests_in_a_pipeline_end_with_the_client(site: LeavingSite, path: str) -> None:
    await site.forget()
    data = site.request(path, REQUESTS[path])
    client = await site.send(data)
    await until(lambda: site.steps.made > 0)
    client.writer.write(data)
    await client.writer.drain()
    made = site.steps.made
    client.close()
    await site.check_left(made)


def _takes_requests(site: LeavingSite) -> int:
    return site.server.services.infrastructure.admission._kinds["request"]._count
