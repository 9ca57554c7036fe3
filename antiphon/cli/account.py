"""`antiphon login`, `voices`, `keys`, `usage`, `plans` and `webhooks`."""

import os
import re
import time
from base64 import b64encode
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import httpx

from antiphon import ServiceError
from antiphon.cli.service import (
    CommandGroup,
    ServiceClient,
    check_target,
    end,
    pass_service,
    store,
    table,
)
from antiphon.client import Request, given

FILES = click.Path(exists=True, dir_okay=False, path_type=Path)
POLL_S = 2.0


@click.command()
@click.option("--email", help="Email of your account. Default: prompt for a key.")
@click.option("--sign-up", is_flag=True, help="Create the account first.")
@pass_service
def login(service: ServiceClient, email: str | None, sign_up: bool) -> None:
    """Store a key for this service, so that other commands need none.

    \b
    antiphon login
    antiphon --url https://speech.example login --email you@example.com
    """
    if email is None:
        service.key = click.prompt("API key", hide_input=True).strip()
    else:
        password = click.prompt("Password", hide_input=True, confirmation_prompt=sign_up)
        path = "/auth/signup" if sign_up else "/auth/login"
        session = service.ask("POST", path, json={"email": email, "password": password})
        service.key = session["token"]
        created = service.ask("POST", "/developer/api", json={"name": "Command line"})
        service.ask("POST", "/auth/logout")
        service.key = created["key"]
    plan = service.ask("GET", "/plans")
    store(service.url, service.key or "")
    service.show(plan, f"The key for {service.url} is stored.")


@click.group()
def voices() -> None:
    """List, create and share voices."""


@voices.command("list")
@click.option("-l", "--language", help="Language, such as en.")
@pass_service
def list_voices(service: ServiceClient, language: str | None) -> None:
    """List the available voices.

    \b
    antiphon voices list --language de
    """
    voices = service.ask("GET", "/default-voices")
    rows = []
    for voice in voices["data"]:
        labels = voice["labels"]
        if language in (None, labels["language"]):
            cells = (voice["name"], labels["language_name"], labels["gender"], labels["accent"])
            rows.append((*(cell or "" for cell in cells), voice["model"], voice["voice_id"]))
    service.show_rows(voices, "NAME, LANGUAGE, GENDER, ACCENT, MODEL, ID", rows)


@voices.command("add")
@click.argument("name")
@click.argument("recordings", nargs=-1, required=True, type=FILES)
@click.option("--consent", help="What the speaker agreed to.")
@click.option("--language", help="Language of the recordings. Default: detected.")
@click.option("--wait/--no-wait", default=True, help="Wait until the voice is ready.")
@pass_service
def add_voice(
    service: ServiceClient, /, recordings: tuple[Path, ...], wait: bool, **fields: str | None
) -> None:
    """Create a voice from three to ten recordings of one speaker.

    \b
    antiphon voices add Ann one.wav two.wav three.wav
    """
    files = [("files", (file.name, file.read_bytes())) for file in recordings]
    voice: dict[str, Any] = service.ask("POST", "/voices", data=given(**fields), files=files)
    if wait:
        with click.progressbar(length=100, label=voice["name"]) as bar:
            while voice["status"] not in ("ready", "failed"):
                time.sleep(POLL_S)
                voice = service.ask("GET", f"/voices/{voice['id']}")
                bar.update(int(100 * (voice.get("progress") or 0)) - bar.pos)
    if voice["status"] == "failed":
        end(voice["reason"] or "the voice could not be created", 1)
    service.show(voice, f"{voice['name']} is {voice['status']}: {voice['id']}")


@click.group(cls=CommandGroup)
def keys() -> None:
    """Manage the API keys of the workspace."""


@keys.command("create")
@click.argument("name")
@click.option("--scope", "scopes", multiple=True, help="Scope, such as tts. Default: all.")
@click.option("--expires", type=click.DateTime(("%Y-%m-%d",)), help="Expiry day (UTC).")
@pass_service
def create_key(
    service: ServiceClient, name: str, scopes: tuple[str, ...], expires: datetime | None
) -> None:
    """Create a key and print it. It is shown only once.

    \b
    antiphon keys create "Web site" --scope tts --expires 2030-01-31
    """
    until = expires.replace(tzinfo=UTC).isoformat() if expires else None
    named = ",".join(scopes).split(",") if scopes else None
    body = given(name=name, scopes=named, expires_at=until)
    created = service.ask("POST", "/developer/api", json=body)
    service.show(created, created["key"])


