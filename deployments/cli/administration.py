"""The operator's commands for accounts, models, the audit log, storage and keys."""

import asyncio
import inspect
import logging
import os
import sqlite3
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from datetime import date, timedelta
from decimal import Decimal, InvalidOperation
from functools import partial
from getpass import getpass
from pathlib import Path
from typing import Any

import click
from email_validator import validate_email
from sqlalchemy.exc import SQLAlchemyError

from configs import running
from configs.environment import database_url, serves_only_this_machine
from configs.load import load_yaml
from configs.schema.platform import PlansConfig
from configs.settings import Settings, load_settings, load_settings_of_service
from db.accounts import User, Workspace, find_workspace, keys_of
from db.audit import audit_chain, audited_workspaces, first_break
from db.billing import ledger
from db.billing.ledger_check import account_ids, check_days
from db.database import Database, utc_now
from db.errors import DatabaseError
from db.files import wrong_stored_bytes
from db.migrate import upgrade
from deployments.cli.backup import back_up
from deployments.cli.backup import restore as restore_backup
from deployments.cluster.login import SET_PASSWORD, accounts_of, console_link
from deployments.cluster.shared_stores import check_secrets, check_store, open_database
from pipelines.accounts.authentication import Authenticator
from pipelines.accounts.secret_fingerprints import check_secret_fingerprints
from pipelines.billing.administration import ACTOR, MAX_REFERENCE, change_credit, customers
from pipelines.billing.billing import MICRO_USD
from pipelines.billing.subscriptions import MONTHS, BillingCycle, Subscriptions
from pipelines.errors import PipelineError, PlanNotFound
from pipelines.maintenance.database_move import move_database as move_all_tables
from pipelines.maintenance.erasure import delete_erased, erase_rows
from pipelines.maintenance.key_rotation import Rotation
from pipelines.storage.encryption import DecryptionError, Encryption
from pipelines.storage.files import Files, storage_problem
from telemetry.logs import redact

_, COMMANDS = load_yaml(list[dict[str, Any]], str(Path(__file__).with_name("commands.yaml")))
Function = Callable[..., Any]


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
def operator() -> None:
    """Administer accounts, models, audit log, storage and keys.

    \b
    python -m deployments.operator credit 25
    python -m deployments.operator deploy serve_config.yaml

    Only `deploy` needs a running service. A running service applies a new plan within 5 seconds.

    Before `rotate-keys`, put the new key before the others in ANTIPHON_DATA_KEYS, or in `data_keys`
    of secrets.json, and restart the service. Remove the old key a day later.
    """


class OperatorCommand(click.Command):
    """A command whose function returns the text to print, or a coroutine that does."""

    def invoke(self, ctx: click.Context) -> None:
        os.umask(0o077)  # as in the service, since others may read the folder of a backup
        with _failures():
            result = super().invoke(ctx)
            click.echo(asyncio.run(result) if inspect.iscoroutine(result) else result)


def command(name: str, **settings: Any) -> Callable[[Function], click.Command]:
    """Add a function to the group, as the command that has this name in `commands.yaml`."""
    purpose, example = COMMANDS[name]
    return operator.command(
        name,
        cls=OperatorCommand,
        help=f"{purpose[0].upper()}{purpose[1:]}.",
        epilog=f"Example: antiphon {example}",
        context_settings=settings,
    )


@contextmanager
def _failures() -> Iterator[None]:
    """End the program with status 1 and a message when the block fails."""
    try:
        yield
    except (ValueError, OSError, PipelineError, DatabaseError) as error:
        sys.exit(str(error))
    except SQLAlchemyError as error:  # its own message would include the whole SQL statement
        sys.exit(f"the database refused: {getattr(error, 'orig', None) or type(error).__name__}")
    except sqlite3.Error as error:
        sys.exit(f"the database refused: {error}")


@asynccontextmanager
async def _service() -> AsyncIterator[tuple[Settings, Database]]:
    """Open the migrated database of the service, if its secrets are those of the settings."""
    settings = load_settings_of_service()
    upgrade(settings.database_url)
    with closing(Database(settings.database_url)) as database:
        await check_secret_fingerprints(database, settings.secrets, record=False)
        yield settings, database


