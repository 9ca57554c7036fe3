"""`antiphon job` and `antiphon jobs`: long recordings and long texts, which the service processes
while it is idle."""

import sys
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import click
import httpx

from antiphon import Antiphon
from antiphon.cli.pronunciations import find
from antiphon.cli.service import (
    CommandGroup,
    ServiceClient,
    check_target,
    counted,
    end,
    pass_service,
)
from antiphon.client import Request, given

POLL_S = 5.0
AWAY_S = 300.0  # time to wait for a service that restarts; its jobs go on
REPORT_S = 60.0  # between lines about progress where stderr is no terminal
RECORDINGS = (".mp3", ".wav", ".flac", ".ogg", ".opus", ".m4a", ".aac", ".webm", ".mp4", ".mov")
TEXTS = (".txt", ".md", ".markdown", ".epub", ".ssml")
TRANSCRIPTS = {".txt": "text", ".srt": "srt", ".vtt": "vtt", ".docx": "docx", ".json": "json"}
BOOKS = (".m4b", ".mp3")
OUTPUT = click.Path(dir_okay=False, path_type=Path)


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "-o",
    "--output",
    type=OUTPUT,
    help="File to write. Without it, the chapters of a text are listed with length and price.",
)
@click.option("-v", "--voice", help="Voice for a text. Default: by language.")
@click.option("-l", "--language", help="Language of a recording. Default: detected.")
@click.option("-c", "--chapters", help="Chapters, such as 1,3-5. Default: those listed with an x.")
@click.option("-p", "--pronunciations", multiple=True, help="Dictionary for a text; repeatable.")
@click.option("--speakers", is_flag=True, help="Label the speakers of a recording.")
@pass_service
def job(
    service: ServiceClient,
    /,
    file: Path,
    output: Path | None,
    pronunciations: tuple[str, ...],
    speakers: bool,
    **options: str | None,
) -> None:
    """Transcribe a long recording, or turn a book into one audio file with chapters.

    \b
    antiphon job interview.mp3 -o interview.docx --speakers
    antiphon job book.epub
    antiphon job book.epub -o book.m4b --chapters 2-14 -p Names

    The job continues on the service if you stop this command: see `antiphon jobs`.
    """
    kind = file.suffix.lower()
    labels = "true" if speakers else None
    of_transcripts = given(language=options["language"], speakers=labels)
    if output is None:
        if kind in RECORDINGS:
            raise click.UsageError(f"-o: required, such as -o {file.stem}.srt for a transcript")
        _refuse(of_transcripts, "text")
        fields = given(
            chapters=options["chapters"],
            voice=options["voice"],
            pronunciations=_ids(service, pronunciations),
        )
        return _show_chapters(service, file, fields)
    suffix = output.suffix.lower()
    is_transcript = suffix in TRANSCRIPTS
    if kind in RECORDINGS and not is_transcript:
        raise click.UsageError(f"-o: for a recording, it must end in {', '.join(TRANSCRIPTS)}")
    if kind in TEXTS and suffix not in BOOKS:
        raise click.UsageError(f"-o: for a text, it must end in {', '.join(BOOKS)}")
    if not is_transcript and suffix not in BOOKS:
        raise click.UsageError(f"-o: must end in {', '.join((*TRANSCRIPTS, *BOOKS))}")
    if is_transcript:
        of_books = given(
            voice=options["voice"],
            chapters=options["chapters"],
            pronunciations=pronunciations or None,
        )
        _refuse(of_books, "recording")
    else:
        _refuse(of_transcripts, "text")
    check_target(output)
    fields = given(
        output_format=suffix[1:],
        speaker_labels=labels,
        pronunciations=_ids(service, pronunciations),
        **options,
    )
    path, field = ("transcriptions", "audio") if is_transcript else ("speech", "document")
    with service.client() as client, file.open("rb") as upload:
        files = {field: (file.name, upload.read())}
        created = client.request("POST", f"/jobs/{path}", data=fields, files=files)
        _warn(service, created)
        _save(service, client, created, output)


@click.group(cls=CommandGroup)
def jobs() -> None:
    """List, fetch and delete jobs: long recordings and books."""


@jobs.command()
@click.argument("job_id")
@click.option("-o", "--output", type=OUTPUT, required=True, help="File to write.")
@pass_service
def fetch(service: ServiceClient, job_id: str, output: Path) -> None:
    """Wait for a job, and write its result to a file.

    \b
    antiphon jobs fetch JOB_ID -o book.m4b
    """
    check_target(output)
    with service.client() as client:
        current = client.request("GET", f"/jobs/{job_id}")
        suffix = output.suffix.lower()
        if current["type"] == "batch":
            raise click.UsageError(f"{job_id}: is a batch, whose results are at /openai/v1/files")
        book_format = current["output_format"]
        results = (f".{book_format}",) if book_format else (*TRANSCRIPTS,)
        if suffix not in results:
            raise click.UsageError(f"-o: for this job, it must end in {', '.join(results)}")
        _save(service, client, current, output)


