"""`antiphon`, the command line of this machine: beside the users' commands those for operators."""

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from antiphon.cli.account import keys
from antiphon.cli.main import antiphon
from antiphon.cli.main import main as run_program
from configs.load import load_yaml
from configs.settings import BRAND
from deployments.cli.models import models

__all__ = ["COMMANDS", "antiphon", "main"]
OPERATORS, COMMANDS = load_yaml(
    list[dict[str, Any]], str(Path(__file__).with_name("commands.yaml"))
)


def _add_program(
    group: click.Group, name: str, module: str, purpose: str, before: tuple[str, ...]
) -> None:
    """Adds a command that runs a module, whose arguments are `before` and those of the command."""

    @group.command(
        name,
        short_help=f"Operators: {purpose}.",
        context_settings={"ignore_unknown_options": True, "help_option_names": []},
    )
    @click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
    def run(arguments: tuple[str, ...]) -> None:
        program = {"models.weights.__main__": "antiphon weights"}.get(module)
        sys.argv = [program or ("antiphon" if before else f"antiphon {name}"), *before, *arguments]
        if name == "serve" and "--help" not in arguments:
            status = import_module("models.weights.__main__").main(["fetch"])
            if status:
                raise SystemExit(status)
        entry = import_module(module).main
        if isinstance(entry, click.Command):
            entry(prog_name=sys.argv[0])  # click would name the module
        raise SystemExit(entry())  # a status, or None


antiphon.add_command(models)
for path, (source, purpose, *first) in OPERATORS.items():
    where, _, each = path.rpartition(" ")
    group = {"keys": keys, "models": models}.get(where, antiphon)
    _add_program(group, each, source, purpose, tuple(first))
for each, (purpose, _) in COMMANDS.items():
    _add_program(antiphon, each, "deployments.operator", purpose, (each,))


def main() -> None:
    run_program(BRAND.lower())


if __name__ == "__main__":
    main()
