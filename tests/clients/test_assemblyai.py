"""AssemblyAI's own client, and the plugins of LiveKit and Pipecat for it, as they are published."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from aiohttp import web
from anyio.from_thread import start_blocking_portal

from api.services import Services
from tests.api.local_server import Server, local_settings, serve_services
from tests.api.local_services import local_services
from tests.api.native.jobs.doing import do_next, fetch_next
from tests.clients.node_clients import NodeClients
from tests.clients.registry_clients import RegistryClients
from tests.pipelines.webhooks.receivers import Authority, receiver

HERE = Path(__file__).parent
HEARD = "the quick brown fox"  # of all speech, by the scripted engine


@dataclass(frozen=True)
class JobServer:
    """A server that also does its jobs, and a recording on the web."""

    server: Server
    web_url: str


async def work(services: Services) -> None:
    """Fetches recordings and does jobs, as a worker does."""
    while True:
        for step in (fetch_next, do_next):
            with suppress(AssertionError):  # none is waiting
                await step(services)
        await asyncio.sleep(0.1)


@pytest.fixture(scope="module")
def job_server(tmp_path_factory: pytest.TempPathFactory, recording: Path) -> Iterator[JobServer]:
    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        if request.path.endswith("missing"):
            return web.Response(status=404)
        return web.Response(body=recording.read_bytes())

    folder = tmp_path_factory.mktemp("jobs")
    authority = Authority.make(folder)
    settings = replace(local_settings(folder), webhooks=authority.settings())
    with (
        serve_services(local_services(settings)) as server,
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(receiver(authority, answer)) as hook,
    ):
        services = local_services(settings)
        working = portal.start_task_soon(work, services)
        yield JobServer(server, hook.url)
        working.cancel()
        services.infrastructure.database.close()


def test_assemblyais_client_transcribes_recordings(
    registry_clients: RegistryClients, job_server: JobServer, recording: Path
) -> None:
    arguments = job_server.server.url, job_server.server.key, str(recording), job_server.web_url
    seen = registry_clients.run(HERE / "assemblyai_transcripts.py", *arguments)
    assert (seen["text"], seen["status"], seen["speakers"]) == (HEARD, "completed", ["A"])
    assert seen["echoed"] == [True, ["Antiphon"]] and seen["listed"] is True
    assert seen["sentences"] == seen["paragraphs"] == [HEARD] and seen["matches"] == [["fox", 1]]
    assert "the quick\n" in seen["srt"] and HEARD in seen["vtt"]
    assert seen["of the web"] == [True, HEARD, "en"] and seen["in a loop"] == HEARD
    assert seen["group"] == [[HEARD] * 3, 0]
    assert "404" in seen["not there"] and seen["deleted"] == ["Deleted by user."] * 2
    assert "auto_chapters: is not supported" in seen["refused"]
    assert "audio_url: must begin with https://" in seen["http"]


def test_assemblyais_node_client_transcribes_recordings(
    node_clients: NodeClients, job_server: JobServer, recording: Path
) -> None:
    arguments = job_server.server.url, job_server.server.key, str(recording), job_server.web_url
    seen = node_clients.run("assemblyai_node.mjs", *arguments)
    assert "sentiment_analysis: is not supported" in seen.pop("refused")
    assert "the quick\n" in seen.pop("vtt")
    assert seen == {
        "text": HEARD,
        "speakers": ["A"],
        "missing": [],
        "ofTheWeb": HEARD,
        "listed": [True, True],
        "created": True,
        "parts": [HEARD, HEARD],
        "matches": [["fox", 1]],
        "deleted": "Deleted by user.",
    }


def test_assemblyais_client_streams_turns_with_its_key_and_with_a_short_token(
    registry_clients: RegistryClients, tone_server: Server, safe_url: str, recording: Path
) -> None:
    arguments = tone_server.url, safe_url, tone_server.key, str(recording)
    seen = registry_clients.run(HERE / "assemblyai_sdk.py", *arguments)
    for name in ("stream", "by the token", "forced"):
        begin, started, *turns, termination = seen[name]
        assert (begin, started, termination) == (["Begin"], ["SpeechStarted"], ["Termination"])
        assert turns[-1] == ["Turn", 0, True, HEARD, True], name
        assert all(one[:3] == ["Turn", 0, False] for one in turns[:-1])
    assert seen["wrong key"] == [["Error", 401]] and seen["unsupported"] == [["Error", 400]]


@pytest.mark.slow
def test_livekits_plugin_hears_turns(
    registry_clients: RegistryClients, tone_server: Server, recording: Path
) -> None:
    arguments = tone_server.url, tone_server.key, str(recording)
    seen = registry_clients.run(HERE / "assemblyai_livekit.py", *arguments)
    for name in ("stream", "turns"):
        assert seen[name][0] == ["start_of_speech", ""], name
        assert seen[name][-2:] == [["final_transcript", HEARD], ["end_of_speech", ""]], name
    assert seen["wrong key"] == 401


@pytest.mark.slow
def test_pipecats_service_hears_turns_of_its_own_and_of_this_service(
    registry_clients: RegistryClients, tone_server: Server, recording: Path
) -> None:
    arguments = tone_server.url, tone_server.key, str(recording)
    seen = registry_clients.run(HERE / "assemblyai_pipecat.py", *arguments)
    for name in ("stream", "turns"):
        assert seen[name]["texts"] == [HEARD], name
        assert seen[name]["interims"] and not seen[name]["errors"]
    assert seen["turns"]["finalized"] == [True]
    assert "401" in seen["wrong key"]["errors"][0]
