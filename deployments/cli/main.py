"""The commands of `antiphon` for operators, which the server adds to those of the client."""

from importlib import import_module
from pathlib import Path
from typing import Any

import click

from antiphon.cli.account import keys
from antiphon.cli.main import antiphon, main
from antiphon.cli.service import OPERATORS as FOR_OPERATORS
from antiphon.cli.service import local_finders
from configs.load import load_yaml
from configs.settings import local_service
from deployments.cli.models import models

OPERATORS, COMMANDS = load_yaml(
    list[dict[str, Any]], str(Path(__file__).with_name("commands.yaml"))
)


class ImportedCommand(click.Command):
    """A command whose module is imported when it is called, because some imports take seconds."""

    def __init__(
        self, name: str, source: str, purpose: str, example: str, *, hidden: bool = False
    ) -> None:
        super().__init__(name, short_help=f"{FOR_OPERATORS}{purpose}.", hidden=hidden)
        self._source = source
        self._example = example

    def imported(self) -> click.Command:
        """Import the command that this one stands for."""
        module, _, name = self._source.partition(":")
        command: click.Command = getattr(import_module(module), name)
        command.epilog = f"Example: antiphon {self._example}"
        return command

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Parse the arguments with the imported command, to which the context then belongs."""
        return self.imported().make_context(info_name, args, parent, **extra)


def add_commands(program: click.Group) -> None:
    """Add the operators' commands to `program`. Their `models` replaces the users' `models`."""
    local_finders[:] = [local_service]
    program.add_command(models)
    for path, (source, purpose, example) in OPERATORS.items():
        where, _, name = path.rpartition(" ")
        group = {"keys": keys, "models": models}.get(where, program)
        group.add_command(ImportedCommand(name, source, purpose, example))
    for name, (purpose, example) in COMMANDS.items():
        source = f"deployments.cli.administration:{name.replace('-', '_')}"
        is_alias = name == "new-key"  # of `keys recover`
        program.add_command(ImportedCommand(name, source, purpose, example, hidden=is_alias))


if __name__ == "__main__":  # in a checkout, which has no entry points
    add_commands(antiphon)
    main()
