"""`antiphon login`, `models`, `voices`, `keys`, `usage`, `plans` and `webhooks`."""

import os
import time
from base64 import b64encode
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from antiphon.client import given
from deployments.cli.service import ServiceClient, end, pass_service, store, table

FILES = click.Path(exists=True, dir_okay=False, path_type=Path)
POLL_S = 2.0
Find = Callable[[ServiceClient, str], str]


def day(moment: str | None) -> str:
    return (moment or "never")[:10]


@click.command()
@click.option("--email", help="Of an account; without it a key is asked for.")
@click.option("--sign-up", is_flag=True, help="Make the account.")
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
        made = service.ask("POST", "/developer/api", json={"name": "Command line"})
        service.ask("POST", "/auth/logout")
        service.key = made["key"]
    plan = service.ask("GET", "/plans")
    store(service.url, service.key or "")
    service.show(plan, f"The key for {service.url} is stored.")


def delete_command(path: str, about: str, find: Find = lambda _, named: named) -> click.Command:
    """`delete` of a group; `find` gives the id of what is named."""

    @click.command("delete", help=about)
    @click.argument("named", metavar="ID")
    @pass_service
    def delete(service: ServiceClient, named: str) -> None:
        service.show(service.ask("DELETE", f"{path}/{find(service, named)}"), "It is deleted.")

    return delete


@click.group()
def models() -> None:
    """The models that a service runs."""


@models.command("list")
@pass_service
def list_models(service: ServiceClient) -> None:
    """List the models with their status."""
    found = service.ask("GET", "/models")
    rows = []
    for one in found["data"]:
        languages = ", ".join(one["languages"][:5]) + ", …" * (len(one["languages"]) > 5)
        rows.append((one["id"], one["kind"], one["problem"] or one["status"], languages))
    service.show_rows(found, "ID, KIND, STATUS, LANGUAGES", rows)


@click.group()
def voices() -> None:
    """Voices, and those of your own."""


@voices.command("list")
@click.option("-l", "--language", help="Such as en.")
@pass_service
def list_voices(service: ServiceClient, language: str | None) -> None:
    """List the voices that can be named."""
    found = service.ask("GET", "/default-voices")
    rows = []
    for one in found["data"]:
        labels = one["labels"]
        if language in (None, labels["language"]):
            cells = (one["name"], labels["language_name"], labels["gender"], labels["accent"])
            rows.append((*(cell or "" for cell in cells), one["model"], one["voice_id"]))
    service.show_rows(found, "NAME, LANGUAGE, GENDER, ACCENT, MODEL, ID", rows)


@voices.command("add")
@click.argument("name")
@click.argument("recordings", nargs=-1, required=True, type=FILES)
@click.option("--consent", help="What the speaker agreed to.")
@click.option("--language", help="Detected by default.")
@click.option("--wait/--no-wait", default=True, help="Until the voice is ready.")
@pass_service
def add_voice(
    service: ServiceClient, /, name: str, recordings: tuple[Path, ...], wait: bool, **fields: Any
) -> None:
    """Make a voice from three to ten recordings of one speaker.

    \b
    antiphon voices add Ann one.wav two.wav three.wav
    """
    files = [("files", (file.name, file.read_bytes())) for file in recordings]
    made = service.ask("POST", "/voices", data=given(name=name, **fields), files=files)
    voice: dict[str, Any] = made.get("voice", made)
    path = f"/voices/{voice['id']}"
    if wait:
        with click.progressbar(length=100, label=name) as bar:
            while voice["status"] not in ("ready", "failed"):
                time.sleep(POLL_S)
                voice = service.ask("GET", path)
                voice = voice.get("voice", voice)
                bar.update(int(100 * (voice.get("progress") or 0)) - bar.pos)
    if voice["status"] == "failed":
        end(voice.get("error") or "the voice could not be made", 1)
    service.show(voice, f"{name} is {voice['status']}: {voice['id']}")


@voices.command("report")
@click.argument("voice_id")
@pass_service
def report(service: ServiceClient, voice_id: str) -> None:
    """Print the report of a voice of your own, as JSON."""
    service.as_json = True
    service.show(service.ask("GET", f"/voices/{voice_id}/report"))


@click.group()
def keys() -> None:
    """API keys of the workspace."""


