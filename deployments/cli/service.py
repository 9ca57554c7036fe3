"""The service that the command line talks to: its address, the key, requests and their errors."""

import json
import os
import sys
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import click
import httpx

DEFAULT_URL = "http://127.0.0.1:8000"
TIMEOUT = httpx.Timeout(10.0, read=600.0, write=600.0)  # seconds; a model may be loading
REFUSED, UNREACHABLE = 3, 4  # exit statuses; 1 is any other failure, 2 wrong arguments


def config_file() -> Path:
    folder = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(folder).expanduser() / "antiphon" / "config.toml"


def stored() -> dict[str, str]:
    """The `url` and `key` of `antiphon login`."""
    try:
        return tomllib.loads(config_file().read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise click.ClickException(f"{config_file()}: {error}") from None


def store(url: str, key: str) -> None:
    """Only the user can read the file."""
    file = config_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    text = f"url = {json.dumps(url)}\nkey = {json.dumps(key)}\n"
    with open(os.open(file, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w") as target:
        target.write(text)
    file.chmod(0o600)


class ServiceClient:
    """Requests with the user's key. Their failures end the program with one sentence."""

    def __init__(self, url: str | None, key: str | None, as_json: bool) -> None:
        known = stored() if url is None or key is None else {}
        self.url = (url or known.get("url") or DEFAULT_URL).rstrip("/")
        # A key is sent to no other service than the one that gave it.
        self.key = key or (known.get("key") if known.get("url") in (None, self.url) else None)
        self.as_json = as_json

    def client(self) -> httpx.Client:
        headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        return httpx.Client(base_url=self.url, headers=headers, timeout=TIMEOUT)

    @contextmanager
    def stream(self, method: str, path: str, **options: Any) -> Iterator[httpx.Response]:
        """A response with status 200 whose body is still to be read."""
        try:
            with self.client() as client, client.stream(method, path, **options) as answer:
                if answer.is_error:
                    answer.read()
                    fail(answer)
                yield answer
        except httpx.InvalidURL as error:
            raise click.UsageError(f"--url: {error}") from None
        except httpx.HTTPError as error:
            end(f"{self.url} does not answer: {error or type(error).__name__}", UNREACHABLE)

    def ask(self, method: str, path: str, **options: Any) -> Any:
        """The JSON of a response."""
        with self.stream(method, path, **options) as answer:
            answer.read()
            return answer.json() if answer.content else {}

    def show(self, found: Any, *lines: str) -> None:
        """The whole answer with `--json`, or lines for people."""
        if self.as_json:
            click.echo(json.dumps(found, ensure_ascii=False))
        else:
            click.echo("\n".join(lines))


def fail(answer: httpx.Response) -> NoReturn:
    try:
        body = answer.json()
        error = body.get("error")
        message = error["message"] if isinstance(error, dict) else body["message"]
    except (ValueError, KeyError, AttributeError, TypeError):
        message = f"the answer is {answer.status_code} {answer.reason_phrase}"
    if wait := answer.headers.get("Retry-After"):
        message += f"; try again in {wait} s"
    if answer.status_code == 401:
        end(f"{message}; `antiphon login` or ANTIPHON_KEY gives one", REFUSED)
    end(message, 1)


def end(message: str, status: int) -> NoReturn:
    click.echo(f"Error: {message}", err=True)
    sys.exit(status)


def given(**fields: Any) -> dict[str, Any]:
    """Those that are not None: a body without the options that were not used."""
    return {name: value for name, value in fields.items() if value is not None}


def table(rows: Sequence[tuple[str, ...]]) -> str:
    """Columns that are as wide as their longest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


pass_service = click.make_pass_decorator(ServiceClient)
