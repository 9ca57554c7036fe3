"""The service that the command line talks to: its address, the key, requests and their errors."""

import json
import os
import re
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from socket import gaierror
from typing import Any, NoReturn, TypeVar

import click
import httpx
from websockets.exceptions import ConnectionClosed

from antiphon import Antiphon, ServiceError
from antiphon.client import DEFAULT_URL
from antiphon.live import is_local

NETWORK = (ConnectionError, TimeoutError, gaierror)  # other OSErrors concern files
OPERATORS = "Operators: "  # starts the help of commands that run on a machine of the service
REFUSED, UNREACHABLE = 3, 4  # exit statuses; 1 is any other failure, 2 wrong arguments
T = TypeVar("T")


def config_file() -> Path:
    folder = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(folder).expanduser() / "antiphon" / "config.toml"


def stored() -> dict[str, str]:
    """Return the `url` and `key` that `antiphon login` stored."""
    try:
        return tomllib.loads(config_file().read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise click.ClickException(f"{config_file()}: {error}") from None


def store(url: str, key: str) -> None:
    """Store the address and the key in a file that only the user can read."""
    file = config_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    text = f"url = {json.dumps(url)}\nkey = {json.dumps(key)}\n"
    with open(os.open(file, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w") as target:
        file.chmod(0o600)  # an existing file may be readable by others
        target.write(text)


local_finders: list[Callable[[], str | None]] = []
"""Functions that find the address of a service on this machine, which an installed server adds."""


def local_service() -> str | None:
    """Return the address of the service that uses this machine's data folder, if it is known.
    Raises UsageError if a setting of the server is invalid."""
    try:
        return next(filter(None, (find() for find in local_finders)), None)
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def default_url() -> str:
    """Return the address of a service on this machine: with the PORT of the environment, or else
    the address that an installed server knows."""
    port = os.environ.get("PORT")
    return f"http://127.0.0.1:{port}" if port else local_service() or DEFAULT_URL


class ServiceClient:
    """Sends requests with the user's key. A failure ends the program with one sentence."""

    added = 0  # characters put before the user's text; subtracted from columns in error messages

    def __init__(self, url: str | None, key: str | None, as_json: bool) -> None:
        login = stored() if url is None or key is None else {}
        self.url = (url or login.get("url") or default_url()).rstrip("/")
        if not self.url.startswith(("http://", "https://")):
            raise click.UsageError(f"--url: {self.url} must start with http:// or https://")
        # A stored key is sent only to the service that issued it.
        self.key = key or (login.get("key") if login.get("url") in (None, self.url) else None)
        self.as_json = as_json

    @contextmanager
    def failures(self, purpose: str = "") -> Iterator[None]:
        """End the program with a sentence if a request in the block fails. The sentence begins with
        the `purpose`, if there is one."""
        try:
            yield
        except ServiceError as error:
            message = re.sub(
                r"(?<=: line 1, column )\d+", lambda at: str(int(at[0]) - self.added), str(error)
            )
            if error.status == 401 and self.key is None:
                message = "the service asks for an API key"
            message = message.replace("GET /default-voices", "`antiphon voices list`")
            message = f"{purpose}: {message}" if purpose else message
            if error.retry_after_s is not None:
                message += f"; try again in {error.retry_after_s:g} s"
            if error.status == 401:
                hint = "; run `antiphon login`, or set ANTIPHON_KEY" * ("key" in message)
                end(message + hint, REFUSED)
            end(message, 1)
        except httpx.InvalidURL as error:
            raise click.UsageError(f"--url: {error}") from None
        except (httpx.HTTPError, ConnectionClosed, *NETWORK) as error:
            reason = f"{self.url} does not answer: {error or type(error).__name__}"
            remedy = "name another with --url or ANTIPHON_URL"
            if is_local(self.url):
                address = local_service()
                if address is None:
                    remedy = f"start it with `antiphon serve`, or {remedy}"
                elif address == self.url.replace("//localhost", "//127.0.0.1"):
                    remedy = "it is still starting, or `antiphon doctor` says why it does not"
                else:
                    remedy = f"this machine's service runs at {address}: name it with --url"
            end(f"{reason}; {remedy}", UNREACHABLE)

    @contextmanager
    def client(
        self, on_response: Callable[[httpx.Response], Any] | None = None, purpose: str = ""
    ) -> Iterator[Antiphon]:
        with self.failures(purpose):
            with Antiphon(self.url, self.key, on_response=on_response) as client:
                yield client

    def ask(self, method: str, path: str, **options: Any) -> Any:
        """Send a request, and return the JSON of the response."""
        with self.client() as client:
            return client.request(method, path, **options)

    def show(self, answer: Any, *lines: str) -> None:
        """Print the whole answer with `--json`, or lines for people."""
        if self.as_json:
            click.echo(json.dumps(answer, ensure_ascii=False))
        else:
            click.echo("\n".join(lines))

    def report(self, answer: Any, line: str) -> None:
        """Say on stderr what was done: as JSON with `--json`, or in a line for people."""
        click.echo(json.dumps(answer, ensure_ascii=False) if self.as_json else line, err=True)

    def show_rows(self, answer: Any, heads: str, rows: Iterable[tuple[str, ...]]) -> None:
        """Print the whole answer with `--json`, or a table with heads such as "ID, NAME"."""
        self.show(answer, table([tuple(heads.split(", ")), *rows]))


def check_target(file: Path) -> None:
    """End the program if a file cannot be written, before any paid or long work begins."""
    if not file.parent.is_dir():
        end(f"{file}: there is no folder {file.parent}", 1)
    if not os.access(file if file.exists() else file.parent, os.W_OK):
        end(f"{file}: cannot be written", 1)


def end(message: str, status: int) -> NoReturn:
    click.echo(f"Error: {message}", err=True)
    sys.exit(status)


def counted(count: int, noun: str, nouns: str | None = None) -> str:
    """Return a count with its noun, such as "1 note"."""
    return f"{count} {noun if count == 1 else nouns or f'{noun}s'}"


def table(rows: Sequence[tuple[str, ...]]) -> str:
    """Format rows as columns that are as wide as their longest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def current_service() -> ServiceClient:
    """Return the service that the options of the program name. Raises UsageError."""
    program = click.get_current_context().find_root()
    program.obj = program.obj or ServiceClient(**program.params)
    service: ServiceClient = program.obj
    return service


class CommandGroup(click.Group):
    """A group of commands, listed in the order of their addition; the server adds further commands.
    If the server is not installed, the error for an unknown command says what to install."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands: first those of users, then those of operators."""
        sections: dict[str, list[tuple[str, str]]] = {"Commands": [], "Commands of operators": []}
        limit = formatter.width - 6 - max(map(len, self.commands))
        for name, command in self.commands.items():
            if command.hidden:
                continue
            about = command.get_short_help_str(limit + len(OPERATORS))
            is_operators = about.startswith(OPERATORS)
            about = about.removeprefix(OPERATORS)
            section = "Commands of operators" if is_operators else "Commands"
            sections[section].append((name, about[:1].upper() + about[1:]))
        for section, rows in sections.items():
            if rows:
                with formatter.section(section):
                    formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the arguments name. Raises UsageError."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            hint = ctx.find_root().command.epilog
            if not hint:
                raise
            raise click.UsageError(f"{error.format_message()} {hint}", error.ctx) from None


def pass_service(command: Callable[..., T]) -> Callable[..., T]:
    """Pass the service to a command as its first argument."""

    @wraps(command)
    def run(**options: Any) -> T:
        return command(current_service(), **options)

    return run
