"""`antiphon job`: long recordings and long texts, on which the service works while it is idle."""

import sys
import time
from pathlib import Path

import click

from antiphon.cli.service import ServiceClient, end, pass_service
from antiphon.client import Request, given

POLL_S = 2.0
RECORDINGS = (".mp3", ".wav", ".flac", ".ogg", ".opus", ".m4a", ".aac", ".webm", ".mp4")
TRANSCRIPTS = {".txt": "text", ".srt": "srt", ".vtt": "vtt", ".docx": "docx", ".json": "json"}


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to write. Without it, the chapters of a text are listed with length and price.",
)
@click.option("-v", "--voice", help="Voice for a text. Default: by language.")
@click.option("-l", "--language", help="Language of a recording. Default: detected.")
@click.option("-c", "--chapters", help="Chapters to read, such as 1,3-5. Default: all.")
@click.option("--speakers", is_flag=True, help="Label the speakers of a recording.")
@pass_service
def job(
    service: ServiceClient,
    /,
    file: Path,
    output: Path | None,
    speakers: bool,
    **options: str | None,
) -> None:
    """Transcribe a long recording, or turn a book into one audio file with chapters.

    \b
    antiphon job interview.mp3 -o interview.docx --speakers
    antiphon job book.epub
    antiphon job book.epub -o book.m4b --chapters 2-14
    """
    if output is None:
        if file.suffix.lower() in RECORDINGS:
            raise click.UsageError(f"-o: add it, such as -o {file.stem}.srt for a transcript")
        return _show_chapters(service, file, given(chapters=options["chapters"]))
    form = TRANSCRIPTS.get(suffix := output.suffix.lower())
    if form is None and suffix not in (".m4b", ".mp3"):
        raise click.UsageError(f"-o: must end in {', '.join((*TRANSCRIPTS, '.m4b', '.mp3'))}")
    labels = "true" if speakers else None
    if form is None:
        source, unused = "text", given(language=options["language"], speakers=labels)
    else:
        source = "recording"
        unused = given(voice=options["voice"], chapters=options["chapters"])
    if unused:
        raise click.UsageError(f"--{' and --'.join(unused)}: has no effect on a {source}")
    fields = given(output_format=suffix[1:], speaker_labels=labels, **options)
    kind, field = ("transcriptions", "audio") if form else ("speech", "document")
    with service.client() as client, file.open("rb") as upload:
        files = {field: (file.name, upload.read())}
        created = client.request("POST", f"/jobs/{kind}", data=fields, files=files)
        while created["status"] not in ("completed", "failed"):
            if sys.stderr.isatty():
                click.echo(f"\r{created['progress']:.0%}", nl=False, err=True)
            time.sleep(POLL_S)
            created = client.request("GET", f"/jobs/{created['id']}")
        if created["status"] == "failed":
            end(str(created["message"]), 1)
        path = f"/jobs/{created['id']}/transcript?format={form}"
        if form is None:  # at the address of the service as it is known here
            path = f"/files/{created['audio_url'].partition('/files/')[2]}"
        output.write_bytes(client.send(Request("GET", path, {}, lambda answer: answer.content)))
    service.show(created, f"{output}: {created['duration']:.0f} s of audio; job {created['id']}")


def _show_chapters(service: ServiceClient, file: Path, fields: dict[str, str]) -> None:
    """Print what a job would read of a text; chapters that it leaves out have no `x`."""
    with service.client() as client:
        files = {"document": (file.name, file.read_bytes())}
        plan = client.request("POST", "/jobs/speech/estimate", data=fields, files=files)
    rows = []
    for chapter in plan["chapters"]:
        length = f"{chapter['estimated_seconds'] / 60:.1f}"
        mark = "x" if chapter["chosen"] else ""
        note = "usually left out" if chapter["extra"] else ""
        price = f"{chapter['price']:.4f}"
        rows.append((str(chapter["number"]), mark, chapter["title"], length, price, note))
    minutes = f"{plan['estimated_seconds'] / 60:.1f}"
    rows.append(
        (
            "",
            "",
            "Sum",
            minutes,
            f"{plan['price']:.4f}",
            f"{plan['left_out']['notes']} notes left out",
        )
    )
    service.show_rows(plan, "NUMBER, READ, CHAPTER, MINUTES, USD AT MOST, NOTE", rows)