@keys.command("list")
@pass_service
def list_keys(service: ServiceClient) -> None:
    """List the keys."""
    found = service.ask("GET", "/developer/api")
    rows = []
    for key in found["keys"]:
        scopes = ",".join(key["scopes"])
        used, ends = day(key["last_used_at"]), day(key["expires_at"])
        rows.append((key["id"], key["name"], f"{key['prefix']}…", scopes, used, ends))
    service.show_rows(found, "ID, NAME, KEY, SCOPES, LAST USED, EXPIRES", rows)


@keys.command("create")
@click.argument("name")
@click.option("--scope", "scopes", multiple=True, help="Such as tts; all by default.")
@click.option("--expires", type=click.DateTime(("%Y-%m-%d",)), help="The day, in UTC.")
@pass_service
def create_key(
    service: ServiceClient, name: str, scopes: tuple[str, ...], expires: datetime | None
) -> None:
    """Make a key, and print it this once."""
    until = expires.replace(tzinfo=UTC).isoformat() if expires else None
    named = ",".join(scopes).split(",") if scopes else None
    body = given(name=name, scopes=named, expires_at=until)
    made = service.ask("POST", "/developer/api", json=body)
    service.show(made, made["key"])


@click.command()
@click.option("--from", "since", type=click.DateTime(("%Y-%m-%d",)), help="The first day, in UTC.")
@click.option("--to", "until", type=click.DateTime(("%Y-%m-%d",)), help="The last day.")
@click.option("--by-key", is_flag=True, help="A line for each API key, too.")
@pass_service
def usage(
    service: ServiceClient, since: datetime | None, until: datetime | None, by_key: bool
) -> None:
    """Show usage and cost by day, and the credit that is left."""
    days = {"from": since, "to": until}
    asked = {name: f"{moment:%Y-%m-%d}" for name, moment in days.items() if moment}
    found = service.ask("GET", "/billing/usage", params=asked | ({"by": "key"} if by_key else {}))
    rows = [("DAY", "WORK", "AMOUNT", "REQUESTS", "USD", *["KEY"] * by_key)]
    for one in found["usage"]:
        what = (one["date"], one["kind"], f"{one['units']:g} {one['unit']}")
        key = [one["key_id"] or "none"] * by_key
        rows.append((*what, str(one["requests"]), f"{one['cost']:.6f}", *key))
    total = f"{found['total_cost']:.6f} USD; {found['credit_balance']:.6f} USD of credit are left"
    service.show(found, table(rows), total)


@click.command()
@pass_service
def plans(service: ServiceClient) -> None:
    """List the plans."""
    found = service.ask("GET", "/plans")
    rows = ((one["id"], one["name"], f"{one['price']:g}") for one in found["plans"])
    service.show_rows(found, "PLAN, NAME, USD A MONTH", rows)


@click.group()
def webhooks() -> None:
    """Messages about events."""


@webhooks.command("list")
@pass_service
def list_webhooks(service: ServiceClient) -> None:
    """List the webhooks."""
    found = service.ask("GET", "/webhooks")
    kept = found["webhooks"]
    rows = ((one["id"], one["status"], one["url"], ",".join(one["events"])) for one in kept)
    service.show_rows(found, "ID, STATUS, URL, EVENTS", rows)


@webhooks.command("add")
@click.argument("url")
@click.argument("events", nargs=-1, required=True)
@click.option("--secret", help="whsec_ and base64, which signs the messages; made by default.")
@pass_service
def add_webhook(
    service: ServiceClient, url: str, events: tuple[str, ...], secret: str | None
) -> None:
    """Send messages about EVENTS, such as tts.completed, to an address. Prints the id, and the
    secret that signs them, this once."""
    secret = secret or f"whsec_{b64encode(os.urandom(24)).decode()}"
    body = {"url": url, "events": list(events), "secret": secret}
    made = service.ask("POST", "/webhooks", json=body)
    service.show({**made, "secret": secret}, made["id"], secret)


@webhooks.command("test")
@click.argument("webhook_id")
@pass_service
def try_webhook(service: ServiceClient, webhook_id: str) -> None:
    """Send a sample message."""
    sent = service.ask("POST", f"/webhooks/{webhook_id}/test")
    service.show(sent, f"A sample of {sent['event']} is on its way.")


ask_first = click.confirmation_option(prompt="Delete the voice and its recordings?")
voices.add_command(ask_first(delete_command("/voices", "Delete a voice of your own.")))
keys.add_command(delete_command("/developer/api", "End a key."))
webhooks.add_command(delete_command("/webhooks", "Delete a webhook."))
