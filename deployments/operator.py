"""Administers accounts, models, audit log, storage and keys. Only `deploy` needs a running service.

    python -m deployments.operator credit 25              adds 25 USD to the first workspace
    python -m deployments.operator plan pro --email a@b.c puts that user's workspace on a plan
    python -m deployments.operator deploy serve_config.yaml swaps models of the running service
    python -m deployments.operator --help                 lists the other commands

Before `rotate-keys` put a new key before the others in ANTIPHON_DATA_KEYS, or in `data_keys` of
secrets.json, and start the service again. The old key can be removed a day later.

A running service applies a new plan within 5 seconds.
"""

import argparse
import asyncio
import logging
import os
import sqlite3
import sys
from contextlib import closing
from datetime import date, timedelta
from decimal import Decimal, InvalidOperation
from getpass import getpass
from pathlib import Path
from typing import Any

from email_validator import validate_email
from sqlalchemy.exc import SQLAlchemyError

from configs.environment import database_url, program_name
from configs.load import load_yaml
from configs.schema.platform import PlansConfig
from configs.settings import Settings, load_settings
from db.accounts import Workspace, find_workspace
from db.audit import audit_chain, audited_workspaces, first_break
from db.billing import ledger
from db.billing.ledger_check import accounts_after, check_days
from db.database import Database, utc_now
from db.errors import DatabaseError
from db.files import wrong_stored_bytes
from db.migrate import upgrade
from deployments.cli.backup import back_up, restore
from deployments.cluster.shared_stores import check_secrets, open_database
from pipelines.accounts.authentication import Authenticator
from pipelines.accounts.secret_fingerprints import check_secret_fingerprints
from pipelines.accounts.service import Accounts
from pipelines.billing.administration import ACTOR, MAX_REFERENCE, change_credit, customers
from pipelines.billing.billing import MICRO_USD
from pipelines.billing.subscriptions import MONTHS, Subscriptions
from pipelines.errors import PipelineError
from pipelines.maintenance.database_move import move_database
from pipelines.maintenance.key_rotation import Rotation
from pipelines.storage.encryption import DecryptionError, Encryption
from pipelines.storage.files import Files, storage_problem
from telemetry.logs import redact

ACCOUNTS_AT_ONCE = 1000
COMMANDS = Path(__file__).with_name("cli") / "commands.yaml"
NEW_KEY = ("create a key if all are lost", "--email ann@example.com")
OF_ONE = ("credit", "plan", "new-key", "set-password")  # workspace