@click.command()
@click.option("--from", "since", type=click.DateTime(("%Y-%m-%d",)), help="First day (UTC).")
@click.option("--to", "until", type=click.DateTime(("%Y-%m-%d",)), help="Last day (UTC).")
@click.option("--by-key", is_flag=True, help="Split by API key.")
@pass_service
def usage(
    service: ServiceClient, since: datetime | None, until: datetime | None, by_key: bool
) -> None:
    """Show usage and cost by day, and the remaining credit.

    \b
    antiphon usage --from 2030-01-01 --by-key
    """
    days = {"from": since, "to": until}
    query = {name: f"{moment:%Y-%m-%d}" for name, moment in days.items() if moment}
    if by_key:
        query["by"] = "key"
    usage = service.ask("GET", "/billing/usage", params=query)
    names = key_names(service) if by_key else {}
    rows = [("DAY", "WORK", "AMOUNT", "REQUESTS", "USD", *("KEY", "NAME") * by_key)]
    for day in usage["usage"]:
        what = (day["date"], day["kind"], f"{day['units']:.12g} {day['unit']}")
        key = (day["key_id"] or "none", names.get(day["key_id"], "")) * by_key
        rows.append((*what, str(day["requests"]), f"{day['cost']:.6f}", *key))
    total = f"{usage['total_cost']:.6f} USD; {usage['credit_balance']:.6f} USD of credit are left"
    used, limit = (usage["storage"][name] / 1e9 for name in ("used", "limit"))
    service.show(usage, table(rows), total, f"{used:.3f} of {limit:,.12g} GB of storage are in use")


def key_names(service: ServiceClient) -> dict[str, str]:
    """Return the names of keys by id, or nothing if this key is not allowed to list them."""
    with service.client() as client, suppress(ServiceError):
        listed = client.request("GET", "/developer/api")
        return {key["id"]: key["name"] for key in listed["keys"]}
    return {}


@click.group()
def webhooks() -> None:
    """Manage webhooks, which send events to a URL."""


@webhooks.command("add")
@click.argument("url")
@click.argument("events", nargs=-1, required=True)
@click.option("--secret", help="Signing secret: whsec_ and base64. Default: a random one.")
@pass_service
def add_webhook(
    service: ServiceClient, url: str, events: tuple[str, ...], secret: str | None
) -> None:
    """Send EVENTS, such as tts.completed, to a URL. Prints the id and the signing secret, which is
    shown only once.

    \b
    antiphon webhooks add https://hooks.example.com/antiphon tts.completed
    """
    secret = secret or f"whsec_{b64encode(os.urandom(24)).decode()}"
    body = {"url": url, "events": list(events), "secret": secret}
    webhook = service.ask("POST", "/webhooks", json=body)
    service.show({**webhook, "secret": secret}, webhook["id"], secret)


def _cell(value: Any) -> str:
    """Format a value for a table: a list as words, a time as its day, nothing as a dash."""
    if isinstance(value, list):
        return ", ".join(value)
    text = f"{value:g}" if isinstance(value, float) else str(value or "-")
    return text[:10] if text[10:11] == "T" else text


def add_request(group: Any, name: str, spec: dict[str, Any]) -> None:
    """Add a command by its `spec` in `requests.toml`, which explains the fields."""
    method, path = spec["ask"].split()
    body, options, upload = (spec.get(name, ()) for name in ("body", "options", "upload"))

    @pass_service
    def run(service: ServiceClient, /, files: tuple[Path, ...] = (), **values: Any) -> None:
        sent = given(**{field: values[field] for field in (*body, *options)}) | spec.get(
            "fixed", {}
        )
        uploads = [(upload, (file.name, file.read_bytes())) for file in files]
        parts = {"data": sent, "files": uploads} if files else {"json": sent} if sent else {}
        if target := values.get("target"):
            if target.name != "-":
                check_target(Path(target.name))
            request = Request(method, path.format(**values), {"json": sent}, httpx.Response.read)
            with service.client() as client:
                answer = client.send(request)
            target.write(answer)  # opens it now: a failed request changes no file
            click.echo(f"Wrote {len(answer):,} bytes to {target.name}", err=True)
            return
        answer = service.ask(method, path.format(**values), **parts)
        if columns := spec.get("columns"):
            fields = columns.values()
            rows = [tuple(_cell(row[field]) for field in fields) for row in answer[spec["of"]]]
            return service.show(answer, table([tuple(columns), *rows]))
        service.as_json |= "say" not in spec
        service.show(answer, spec.get("say", "").format(**answer))

    arguments = (*re.findall(r"{(\w+)}", path), *body)
    params: list[Any] = [click.Argument([argument]) for argument in arguments]
    params += [click.Option([f"--{option}"], help=about) for option, about in dict(options).items()]
    if upload:
        params.append(click.Argument(["files"], nargs=-1, required=True, type=FILES))
    if spec.get("saves"):
        params.append(click.Argument(["target"], type=click.File("wb", lazy=True)))
    words = ("antiphon", *({group.name} - {"antiphon"}), name, *spec.get("example", ()))
    about = f"{spec['about']}\n\n\b\n{' '.join(words)}"
    command = click.Command(name, callback=run, params=params, help=about)
    prompt = spec.get("confirm")
    group.add_command(click.confirmation_option(prompt=prompt)(command) if prompt else command)
