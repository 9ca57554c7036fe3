"""The sandbox of the decoder, with hostile code inside it."""

import asyncio
import json
import logging
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from configs.settings import PROJECT_DIR
from pipelines.audio.decode import decoder as decoder_module
from pipelines.audio.decode.decoder import AudioDecoder
from pipelines.errors import InvalidAudio
from telemetry import metrics
from tests.hostile.audio_files import tone, wav

JOB = {"format": "wav", "sample_rate": 16_000, "max_seconds": 1}
SECOND = wav((tone(1) * 32767).astype("<i2").tobytes())


@pytest.fixture
async def decoder(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[AudioDecoder]:
    """Its children do what the job says."""
    name = "tests.pipelines.audio.decode.hostile_worker"
    monkeypatch.setattr(decoder_module, "WORKER_MODULE", name)
    async with AudioDecoder() as made:
        yield made


async def attack(decoder: AudioDecoder, name: str, **more: Any) -> dict[str, Any]:
    with tempfile.TemporaryFile() as source, tempfile.TemporaryFile() as target:
        source.write(SECOND)
        source.seek(0)
        job = {**JOB, "attack": name, **more}
        answer: dict[str, Any] = json.loads(await decoder._process.run(job, source, target))
        return answer


def holds(measure: str) -> bool:
    return bool(metrics.decoder_sandbox.labels(measure)._value.get())


async def test_hostile_code_in_the_decoder_reaches_no_file_network_or_process(
    decoder: AudioDecoder, tmp_path: Path
) -> None:
    secret = tmp_path / "secrets.json"
    secret.write_text("{}")
    secret.chmod(0o644)
    tmp_path.chmod(0o755)
    await decoder.start()
    if not holds("seccomp"):
        pytest.skip("THIS KERNEL HAS NO SECCOMP: the decoder runs with less of a sandbox")
    answer = await attack(decoder, "escapes", secret=str(secret), parent=os.getpid())
    assert answer.get("escapes") == [], answer
    assert list(tmp_path.iterdir()) == [secret]


async def test_a_file_over_its_cpu_time_is_refused_without_retry(
    decoder: AudioDecoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process, runs = decoder._process, []
    run = process.run

    async def attacked(job: dict[str, Any], *files: Any) -> bytes:
        runs.append(job)
        return await run({**job, "attack": "spin"}, *files)

    monkeypatch.setattr(process, "run", attacked)
    path = tmp_path / "0"
    path.write_bytes(SECOND)
    with pytest.raises(InvalidAudio, match="more than 1 seconds"):
        await decoder.decode(path)
    assert len(runs) == 1
    monkeypatch.undo()
    before = await process.start()
    assert (await decoder.decode(path)).duration_s == 1
    assert await process.start() is before  # only the child ended


@pytest.mark.parametrize("name", ["crash", "linger"])
async def test_a_child_that_dies_or_answers_nonsense_harms_no_other_file(
    decoder: AudioDecoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    process = decoder._process
    run = process.run
    path = tmp_path / "0"
    path.write_bytes(SECOND)
    with monkeypatch.context() as replaced:
        replaced.setattr(process, "run", lambda job, *files: run({**job, "attack": name}, *files))
        with pytest.raises(InvalidAudio, match="cannot be decoded"):
            await decoder.decode(path)
    assert (await decoder.decode(path)).duration_s == 1


async def test_a_child_that_sends_endlessly_is_ended(
    decoder: AudioDecoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, received = asyncio.get_running_loop(), 0
    receive = loop.sock_recv

    async def counted(source: socket.socket, size: int) -> bytes:
        nonlocal received
        part = await receive(source, size)
        received += len(part)
        return part

    await decoder.start()
    monkeypatch.setattr(loop, "sock_recv", counted)
    with pytest.raises(json.JSONDecodeError):
        await attack(decoder, "flood")
    assert received < 100 * 2**20  # it writes several times as much until its CPU time is spent


async def test_the_start_of_the_decoder_logs_which_measures_hold(
    decoder: AudioDecoder, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        await decoder.start()
    (record,) = [one for one in caplog.records if one.message == "decoder_sandbox"]
    said = {*record.__dict__["held"], *record.__dict__["missing"]}
    assert said == {"landlock", "seccomp", "namespaces"}
    assert record.__dict__["held"] == [one for one in record.__dict__["held"] if holds(one)]


async def test_a_machine_without_any_measure_still_decodes_and_warns(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    name = "tests.pipelines.audio.decode.bare_worker"
    monkeypatch.setattr(decoder_module, "WORKER_MODULE", name)
    path = tmp_path / "0"
    path.write_bytes(SECOND)
    async with AudioDecoder() as decoder:
        assert (await decoder.decode(path)).duration_s == 1
    (record,) = [one for one in caplog.records if one.message == "decoder_sandbox"]
    assert record.levelno == logging.WARNING
    assert record.__dict__["held"] == []


ENTERED = """
import json, os, socket, sys
from pipelines.audio.decode import sandbox

held = sandbox.enter(2**28)
done = []
try:
    open("/etc/passwd").read()
    done.append("file")
except OSError:
    pass
try:
    socket.socket().connect(("127.0.0.1", int(sys.argv[1])))
    done.append("connection")
except OSError:
    pass
print(json.dumps([held, done, os.geteuid()]))
"""


def test_without_seccomp_the_kernel_still_refuses_files_and_connections() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        result = subprocess.run(
            [sys.executable, "-c", ENTERED, port],
            env={"PYTHONPATH": str(PROJECT_DIR)},
            capture_output=True,
            check=True,
        )
    held, done, user = json.loads(result.stdout)
    if not held["landlock"]:
        pytest.skip("THIS KERNEL HAS NO LANDLOCK: the decoder runs with less of a sandbox")
    assert done == []
    assert user != 0