def main(arguments: list[str] | None = None) -> None:
    """Exits with 1 and a message when a command fails, and with 2 for invalid arguments."""
    options = _parser().parse_args(arguments)
    os.umask(0o077)  # as of the service: a backup may be copied to where others look
    try:
        if options.command == "deploy":
            asyncio.run(check_secrets(load_settings(new=False)))
            from deployments.rollout.deploy import deploy  # with the registry of engines, and Ray

            say(deploy(options.file, only_check=options.check, dashboard=options.dashboard))
            return
        say(asyncio.run(_run(options)))
    except (ValueError, OSError, PipelineError, DatabaseError) as error:
        sys.exit(str(error))
    except SQLAlchemyError as error:  # its own message is the whole statement
        sys.exit(f"the database refused: {getattr(error, 'orig', None) or type(error).__name__}")
    except sqlite3.Error as error:
        sys.exit(f"the database refused: {error}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=program_name("deployments.operator"),
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    chosen = argparse.ArgumentParser(add_help=False)
    which = chosen.add_mutually_exclusive_group()
    which.add_argument("--email", help="owner's email; default: the first workspace")
    which.add_argument("--workspace", type=int, help="id of the workspace")
    _, known = load_yaml(list[dict[str, Any]], str(COMMANDS))
    made = {}
    for name, (purpose, example) in {**known, "new-key": NEW_KEY}.items():
        parents = [chosen] if name in OF_ONE else []
        made[name] = commands.add_parser(name, parents=parents, help=purpose)
        made[name].description = f"{purpose.capitalize()}."
        made[name].epilog = f"Example: {made[name].prog} {example}".rstrip()
    made["credit"].add_argument("usd", type=_micro_usd, help="USD; a negative amount removes it")
    made["credit"].add_argument("--reference", type=_reference, help="payment id, booked only once")
    made["plan"].add_argument("plan", help="id of the plan")
    made["plan"].add_argument("--cycle", choices=tuple(MONTHS), default="monthly")
    invite = made["invite"]
    invite.add_argument("--email", help="only this address can sign up")
    invite.add_argument("--credit", type=_micro_usd, help="USD, instead of signup_credit")
    invite.add_argument(
        "--days", type=int, choices=range(1, 366), default=7, metavar="1..365", help="default: 7"
    )
    deploy = made["deploy"]
    deploy.add_argument("file", type=Path, help="configuration, such as serve_config.yaml")
    deploy.add_argument("--check", action="store_true", help="only check and show the changes")
    deploy.add_argument("--dashboard", help="URL of Ray's dashboard; default: from settings")
    made["set-password"].add_argument(
        "--new-email", help="address for an owner without one, as of `first-key`"
    )
    for name in ("backup", "restore"):
        made[name].add_argument("folder", type=Path)
    made["restore"].add_argument(
        "--without-keys",
        action="store_true",
        help="do not restore API keys, for example after a leak",
    )
    return parser


def _micro_usd(text: str) -> int:
    try:
        amount = Decimal(text) * MICRO_USD
        if amount == amount.to_integral_value() and abs(amount) <= 10**15:
            return int(amount)
    except InvalidOperation:
        pass
    raise argparse.ArgumentTypeError(f"{text!r} is not an amount with at most 6 decimals")


def _reference(text: str) -> str:
    if not 1 <= len(text) <= MAX_REFERENCE:
        raise argparse.ArgumentTypeError(f"a reference has 1 to {MAX_REFERENCE} characters")
    return text


async def _run(options: argparse.Namespace) -> str:
    settings = load_settings(
        new=options.command in ("restore", "first-key"),
        new_secrets={"restore": False, "accept-secrets": True}.get(options.command),
    )
    if options.command == "restore":
        return await asyncio.to_thread(
            restore, settings, options.folder, with_keys=not options.without_keys
        )
    if options.command == "accept-secrets":
        (await open_database(settings, accept=True)).close()
        return "the secrets and the store of this environment are the database's from now on"
    if options.command == "move-database":
        await check_secrets(settings)
        target = database_url("NEW_DATABASE_URL", "")
        moved = await asyncio.to_thread(move_database, settings.database_url, target)
        return f"{moved}: start the service with DATABASE_URL={redact(target)}"
    if options.command not in ("backup", "first-key"):  # a backup copies the database as it is
        upgrade(settings.database_url)
    is_first = options.command == "first-key"
    opened = await open_database(settings) if is_first else Database(settings.database_url)
    with closing(opened) as database:
        await check_secret_fingerprints(database, settings.secrets, record=False)
        if command := _COMMANDS.get(options.command):
            return await command(database, settings)
        if options.command == "backup":
            return await asyncio.to_thread(back_up, settings, options.folder)
        if options.command == "invite":
            return await _invite(database, settings, options)
        found = await database.read(find_workspace, options.email, options.workspace)
        if found is None:
            raise ValueError("there is no such workspace")
        if options.command == "new-key":
            return await _accounts(database, settings).recover_key(found.id, ACTOR)
        if options.command == "set-password":
            return await _set_password(database, settings, found, options.new_email)
        if options.command == "credit":
            return await _credit(database, found, options.usd, options.reference)
        plans = load_yaml(PlansConfig, "plans")
        authenticator = Authenticator(database, settings.secrets)
        subscriptions = Subscriptions(database, plans, authenticator)
        current = await subscriptions.subscribe(found.id, ACTOR, options.plan, options.cycle)
        return (
            f"{found.name} ({found.id}) is on {current.plan.name}, paid {current.billing_cycle}, "
            f"billed next at {current.next_billing_date:%Y-%m-%d %H:%M} UTC"
        )


def _accounts(database: Database, settings: Settings) -> Accounts:
    return Accounts(database, settings.secrets, load_yaml(PlansConfig, "plans"))


async def _invite(database: Database, settings: Settings, options: argparse.Namespace) -> str:
    if options.credit is not None and options.credit < 0:
        raise ValueError("--credit: must not be below 0")
    until = utc_now() + timedelta(days=options.days)
    email = options.email.strip().lower() if options.email else None
    code = await _accounts(database, settings).invite(email, options.credit, until)
    closed = "; it needs SIGN_UP=invite, and sign-up is closed" * (settings.sign_up == "closed")
    return f"{code}\nadmits {email or 'one sign-up'} until {until:%Y-%m-%d %H:%M} UTC{closed}"


async def _credit(
    database: Database, workspace: Workspace, micro_usd: int, reference: str | None
) -> str:
    credit, changed = await change_credit(database, workspace.id, micro_usd, reference)
    said = f"{workspace.name} ({workspace.id}) {'has' if changed else 'keeps'} {credit:.6f} USD"
    if not changed:
        raise ValueError(f"{said}: the reference {reference!r} was booked before")
    return f"{said} of credit"


async def _set_password(
    database: Database, settings: Settings, workspace: Workspace, email: str | None
) -> str:
    typed = getpass("New password: ") if sys.stdin.isatty() else sys.stdin.readline().rstrip("\n")
    if not 8 <= len(typed) <= 256:
        raise ValueError("password: has 8 to 256 characters")
    if email is not None:
        email = validate_email(email.strip(), check_deliverability=False).normalized.lower()
    user = await _accounts(database, settings).reset_password(workspace, typed, email, ACTOR)
    return f"{user.email} logs in to {workspace.name} ({workspace.id}) with it; others are out"


async def _users(database: Database, _: Settings) -> str:
    found = await database.read(customers)
    lines = [
        f"{one.id}  {one.email}  {one.name}  {one.plan}  {one.credit:.6f} USD  "
        f"{one.created_at:%Y-%m-%d}"
        for one in sorted(found, key=lambda one: (one.created_at, one.id))
    ]
    return "\n".join(lines) or "there are none"


async def _first_key(database: Database, settings: Settings) -> str:
    if (key := await _accounts(database, settings).ensure_first_workspace()) is None:
        raise ValueError("there is a workspace already")
    # A wrong ANTIPHON_DATA would have made a database that no service reads.
    sys.stderr.write(f"the first workspace is in {redact(settings.database_url)}\n")
    return key


async def _reconcile(database: Database, _: Settings) -> str:
    wrong = [str(account) for account in await database.read(ledger.discrepancies)]
    for workspace_id in await database.read(wrong_stored_bytes):
        wrong.append(f"workspace {workspace_id}: the stored bytes are not the sum of its files")
    last = 0
    while found := await database.read(accounts_after, last, ACCOUNTS_AT_ONCE):
        for last in found:
            wrong += await _wrong_days(database, last)
    if wrong:
        raise ValueError("\n".join(wrong))
    return "every balance is the sum of its ledger"


async def _wrong_days(database: Database, workspace_id: int) -> list[str]:
    """Compares the sums of days with their entries; the hourly check relies on the sums."""
    wrong, since = [], date(1970, 1, 1)
    while checked := await database.run(check_days, workspace_id, since):
        wrong += checked.wrong
        since = checked.following
    return [f"workspace {workspace_id}: {day} is not the sum of its entries" for day in wrong]


async def _check_audit(database: Database, _: Settings) -> str:
    workspaces = await database.read(audited_workspaces)
    broken = []
    for workspace_id in workspaces:
        number = first_break(await database.read(audit_chain, workspace_id))
        if number is not None:
            broken.append(f"workspace {workspace_id}: entry {number} was changed or is missing")
    if broken:
        raise ValueError("\n".join(broken))
    return f"the audit logs of {len(workspaces)} workspace(s) are whole"


async def _check_storage(database: Database, settings: Settings) -> str:
    logging.basicConfig(handlers=[logging.NullHandler()])  # the sentence below has the cause
    files = Files(settings, database, Encryption(settings.secrets.data_keys))
    where = redact(settings.storage_url)
    if problem := await storage_problem(files):
        raise ValueError(f"STORAGE_URL: {where} cannot be used: {redact(problem)}")
    return f"files can be written to, read from and deleted in {where}"


async def _rotate_keys(database: Database, settings: Settings) -> str:
    encryption = Encryption(settings.secrets.data_keys)
    files = Files(settings, database, encryption)
    try:
        done = await Rotation(database, encryption, files).run()
    except DecryptionError as error:
        raise ValueError(f"stopped: {error}") from None
    # From now on a start with the first key alone is not one with another key.
    await check_secret_fingerprints(database, settings.secrets)
    return (
        "{chats} chat(s), {webhooks} webhook(s), {dictionaries} dictionar(ies), {speakers} "
        "speaker(s), {events} event(s) and {files} file(s) are encrypted under the first key; the "
        "others were already"
    ).format(**done)


_COMMANDS = {
    "first-key": _first_key,
    "users": _users,
    "reconcile": _reconcile,
    "check-audit": _check_audit,
    "check-storage": _check_storage,
    "rotate-keys": _rotate_keys,
}


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    main()
