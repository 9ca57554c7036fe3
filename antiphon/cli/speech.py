"""`antiphon speak` and `antiphon listen`."""

import asyncio
import base64
import json
import re
import shutil
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote

import click
import httpx

from antiphon import AsyncAntiphon
from antiphon.cli.pronunciations import takes_text
from antiphon.cli.service import ServiceClient, check_target, end, pass_service
from antiphon.cli.sound import player_input, recorded_blocks
from antiphon.client import Request, as_event, as_text, given, with_wav_length
from antiphon.live import SSML

INTERIM_MS = 500
MOST_CHARACTERS = 4_000  # of one request
STYLE = ("keyterms", "numerals", "profanity_filter", "punctuate", "redact")
FORMATS = ("mp3", "wav", "flac", "opus", "aac", "pcm")


def pieces_of(text: str) -> Iterator[str]:
    """Yield pieces of at most MOST_CHARACTERS, one per request. Each ends at its last paragraph,
    sentence or space."""
    while len(text) > MOST_CHARACTERS:
        head = text[:MOST_CHARACTERS]
        at = max(head.rfind(mark) + len(mark) for mark in ("\n\n", ". ", "! ", "? ", "。"))
        at = at if at > MOST_CHARACTERS // 4 else head.rfind(" ") + 1 or MOST_CHARACTERS
        yield text[:at]
        text = text[at:]
    yield text


@click.command()
@takes_text
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="File to write; - is stdout.")
@click.option("--speed", type=click.FloatRange(0.25, 4.0), default=1.0, show_default=True)
@click.option("--format", "form", type=click.Choice(FORMATS), help="Default: by file name.")
@click.option("--model", help="Model, such as tts-1 or tts-1-hd.")
@pass_service
def speak(
    service: ServiceClient, /, text: str, output: str | None, form: str | None, **options: Any
) -> None:
    """Speak a text aloud, or write the speech to a file.

    \b
    antiphon speak "Good morning."
    antiphon speak -f book.txt -o book.mp3
    antiphon speak --ssml 'Wait. <break time="1s"/> Now.'
    echo "Piped." | antiphon speak -o - --format wav > piped.wav
    """
    if output is None:
        form = "pcm"
    elif form is None:
        form = Path(output).suffix.removeprefix(".").replace("ogg", "opus").lower() or "mp3"
        if form not in FORMATS:
            raise click.UsageError(f"--format is needed, since {output} does not name a format")
    if output not in (None, "-"):
        check_target(Path(str(output)))
    options["response_format"] = form or "mp3"
    pieces = [text] if SSML.match(text) else list(pieces_of(text))
    if len(pieces) > 1 and form not in ("mp3", "pcm", "aac", "opus"):
        long = f"the speech of a text over {MOST_CHARACTERS} characters"
        raise click.UsageError(f"--format: {long} must be mp3, aac or opus")
    options["stream_format"] = "sse"  # its last event has the voice and the length
    duration_s = 0.0
    voice = ""
    with opened(output) as target:
        for event in speech_of(service, pieces, options):
            if event["type"] == "speech.audio.delta":
                target.write(base64.b64decode(event["audio"]))
            else:
                duration_s += event["duration_seconds"]
                voice = event["voice"]
    if form == "wav" and output not in (None, "-"):
        complete_wav(Path(str(output)))
    where = f" to {'stdout' if output == '-' else output}" * (output is not None)
    verb = "Wrote" if output else "Played"
    service.report(
        {"output": output, "voice": voice, "duration_seconds": duration_s},
        f"{verb} {duration_s:.1f} s of speech by {voice}{where}",
    )


