"""`antiphon job` waits for a job and writes its result."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import httpx
import pytest
from click.testing import CliRunner

from antiphon.cli import jobs
from antiphon.cli.main import antiphon
from configs.settings import PROJECT_DIR
from tests.api.local_server import local_settings, serve_local
from tests.api.local_services import local_services
from tests.api.native.jobs.doing import do, recording
from tests.patience import PATIENCE_S

GERMAN = "# Eins\n\nDas ist ein Satz, den niemand sonst so schreibt, und er ist nicht kurz.\n"
WARNING = "Warning: the voice Alto does not speak German, the language of “Eins”\n"


def test_the_chapters_of_a_book_are_listed(tmp_path: Path) -> None:
    book = tmp_path / "book.md"
    chapters = "# Contents\n\nOne.\n\n# One\n\nA sentence.\n\n# Two\n\nAnother.[^1]\n"
    book.write_text(f"{chapters}\n[^1]: A note.\n")
    with serve_local(tmp_path) as server:

        def run(*options: str) -> subprocess.CompletedProcess[str]:
            command = [sys.executable, "-m", "deployments.cli.main", "--url", server.url]
            command += ["--key", server.key, "job", str(book), *options]
            return subprocess.run(command, cwd=PROJECT_DIR, capture_output=True, text=True)

        rows = [line.split() for line in run("--chapters", "2-3").stdout.splitlines()]
        assert [row[:3] for row in rows[1:4]] == [
            ["1", "Contents", "English"],
            ["2", "x", "One"],
            ["3", "x", "Two"],
        ]
        assert rows[4][0] == "Sum" and rows[4][-4:] == ["1", "note", "left", "out"]
        usual = run().stdout.splitlines()
        assert "usually left out" in usual[1]
        assert [line.split()[1] == "x" for line in usual[1:4]] == [False, True, True]
        assert not run().stderr
        refused = run("--chapters", "4")
        assert refused.returncode == 1 and "not within the 3 chapters" in refused.stderr
        book.write_text(GERMAN)
        assert run("--voice", "Alto").stderr == WARNING
        listed = run("--voice", "Alto").stdout.splitlines()[:2]
        assert "LANGUAGE" in listed[0] and "German" in listed[1]


@pytest.mark.parametrize(
    ("name", "options", "fault"),
    [
        ("talk.MP3", "", "-o talk.srt"),
        ("talk.mp3", "-o talk.srt -c 2-3 -v Heart", "--voice and --chapters"),
        ("talk.mp3", "-o talk.srt -p Names", "--pronunciations"),
        ("book.md", "-o book.m4b -l en --speakers", "--language and --speakers"),
        ("talk.mp3", "-o talk.m4b", "-o: for a recording, it must end in .txt, .srt"),
        ("book.EPUB", "-o book.srt", "-o: for a text, it must end in .m4b, .mp3"),
    ],
)
def test_options_that_would_have_no_effect_are_refused_before_an_upload(
    tmp_path: Path, name: str, options: str, fault: str
) -> None:
    (tmp_path / name).write_bytes(b"any")
    arguments = ["--url", "http://127.0.0.1:9", "--key", "sk_any", "job", str(tmp_path / name)]
    refused = CliRunner().invoke(antiphon, [*arguments, *options.split()])
    assert refused.exit_code == 2 and fault in refused.output, refused.output


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Lets programs be interrupted, which inherit that signals are ignored: a shell lets programs
    in the background ignore Ctrl-C, also these tests."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
def test_a_job_continues_after_ctrl_c_and_is_fetched_and_deleted(tmp_path: Path) -> None:
    book = tmp_path / "book.md"
    book.write_text(GERMAN)
    output = tmp_path / "book.m4b"
    with serve_local(tmp_path) as server:
        program = [sys.executable, "-m", "deployments.cli.main", "--url", server.url]
        program += ["--key", server.key]

        def run(*options: str) -> subprocess.CompletedProcess[str]:
            command = [*program, *options]
            return subprocess.run(command, cwd=PROJECT_DIR, capture_output=True, text=True)

        def stopped(*options: str) -> str:
            """Run a command until it waits, press Ctrl-C, and return what it said after that."""
            command = [*program, *options]
            with subprocess.Popen(
                command, cwd=PROJECT_DIR, stderr=subprocess.PIPE, text=True
            ) as waiting:
                assert waiting.stderr is not None
                if options[0] == "job":
                    assert waiting.stderr.readline() == WARNING
                assert "antiphon jobs fetch" in waiting.stderr.readline()
                assert waiting.stderr.readline().startswith("waiting: no worker")
                waiting.send_signal(signal.SIGINT)
                last_words = waiting.stderr.read()
            assert waiting.returncode == 1
            return last_words

        nowhere = run("job", str(book), "-o", "/none/book.m4b")
        assert nowhere.returncode == 1 and "there is no folder /none" in nowhere.stderr
        last_words = stopped("job", str(book), "-o", str(output), "-v", "Alto")
        [row] = run("jobs", "list").stdout.splitlines()[1:]
        job_id, kind, name, status, *_ = row.split()
        assert (kind, name, status) == ("speech", "book.md", "processing")
        assert f"antiphon jobs delete {job_id}" in last_words
        assert job_id in stopped("jobs", "fetch", job_id, "-o", str(output))
        for ending in (".srt", ".mp3"):
            wrong = run("jobs", "fetch", job_id, "-o", str(tmp_path / f"book{ending}"))
            assert wrong.returncode == 2 and "must end in .m4b" in wrong.stderr
        assert run("jobs", "delete", job_id, "--yes").stdout == "The job is deleted.\n"
        assert run("jobs", "list").stdout.count("\n") == 1
        unnamed = run("job", str(book), "-p", "Rivers")
        assert "no dictionary is called Rivers" in unnamed.stderr
        unknown = run("job", str(book), "-o", str(output), "--voice", "Nobody")
        assert "no voice is called 'Nobody'; `antiphon voices list`" in unknown.stderr


@pytest.mark.slow
def test_a_recording_becomes_a_document_and_a_text_one_file(tmp_path: Path) -> None:
    (tmp_path / "talk.wav").write_bytes(recording(20))
    (tmp_path / "book.md").write_text("# One\n\nA sentence.\n\n# Two\n\nAnother.\n")
    (tmp_path / "no.wav").write_bytes(b"no audio")

    async def do_one() -> None:
        services = local_services(local_settings(tmp_path))  # of another process, as it were
        async with asyncio.timeout(PATIENCE_S), services.speech.decoder:
            while (claimed := await services.speech.jobs.claim()) is None:
                await asyncio.sleep(0.1)
            await do(services, claimed)
        services.infrastructure.database.close()

    with serve_local(tmp_path) as server:
        client = [sys.executable, "-m", "deployments.cli.main", "--url", server.url]
        client += ["--key", server.key]

        def run(source: str, target: str, *options: str) -> tuple[int, bytes]:
            command = [*client, "job", str(tmp_path / source), "-o", str(tmp_path / target)]
            command += options
            with subprocess.Popen(command, cwd=PROJECT_DIR, stderr=subprocess.PIPE) as program:
                asyncio.run(do_one())
                _, said = program.communicate(timeout=PATIENCE_S)
            return program.returncode, said

        status, said = run("talk.wav", "talk.docx")
        assert status == 0 and b"antiphon jobs fetch" in said
        assert (tmp_path / "talk.docx").read_bytes().startswith(b"PK")
        assert run("book.md", "book.m4b")[0] == 0
        assert b"ftyp" in (tmp_path / "book.m4b").read_bytes()[:12]
        entry = f"sentence={'long ' * 30}"
        create = [*client, "pronunciations", "create", "Names", entry]
        subprocess.run(create, cwd=PROJECT_DIR, check=True)
        assert run("book.md", "long.m4b", "-p", "Names")[0] == 0
        sizes = [(tmp_path / name).stat().st_size for name in ("book.m4b", "long.m4b")]
        assert sizes[1] > 2 * sizes[0]
        status, said = run("no.wav", "no.txt")
        assert status == 1 and b"not MP3, WAV" in said


def test_the_wait_for_a_job_outlasts_a_restart_of_the_service(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(jobs, "POLL_S", 0.0)
    running = {"id": "a", "progress": 0.5, "finished_at": None}
    ended = {**running, "finished_at": "2026-01-01T00:00:00Z"}
    away = httpx.ConnectError("refused")
    client = Mock()
    client.request.side_effect = [running, away, httpx.ReadError("reset"), ended]
    assert jobs._finished(client, running) == ended
    monkeypatch.setattr(jobs, "AWAY_S", 0.0)
    client.request.side_effect = [away] * 1000
    with pytest.raises(httpx.ConnectError):
        jobs._finished(client, running)
