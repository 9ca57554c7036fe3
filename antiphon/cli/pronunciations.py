"""`antiphon explain` and `antiphon pronunciations`."""

import re
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import IO, Any

import click

from antiphon.cli.service import ServiceClient, counted, current_service, end, pass_service
from antiphon.client import given
from antiphon.live import SSML

PATH = "/pronunciations"
OPTIONS = (
    click.argument("text", required=False),
    click.option(
        "-f", "--file", type=click.File(encoding="utf-8"), help="Read the text from a file."
    ),
    click.option("-v", "--voice", help="Voice name or id. Default: by the language of the text."),
    click.option("--ssml", is_flag=True, help="Read the text as SSML; <speak> is optional."),
    click.option("-p", "--pronunciations", multiple=True, help="Dictionary; repeatable."),
)


def takes_text(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the `text` to speak, `voice` and the ids of `pronunciations`."""

    @wraps(command)
    def run(text: str | None, file: IO[str] | None, ssml: bool, **options: Any) -> None:
        if text is None or text == "-":
            text = (file or sys.stdin).read()
        if not text.strip():
            raise click.UsageError("there is no text to speak")
        service = current_service()
        if ssml and not SSML.match(text):
            text, service.added = f"<speak>{text}</speak>", len("<speak>")
        options["pronunciations"] = [find(service, name) for name in options["pronunciations"]]
        command(text=text, **options)

    for option in reversed(OPTIONS):
        run = option(run)
    return run


def find(service: ServiceClient, named: str) -> str:
    """Find the id of the dictionary with that name or id."""
    for dictionary in service.ask("GET", PATH)["data"]:
        if named in (dictionary["name"], dictionary["id"]):
            return str(dictionary["id"])
    end(f"no dictionary is called {named}; `antiphon pronunciations list` shows all", 1)


@click.command()
@takes_text
@click.option("-l", "--language", help="Language of the default voice.")
@pass_service
def explain(service: ServiceClient, /, **asked: Any) -> None:
    """Show words, phonemes, price and length of speech, free of charge.

    \b
    antiphon explain "It costs $5 on 3/4/2025."
    """
    explained = service.ask("POST", "/tts/explain", json=given(**asked))
    lines: list[str] = []
    for sentence in explained["sentences"]:
        lines += filter(None, (sentence["text"], sentence["phonemes"]))
    price = f"{counted(explained['characters'], 'character')}, {explained['price']:.6f} USD"
    service.show(explained, *lines, f"{price}, about {explained['estimated_seconds']:g} s")


@click.group()
def pronunciations() -> None:
    """Manage pronunciation dictionaries."""


@pronunciations.command("create")
@click.argument("name")
@click.argument("entries", nargs=-1, required=True)
@pass_service
def create(service: ServiceClient, name: str, entries: tuple[str, ...]) -> None:
    """Create a dictionary, or its next version, from entries WORD=ALIAS or WORD=/IPA/.

    \b
    antiphon pronunciations create Products "Nginx=engine X" "SQL=/ˈsiːkwəl/"
    """
    parsed = []
    for entry in entries:
        word, _, reading = entry.partition("=")
        ipa = re.fullmatch("/(.+)/", reading)
        alias = None if ipa else reading
        parsed.append({"grapheme": word, "phoneme": ipa and ipa[1], "alias": alias})
    save(service, {"name": name, "entries": parsed})


@pronunciations.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--name", help="Name of the dictionary. Default: the file name.")
@pass_service
def import_dictionary(service: ServiceClient, file: Path, name: str | None) -> None:
    """Create a dictionary, or its next version, from a PLS 1.0 document.

    \b
    antiphon pronunciations import products.pls --name Products
    """
    save(service, {"name": name or file.stem, "pls": file.read_text(encoding="utf-8")})


def save(service: ServiceClient, body: dict[str, Any]) -> None:
    dictionaries = service.ask("GET", PATH)["data"]
    paths = {dictionary["name"]: f"/{dictionary['id']}" for dictionary in dictionaries}
    path = paths.get(body["name"], "")
    saved = service.ask("PUT" if path else "POST", PATH + path, json=body)
    entries = counted(saved["size"], "entry", "entries")
    service.show(saved, f"{saved['name']}, version {saved['version']}: {entries}")


@pronunciations.command("export")
@click.argument("named")
@click.option("--version", type=int, help="Version to print. Default: the newest.")
@pass_service
def export(service: ServiceClient, named: str, version: int | None) -> None:
    """Print a dictionary as PLS 1.0.

    \b
    antiphon pronunciations export Products > products.pls
    """
    dictionary_id = find(service, named)
    with service.client() as client:
        click.echo(client.export_dictionary(dictionary_id, version=version))


@pronunciations.command("delete")
@click.argument("named")
@click.confirmation_option(prompt="Delete the dictionary and its versions?")
@pass_service
def delete(service: ServiceClient, named: str) -> None:
    """Delete a dictionary.

    \b
    antiphon pronunciations delete Products
    """
    answer = service.ask("DELETE", f"{PATH}/{find(service, named)}")
    service.show(answer, "The dictionary is deleted.")