def _not_both(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    chosen = context.params.get("email"), context.params.get("workspace")
    if value is not None and chosen != (None, None):
        raise click.UsageError("--email and --workspace exclude each other")
    return value


def _of_workspace(function: Function, default: str = " Default: the first workspace.") -> Function:
    """Add the options that choose a workspace."""
    email = click.option("--email", callback=_not_both, help=f"Owner's email.{default}")
    by_id = click.option("--workspace", type=int, callback=_not_both, help="Id of the workspace.")
    return email(by_id(function))


async def _chosen(database: Database, email: str | None, workspace: int | None) -> Workspace:
    row = await database.read(find_workspace, email, workspace)
    if row is None:
        raise ValueError("there is no such workspace")
    return row


def _micro_usd(_: click.Context, __: click.Parameter, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        amount = Decimal(text) * MICRO_USD
        if amount == amount.to_integral_value() and abs(amount) <= 10**15:
            return int(amount)
    except InvalidOperation:
        pass
    raise click.BadParameter(f"{text!r} is not an amount in USD (at most 6 decimal places)")


def _reference(_: click.Context, __: click.Parameter, text: str | None) -> str | None:
    if text is not None and not 1 <= len(text) <= MAX_REFERENCE:
        raise click.BadParameter(f"a reference has 1 to {MAX_REFERENCE} characters")
    return text


@command("credit", ignore_unknown_options=True)  # a negative amount is an argument
@click.argument("usd", callback=_micro_usd)
@_of_workspace
@click.option("--reference", callback=_reference, help="Payment id, booked only once.")
async def credit(usd: int, email: str | None, workspace: int | None, reference: str | None) -> str:
    async with _service() as (_, database):
        row = await _chosen(database, email, workspace)
        balance, is_booked = await change_credit(database, row.id, usd, reference)
    result = f"{row.name} ({row.id}) {'has' if is_booked else 'keeps'} {balance:.6f} USD"
    if not is_booked:
        raise ValueError(f"{result}: the reference {reference!r} was booked before")
    return f"{result} of credit"


@command("plan")
@click.argument("plan")
@_of_workspace
@click.option("--cycle", type=click.Choice(tuple(MONTHS)), default="monthly")
async def plan(plan: str, email: str | None, workspace: int | None, cycle: BillingCycle) -> str:
    async with _service() as (settings, database):
        row = await _chosen(database, email, workspace)
        authenticator = Authenticator(database, settings.secrets)
        subscriptions = Subscriptions(database, load_yaml(PlansConfig, "plans"), authenticator)
        try:
            current = await subscriptions.subscribe(row.id, ACTOR, plan, cycle)
        except PlanNotFound:
            raise ValueError(f"{plan!r} is not a plan; `antiphon plans` lists them") from None
    return (
        f"{row.name} ({row.id}) is on {current.plan.name}, with the {current.billing_cycle} cycle; "
        f"the next cycle begins at {current.next_billing_date:%Y-%m-%d %H:%M} UTC"
    )


@command("invite")
@click.option("--email", help="The only address that can sign up.")
@click.option("--credit", callback=_micro_usd, help="Credit in USD. Default: signup_credit.")
@click.option(
    "--days", type=click.IntRange(1, 365), default=7, metavar="1..365", help="Default: 7."
)
async def invite(email: str | None, credit: int | None, days: int) -> str:
    async with _service() as (settings, database):
        if credit is not None and credit < 0:
            raise ValueError("--credit: must not be below 0")
        until = utc_now() + timedelta(days=days)
        email = email.strip().lower() if email else None
        code = await accounts_of(database, settings).invite(email, credit, until)
    closed = "; it needs SIGN_UP=invite, and sign-up is closed" * (settings.sign_up == "closed")
    return f"{code}\nadmits {email or 'one sign-up'} until {until:%Y-%m-%d %H:%M} UTC{closed}"


@command("deploy")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--check", is_flag=True, help="Only check the file and show the changes.")
@click.option("--dashboard", help="URL of Ray's dashboard. Default: that of the settings.")
def deploy(file: Path, check: bool, dashboard: str | None) -> str:
    asyncio.run(check_secrets(load_settings_of_service()))
    # Imports the registry of engines, and Ray.
    from deployments.rollout.deploy import deploy as roll_out

    return roll_out(file, only_check=check, dashboard=dashboard)


@command("users")
async def users() -> str:
    async with _service() as (settings, database):
        is_alone = serves_only_this_machine(settings.host)
        owner = await accounts_of(database, settings).owner_workspace() if is_alone else None
        rows = await database.read(customers, free_workspace_id=owner)
    lines = [
        f"{row.id}  {row.email}  {row.name}  {row.plan}  {row.credit:.6f} USD  "
        f"{row.created_at:%Y-%m-%d}"
        for row in sorted(rows, key=lambda row: (row.created_at, row.id))
    ]
    return "\n".join(lines) or "there are no users"


@command("delete-user")
@partial(_of_workspace, default="")
@click.option("--yes", is_flag=True, help="Do not ask.")
async def delete_user(email: str | None, workspace: int | None, yes: bool) -> str:
    if email is None and workspace is None:
        raise click.UsageError("--email or --workspace names the user")
    logging.basicConfig(handlers=[logging.NullHandler()])  # the answer says that files are left
    async with _service() as (settings, database):
        row = await _chosen(database, email, workspace)
        if workspace is None and row.id == await accounts_of(database, settings).owner_workspace():
            raise ValueError(
                "this is the first workspace, on which commands act by default, and then on the"
                f" oldest one that is left; to erase it, name it with --workspace {row.id}"
            )
        has_store = await check_store(settings, database)
        name = f"the user of {row.name} ({row.id})"
        if not yes:
            keys = len(await database.read(keys_of, row.id))
            owner = await database.get(User, row.owner_id)
            credit = await database.read(ledger.credit_of, row.id) / MICRO_USD
            click.confirm(
                f"Erase {name}, {owner and owner.email}, with {credit:.6f} USD of credit,"
                f" {keys} key(s), voices, chats and files?",
                abort=True,
            )
        await database.run(erase_rows, row.id, row.owner_id, ACTOR)
        files = Files(settings, database, Encryption(settings.secrets.data_keys))
        are_gone = has_store and await delete_erased(database, files, row.id)
    later = "" if are_gone else "; the running service deletes the files when the store answers"
    return f"{name} is erased; the ledger and the audit log are kept without a name{later}"


@command("set-password")
@_of_workspace
@click.option("--new-email", help="New email of the owner; `first-key` sets none.")
async def set_password(email: str | None, workspace: int | None, new_email: str | None) -> str:
    async with _service() as (settings, database):
        row = await _chosen(database, email, workspace)
        terminal = sys.stdin.isatty()
        password = getpass("New password: ") if terminal else sys.stdin.readline().rstrip("\n")
        if not 8 <= len(password) <= 256:
            raise ValueError("password: must have 8 to 256 characters")
        if new_email is not None:
            checked = validate_email(new_email.strip(), check_deliverability=False)
            new_email = checked.normalized.lower()
        accounts = accounts_of(database, settings)
        user = await accounts.reset_password(row, password, new_email, ACTOR)
    return f"{user.email} can log in to {row.name} ({row.id}); all other sessions have ended"


@command("new-key")
@_of_workspace
async def new_key(email: str | None, workspace: int | None) -> str:
    async with _service() as (settings, database):
        row = await _chosen(database, email, workspace)
        return await accounts_of(database, settings).recover_key(row.id, ACTOR)


@command("first-key")
async def first_key() -> str:
    settings = load_settings()
    with closing(await open_database(settings)) as database:
        key = await accounts_of(database, settings).ensure_first_workspace()
    if key is None:
        raise ValueError("a workspace exists already")
    # Names the database: a wrong ANTIPHON_DATA would make a new one, which no service reads.
    click.echo(f"the first workspace is in {redact(settings.database_url)}", err=True)
    return key


@command("login-link")
async def login_link() -> str:
    async with _service() as (settings, database):
        if not running.find(settings.data_dir):
            if holder := running.name_holder(settings.data_dir):
                raise ValueError(f"{holder} uses {settings.data_dir}: run this command there")
        url = click.get_current_context().find_root().params.get("url")
        accounts = accounts_of(database, settings)
        link = await console_link(settings, accounts, url or os.environ.get("ANTIPHON_URL"))
    if link is None:
        raise ValueError(
            "no link: the service also serves other machines, or has no owner; log in with the"
            f" password that `antiphon {' '.join(SET_PASSWORD)}` sets"
        )
    return link


@command("reconcile")
async def reconcile() -> str:
    async with _service() as (_, database):
        wrong = [str(account) for account in await database.read(ledger.discrepancies)]
        for workspace_id in await database.read(wrong_stored_bytes):
            wrong.append(f"workspace {workspace_id}: the stored bytes are not the sum of its files")
        for workspace_id in await database.read(account_ids):
            wrong += await _wrong_days(database, workspace_id)
    if wrong:
        raise ValueError("\n".join(wrong))
    return "every balance is the sum of its ledger"


async def _wrong_days(database: Database, workspace_id: int) -> list[str]:
    """Compare the sum of each day with its entries; the hourly check relies on these sums."""
    wrong, since = [], date(1970, 1, 1)
    while checked := await database.read(check_days, workspace_id, since):
        wrong += checked.wrong
        since = checked.following
    return [f"workspace {workspace_id}: {day} is not the sum of its entries" for day in wrong]


@command("check-audit")
async def check_audit() -> str:
    broken = []
    async with _service() as (_, database):
        workspaces = await database.read(audited_workspaces)
        for workspace_id in workspaces:
            number = first_break(await database.read(audit_chain, workspace_id))
            if number is not None:
                broken.append(f"workspace {workspace_id}: entry {number} was changed or is missing")
    if broken:
        raise ValueError("\n".join(broken))
    return f"the audit logs of {len(workspaces)} workspace(s) are complete"


@command("check-storage")
async def check_storage() -> str:
    logging.basicConfig(handlers=[logging.NullHandler()])  # the sentence below has the cause
    async with _service() as (settings, database):
        files = Files(settings, database, Encryption(settings.secrets.data_keys))
        problem = await storage_problem(files)
        low = await files.space.low()
    where = redact(settings.storage_url)
    if problem:
        raise ValueError(f"STORAGE_URL: {where} cannot be used: {redact(problem)}")
    if low:
        raise ValueError("; ".join(low))
    return f"files can be written to, read from and deleted in {where}"


@command("backup")
@click.argument("folder", type=click.Path(path_type=Path))
async def backup(folder: Path) -> str:
    settings = load_settings_of_service()
    # Without a migration: the database is copied as it is.
    with closing(Database(settings.database_url)) as database:
        await check_secret_fingerprints(database, settings.secrets, record=False)
        await check_store(settings, database)
    return await asyncio.to_thread(back_up, settings, folder)


@command("restore")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "--without-keys", is_flag=True, help="Do not restore API keys, for example after a leak."
)
def restore(folder: Path, without_keys: bool) -> str:
    settings = load_settings(new_secrets=False)
    return restore_backup(settings, folder, with_keys=not without_keys)


@command("move-database")
async def move_database() -> str:
    settings = load_settings_of_service()
    await check_secrets(settings)
    target = database_url("NEW_DATABASE_URL", "")
    moved = await asyncio.to_thread(move_all_tables, settings.database_url, target)
    return f"{moved}: start the service with DATABASE_URL={redact(target)}"


@command("rotate-keys")
async def rotate_keys() -> str:
    async with _service() as (settings, database):
        await check_store(settings, database)  # of another one, no file would be found
        encryption = Encryption(settings.secrets.data_keys)
        files = Files(settings, database, encryption)
        try:
            counts = await Rotation(database, encryption, files).run()
        except DecryptionError as error:
            raise ValueError(f"stopped: {error}") from None
        # From now on, a start with only the first key is accepted.
        await check_secret_fingerprints(database, settings.secrets, rotated=True)
    return (
        "{chats} chat(s), {webhooks} webhook(s), {dictionaries} dictionar(ies), {speakers} "
        "speaker(s), {events} event(s) and {files} file(s) are now encrypted under the first key; "
        "the others already were"
    ).format(**counts)


@command("accept-secrets")
async def accept_secrets() -> str:
    settings = load_settings_of_service(new_secrets=True)
    (await open_database(settings, accept=True)).close()
    return "the database accepts the secrets and the store of this environment from now on"
