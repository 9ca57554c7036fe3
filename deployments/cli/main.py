"""`antiphon`, the command line of this machine: beside the users' commands those for operators."""

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

__all__ = ["antiphon", "main"]
OPERATORS, COMMANDS = load_yaml(
    list[dict[str, Any]], str(Path(__file__).with_name("commands.yaml"))
)


class ImportedCommand(click.Command):
    """A command whose module is imported when it is called: that of some takes seconds."""

    def __init__(self, name: str, source: str, purpose: str) -> None:
        super().__init__(name, short_help=f"Operators: {purpose}.")
        self._source = source

    def imported(self) -> click.Command:
        """Import the command in place of which this is listed."""
        module, _, name = self._source.partition(":")
        command: click.Command = getattr(import_module(module), name)
        return command

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Parse the arguments by the command itself, which the context then has."""
        return self.imported().make_context(info_name, args, parent, **extra)


antiphon.add_command(models)
for path, (source, purpose) in OPERATORS.items():
    where, _, name = path.rpartition(" ")
    group = {"keys": keys, "models": models}.get(where, antiphon)
    group.add_command(ImportedCommand(name, source, purpose))
for name, (purpose, _) in COMMANDS.items():
    if name != "new-key":  # `keys recover`
        source = f"deployments.cli.administration:{name.replace('-', '_')}"
        antiphon.add_command(ImportedCommand(name, source, purpose))


def main() -> None:
    run_program(BRAND.lower())


if __name__ == "__main__":
    main()