def speech_of(
    service: ServiceClient, pieces: list[str], options: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    """Yield the events of each piece. The caller writes the file, so that a failure to
    write is not reported as the service's."""
    with service.client(warn_of_silence) as client:
        for number, piece in enumerate(pieces, start=1):
            if len(pieces) > 1 and sys.stderr.isatty():
                click.echo(f"\r{number} of {len(pieces)}", nl=False, err=True)
            body = given(input=piece, **options)
            request: Request[Any] = Request("POST", "/openai/v1/audio/speech", {"json": body})
            yield from client.stream(request, as_event)


def warn_of_silence(answer: httpx.Response) -> None:
    """Name on stderr the parts of the text that are not spoken."""
    if unread := unquote(answer.headers.get("X-Unread", "")):
        click.echo(f"Warning: no voice can read {unread}", err=True)
    for warning in re.findall(r'"([^"]+)"', answer.headers.get("Warning", "")):
        click.echo(f"Warning: {warning}", err=True)


def complete_wav(file: Path) -> None:
    """Write the length into the header of a file."""
    with file.open("r+b") as wav:
        head = wav.read(4096)
        size = wav.seek(0, 2)
        wav.seek(0)
        wav.write(with_wav_length(head, size))


@contextmanager
def opened(output: str | None) -> Iterator[IO[bytes]]:
    """Open the file, stdout, or the input of a player, and close it after the block."""
    if output is not None:
        # Opened when the first bytes arrive: a failed request leaves an older file as it is.
        with click.open_file(output, "wb", lazy=True) as target:
            yield target
        return
    with player_input() as played:
        yield played


@click.command()
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--live", is_flag=True, help="Transcribe the microphone until Ctrl-C.")
@click.option("--raw", is_flag=True, help="Read 16-bit mono at 16 kHz from stdin instead.")
@click.option("-l", "--language", help="Language code, such as de. Default: detected.")
@click.option("--format", "form", type=click.Choice(("text", "srt", "vtt", "json")), default="text")
@click.option("--speakers", "speaker_labels", is_flag=True, help="Label the speakers.")
@click.option("--multichannel", is_flag=True, help="Treat two channels as two speakers.")
@click.option("--redact", help="Mask personal data: all, or types such as name,phone.")
@click.option("--write", is_flag=True, help="Save each transcript next to its recording.")
@click.option(
    "-k", "--keyterms", multiple=True, help="Names to expect, separated by commas; repeatable."
)
@click.option("--numerals", is_flag=True, help="Write numbers as digits.")
@click.option("--profanity-filter", is_flag=True, help="Mask profanity.")
@click.option("--punctuate/--no-punctuate", default=True, help="Write punctuation and capitals.")
@click.option("--translate", is_flag=True, help="Translate into English; allows no other option.")
@pass_service
def listen(
    service: ServiceClient, /, files: tuple[Path, ...], live: bool, raw: bool, **options: Any
) -> None:
    """Transcribe recordings, or live speech.

    \b
    antiphon listen interview.mp3 --speakers
    antiphon listen talks/*.m4a --format srt --write
    antiphon listen --live --language en --keyterms "Nginx, Kubernetes" --numerals
    """
    terms = ",".join(options["keyterms"]).split(",")
    options["keyterms"] = [term.strip() for term in terms if term.strip()]
    options["redact"] = options["redact"] and options["redact"].split(",")
    if live or raw:
        return asyncio.run(listen_live(service, raw, options))
    if not files:
        raise click.UsageError("name a recording, or use --live")
    form, write, translate = (options.pop(name) for name in ("form", "write", "translate"))
    has_turns = not translate and (options["speaker_labels"] or options["multichannel"])
    is_told = has_turns and form == "text"
    options |= {"response_format": "json" if is_told else form, "timestamps": form == "json"}
    path, part = ("/openai/v1/audio/translations", "file") if translate else ("/stt", "audio")
    targets = [file.with_suffix({"text": ".txt"}.get(form, f".{form}")) for file in files]
    if write and len({*targets}) < len(targets):
        raise click.UsageError("--write: two recordings have the same name but for its end")
    for target in targets if write else ():
        check_target(target)
    for file, target in zip(files, targets, strict=True):
        if len(files) > 1 and not write:
            click.echo(f"{file}:", err=True)
        sent = {"data": given(**options), "files": {part: (file.name, file.read_bytes())}}
        with service.client() as client:
            text = client.send(Request("POST", path, sent, as_text))
        if is_told and not service.as_json:
            turns = json.loads(text)["utterances"]
            text = "\n".join(f"{turn['speaker']}: {turn['text']}" for turn in turns)
        if write:
            target.write_text(text.rstrip("\n") + "\n", encoding="utf-8")
            click.echo(f"Wrote the transcript of {file} to {target}", err=True)
        else:
            click.echo(text.rstrip("\n"))


async def listen_live(service: ServiceClient, raw: bool, options: dict[str, Any]) -> None:
    """Print final transcripts. Interims go to a terminal only, where the next text overwrites
    them."""
    config = {name: options[name] for name in STYLE}
    config["interim_ms"] = INTERIM_MS if sys.stdout.isatty() else None
    languages = [options["language"]] if options["language"] else None
    with service.failures():
        async with AsyncAntiphon(service.url, service.key) as client:
            async for event in client.listen(blocks(raw), languages=languages, **config):
                if event["type"] == "connected":
                    click.echo("Listening; Ctrl-C to stop.", err=True)
                elif event["type"] == "error":
                    end(str(event["error"]), 1)
                elif event["type"] == "transcription":
                    show_live(service, event)


def show_live(service: ServiceClient, event: dict[str, Any]) -> None:
    is_final = event["is_final"]
    if service.as_json:
        click.echo(json.dumps(event, ensure_ascii=False))
    elif is_final and event["text"]:
        click.echo(("\r\033[K" if sys.stdout.isatty() else "") + event["text"].strip())
    elif not is_final and sys.stdout.isatty():
        cut = max(0, len(event["text"]) - shutil.get_terminal_size().columns + 1)
        kept, rest = event["committed"], event["tentative"][max(0, cut - len(event["committed"])) :]
        click.echo("\r\033[K" + kept[cut:] + click.style(rest, dim=True), nl=False)


def blocks(raw: bool, rate: int = 16_000) -> AsyncIterator[bytes]:
    """Return 16-bit mono samples of stdin, or of a program that records, in pieces of 100 ms."""
    size = rate // 5
    return stdin_blocks(size) if raw else recorded_blocks(size, rate)


async def stdin_blocks(size: int) -> AsyncIterator[bytes]:
    while block := await asyncio.to_thread(sys.stdin.buffer.read, size):
        yield block
