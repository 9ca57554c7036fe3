"""`antiphon`, the command line: for users of a service by HTTP, for operators on its machine."""

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from configs.load import load_yaml
from configs.settings import BRAND
from deployments.cli import account, jobs, models, pronunciations, speech, talk, text
from deployments.cli.service import ServiceClient, end

_TABLES = Path(__file__).with_name("commands.yaml")
OPERATORS, COMMANDS = load_yaml(list[dict[str, Any]], str(_TABLES))


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("--url", envvar="ANTIPHON_URL", help="Of the service; http://127.0.0.1:8000.")
@click.option("--key", envvar="ANTIPHON_KEY", help="An API key; that of `antiphon login`.")
@click.option("--json", "as_json", is_flag=True, help="Print the whole answer as JSON.")
@click.pass_context
def antiphon(context: click.Context, url: str | None, key: str | None, as_json: bool) -> None:
    """Speech, transcription, chat and correction from the shell.

    \b
    antiphon login
    antiphon speak "Good morning."
    antiphon listen interview.mp3 --format srt

    Exit statuses: 1 a failure, 2 wrong arguments, 3 a refused key, 4 no service at the address.
    `eval "$(_ANTIPHON_COMPLETE=bash_source antiphon)"` completes words in bash; zsh and fish alike.
    """
    if context.invoked_subcommand not in {*OPERATORS, *COMMANDS}:
        context.obj = ServiceClient(url, key, as_json)


def _runs(module: str, name: str, before: tuple[str, ...]) -> Callable[[tuple[str, ...]], None]:
    def run(arguments: tuple[str, ...]) -> None:
        program = {"models.weights.__main__": "antiphon weights"}.get(module)
        sys.argv = [program or ("antiphon" if before else f"antiphon {name}"), *before, *arguments]
        if name == "serve" and "--help" not in arguments:
            status = import_module("models.weights.__main__").main(["fetch"])
            if status:
                raise SystemExit(status)
        raise SystemExit(import_module(module).main())  # a status, or None

    return run


def _forward(
    group: click.Group, name: str, module: str, about: str, before: tuple[str, ...]
) -> None:
    group.add_command(
        click.Command(
            name,
            callback=_runs(module, name, before),
            params=[click.Argument(["arguments"], nargs=-1, type=click.UNPROCESSED)],
            context_settings={"ignore_unknown_options": True, "help_option_names": []},
            short_help=f"Operators: {about}.",
        )
    )


for one in (
    *(speech.speak, speech.listen, jobs.job, talk.talk, text.chat, text.correct),
    *(account.voices, account.keys, account.usage, account.webhooks, account.login),
    *(models.models, pronunciations.explain, pronunciations.pronunciations),
):
    antiphon.add_command(one)
requests = load_yaml(dict[str, dict[str, dict[str, Any]]], str(_TABLES.with_name("requests.yaml")))
for each, commands in requests.items():
    for verb, spec in commands.items():
        account.add_request(antiphon.commands.get(each, antiphon), verb, spec)
for path, (source, purpose, *first) in OPERATORS.items():
    where, _, each = path.rpartition(" ")
    group = {"keys": account.keys, "models": models.models}.get(where, antiphon)
    _forward(group, each, source, purpose, tuple(first))
for each, (purpose, _) in COMMANDS.items():
    _forward(antiphon, each, "deployments.operator", purpose, (each,))


def main() -> None:
    try:
        antiphon(prog_name=BRAND.lower())
    except OSError as error:  # of a file of the user: no space, no permission
        end(f"{error.filename or 'the output'}: {error.strerror or error}", 1)


if __name__ == "__main__":
    main()