def _save(service: ServiceClient, client: Antiphon, job: dict[str, Any], output: Path) -> None:
    """Wait for a job, and write its result to a file. Ctrl-C ends only the wait."""
    hint = f"`antiphon jobs fetch {job['id']} -o {output}`"
    if job["finished_at"] is None:
        service.report(job, f"Job {job['id']} continues if you press Ctrl-C; {hint} waits for it.")
    try:
        job = _finished(client, job)
    except KeyboardInterrupt:
        delete = f"`antiphon jobs delete {job['id']}`"
        click.echo(f"\nThe job continues: {hint} waits for it, {delete} cancels it.", err=True)
        sys.exit(1)
    if job["status"] != "completed":
        end(str(job["message"]), 1)
    path = f"/jobs/{job['id']}/transcript?format={TRANSCRIPTS.get(output.suffix.lower())}"
    if job["type"] == "speech":  # `audio_url` may have a different host than --url
        path = f"/files/{job['audio_url'].partition('/files/')[2]}"
    output.write_bytes(client.send(Request("GET", path, {}, lambda answer: answer.content)))
    service.show(job, f"{output}: {job['duration']:.0f} s of audio; job {job['id']}")


def _refuse(unused: Collection[str], source: str) -> None:
    """Raise UsageError if there are options that have no effect on the source."""
    if unused:
        raise click.UsageError(f"--{' and --'.join(unused)}: no effect on a {source}")


def _ids(service: ServiceClient, dictionaries: Sequence[str]) -> list[str] | None:
    """Return the ids of dictionaries that are named by name or id, or None if there are none."""
    return [find(service, name) for name in dictionaries] or None


def _warn(service: ServiceClient, answer: dict[str, Any]) -> None:
    """Print the warnings of an answer for people; `--json` prints the answer with them."""
    for warning in () if service.as_json else answer["warnings"]:
        click.echo(f"Warning: {warning}", err=True)


def _finished(client: Antiphon, job: dict[str, Any]) -> dict[str, Any]:
    """Wait for the end of a job, and report its progress: on a terminal in one line that is
    updated, elsewhere with a new line each minute."""
    is_terminal = sys.stderr.isatty()
    reported_at = -REPORT_S
    while job["finished_at"] is None:
        if is_terminal or time.monotonic() - reported_at >= REPORT_S:
            reported_at = time.monotonic()
            line = f"{job['progress']:.0%}" if job["progress"] else _place(job)
            click.echo(f"\r\033[K{line}" if is_terminal else line, nl=not is_terminal, err=True)
        job = _read_again(client, job)
    if is_terminal:
        click.echo("\r\033[K", nl=False, err=True)
    return job


def _read_again(client: Antiphon, job: dict[str, Any]) -> dict[str, Any]:
    """Read a job after a while, also from a service that was restarted meanwhile."""
    deadline = time.monotonic() + AWAY_S
    while True:
        time.sleep(POLL_S)
        try:
            current: dict[str, Any] = client.request("GET", f"/jobs/{job['id']}")
            return current
        except httpx.TransportError:
            if time.monotonic() > deadline:
                raise


def _place(job: dict[str, Any]) -> str:
    """Say why a job waits."""
    if job["status"] == "uploading":
        return "waiting for its recording"
    why = job.get("waiting") or "its turn has not come"
    return f"waiting: {why}; jobs run while the machine is not busy with other work"


def _show_chapters(service: ServiceClient, file: Path, fields: dict[str, Any]) -> None:
    """Print what a job would read of a text; chapters that it leaves out have no `x`."""
    with service.client() as client:
        files = {"document": (file.name, file.read_bytes())}
        plan = client.request("POST", "/jobs/speech/estimate", data=fields, files=files)
    _warn(service, plan)
    rows = []
    for chapter in plan["chapters"]:
        length = f"{chapter['estimated_seconds'] / 60:.1f}"
        mark = "x" if chapter["chosen"] else ""
        note = "usually left out" if chapter["extra"] else ""
        price = f"{chapter['price']:.4f}"
        title, language = chapter["title"], chapter["language_name"]
        rows.append((str(chapter["number"]), mark, title, language, length, price, note))
    minutes = f"{plan['estimated_seconds'] / 60:.1f}"
    rows.append(
        (
            "",
            "",
            "Sum",
            "",
            minutes,
            f"{plan['price']:.4f}",
            f"{counted(plan['left_out']['notes'], 'note')} left out",
        )
    )
    service.show_rows(plan, "NUMBER, READ, CHAPTER, LANGUAGE, MINUTES, USD AT MOST, NOTE", rows)
