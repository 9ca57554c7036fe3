"""The operator's commands, called with the arguments of the command line."""

import asyncio
import io
import re
import shutil
from base64 import b64encode
from contextlib import closing
from pathlib import Path
from urllib.parse import quote
from uuid import uuid4

import pytest
from sqlalchemy import make_url, text

from configs.environment import SettingsError, sqlite_url
from configs.load import load_yaml
from configs.schema.platform import PlansConfig
from configs.settings import Settings, load_settings
from db.audit import AuditEntry, audit_chain
from db.database import Database, make_engine
from db.errors import DatabaseUnavailable
from deployments.cli.administration import operator
from deployments.cli.doctor import check_database, outcome
from deployments.main import prepare_database
from pipelines.accounts.authentication import Authenticator
from pipelines.accounts.service import Accounts
from pipelines.errors import Unauthorized
from pipelines.maintenance.key_rotation import Rotation
from pipelines.storage.encryption import Encryption
from pipelines.storage.files import Files
from tests.deployments.cli.operated import main
from tests.migrated import connected, migrate
from tests.servers import PASSWORD

RELEASE = "UPDATE alembic_version SET version_num"


@pytest.fixture(scope="module")
def started_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data folder of a service that was started once, with a second user."""
    folder = tmp_path_factory.mktemp("started")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANTIPHON_DATA", str(folder))
        settings = load_settings()
    migrate(settings.database_url)
    asyncio.run(prepare_database(settings))
    asyncio.run(sign_up(settings, "ann@example.com", "Ann"))
    return folder


async def sign_up(settings: Settings, email: str, name: str, invite: str = "") -> None:
    database = Database(settings.database_url)
    plans = load_yaml(PlansConfig, "plans")
    accounts = Accounts(database, settings.secrets, plans, settings.sign_up)
    await accounts.sign_up(email, "a long password", name, "", invite=invite)
    database.close()


@pytest.fixture(autouse=True)
def data_folder(started_once: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of that folder for each test."""
    shutil.copytree(started_once, tmp_path, dirs_exist_ok=True)
    monkeypatch.setenv("ANTIPHON_DATA", str(tmp_path))
    monkeypatch.delenv("DATABASE_URL", raising=False)


def output_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    main(list(arguments))
    return capsys.readouterr().out


def execute(statement: str) -> None:
    """Changes the database directly, without the service."""
    engine = make_engine(load_settings().database_url)
    with engine.begin() as connection:
        connection.execute(text(statement))
    engine.dispose()


def test_credit_goes_to_the_first_or_the_given_workspace(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert "Owner" in output_of(capsys, "credit", "0")
    assert "has 30.500000 USD" in output_of(capsys, "credit", "25.5")
    assert "Ann" in (output := output_of(capsys, "credit", "-1", "--email", "Ann@Example.com"))
    assert "has 4.000000 USD" in output


def test_a_command_without_a_database_fails_and_creates_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    monkeypatch.setenv("ANTIPHON_DATA", str(elsewhere))
    with pytest.raises(SystemExit, match="ANTIPHON_DATA: there is no database in"):
        main(["plan", "pro"])
    assert not elsewhere.exists()


def test_the_first_key_is_shown_only_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="a workspace exists already"):
        main(["first-key"])
    monkeypatch.setenv("ANTIPHON_DATA", str(tmp_path / "empty"))
    migrate(load_settings().database_url)  # as a gateway under KubeRay does
    assert len(output_of(capsys, "first-key").split()) == 1
    assert "Owner" in output_of(capsys, "credit", "0")


def test_the_first_key_is_also_made_before_the_service_was_ever_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ANTIPHON_DATA", str(tmp_path / "new"))
    main(["first-key"])
    printed = capsys.readouterr()
    assert len(printed.out.split()) == 1
    assert sqlite_url(tmp_path / "new" / "antiphon.db") in printed.err
    assert asyncio.run(prepare_database(load_settings())) is None  # the service finds it
    assert "Owner" in output_of(capsys, "credit", "0")


def test_users_are_listed_with_their_credit(capsys: pytest.CaptureFixture[str]) -> None:
    first, second = output_of(capsys, "users").splitlines()
    assert "owner@localhost" in first and "  owner  5.000000 USD" in first
    assert "ann@example.com" in second and "free" in second


def test_a_user_is_erased_with_keys_sessions_and_files(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    key = output_of(capsys, "new-key", "--email", "ann@example.com").strip()
    workspace_id = int(output_of(capsys, "users").splitlines()[1].split()[0])
    path = asyncio.run(stored_file(workspace_id))
    assert path.exists()
    for arguments, problem in (
        ([], "--email or --workspace names the user"),
        (["--email", "ann@example.com"], "Aborted"),  # no answer to the question
        (["--email", "bob@example.com", "--yes"], "there is no such workspace"),
    ):
        monkeypatch.setattr("sys.stdin", io.StringIO(""))
        with pytest.raises(SystemExit) as ended:
            main(["delete-user", *arguments])
        assert problem in f"{ended.value} {capsys.readouterr().err}"
    assert "Ann" in output_of(capsys, "users")
    said = output_of(capsys, "delete-user", "--email", "Ann@example.com", "--yes")
    assert f"({workspace_id}) is erased" in said
    assert "Ann" not in output_of(capsys, "users")
    assert not path.exists()
    with pytest.raises(Unauthorized):
        asyncio.run(logged_in("ann@example.com", "a long password"))
    with pytest.raises(Unauthorized):
        asyncio.run(authenticated(key))
    last = asyncio.run(audit_entries(workspace_id))[-1]
    assert (last.action, last.actor) == ("account.erased", "operator")
    assert "2 workspace(s) are complete" in output_of(capsys, "check-audit")
    assert "every balance is" in output_of(capsys, "reconcile")
    asyncio.run(sign_up(load_settings(), "ann@example.com", "Ann"))  # the address is free again


@pytest.mark.parametrize("command", ["delete-user", "backup", "rotate-keys"])
def test_a_command_with_another_store_of_files_changes_nothing(
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    workspace_id = int(output_of(capsys, "users").splitlines()[1].split()[0])
    path = asyncio.run(stored_file(workspace_id))
    monkeypatch.setenv("STORAGE_URL", f"file://{tmp_path / 'other'}")
    with pytest.raises(SystemExit, match="^STORAGE_URL: not what this database"):
        main([command, *every_command(tmp_path)[command]])
    assert path.exists() and not (tmp_path / "copy").exists()
    assert "Ann" in output_of(capsys, "users")


def test_an_erasure_while_the_store_is_down_says_that_files_follow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    workspace_id = int(output_of(capsys, "users").splitlines()[1].split()[0])
    path = asyncio.run(stored_file(workspace_id))
    (tmp_path / "files").rename(tmp_path / "away")
    (tmp_path / "files").touch()  # no file can be read or deleted
    main(["delete-user", "--email", "ann@example.com", "--yes"])
    said = capsys.readouterr()
    assert said.out.endswith("the running service deletes the files when the store answers\n")
    assert "Traceback" not in said.err
    (tmp_path / "files").unlink()
    (tmp_path / "away").rename(tmp_path / "files")
    assert path.exists()
    asyncio.run(delete_expired())
    assert not path.exists()


def test_the_question_of_an_erasure_names_what_is_lost(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("no\n"))
    with pytest.raises(SystemExit):
        main(["delete-user", "--email", "ann@example.com"])
    assert "ann@example.com, with 5.000000 USD of credit, 0 key(s)" in capsys.readouterr().out
    assert "Default: the first" not in output_of(capsys, "delete-user", "--help")
    assert "Default: the first" in output_of(capsys, "credit", "--help")


def test_the_first_workspace_is_erased_only_by_its_id(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="this is the first workspace") as refused:
        main(["delete-user", "--email", "owner@localhost", "--yes"])
    assert "owner@localhost" in output_of(capsys, "users")
    main(["delete-user", "--workspace", str(refused.value).split()[-1], "--yes"])
    assert "owner@localhost" not in output_of(capsys, "users")


async def delete_expired() -> None:
    settings = load_settings()
    with closing(Database(settings.database_url)) as database:
        await Files(settings, database, Encryption(settings.secrets.data_keys)).delete_expired()


async def stored_file(workspace_id: int) -> Path:
    settings = load_settings()
    with closing(Database(settings.database_url)) as database:
        files = Files(settings, database, Encryption(settings.secrets.data_keys))
        await files.put(workspace_id, "audio", "audio/wav", b"x", None)
    folder = settings.data_dir / "files" / str(workspace_id)
    [path] = [path for path in folder.rglob("*") if path.is_file()]
    return path


async def audit_entries(workspace_id: int) -> list[AuditEntry]:
    with closing(Database(load_settings().database_url)) as database:
        return await database.read(audit_chain, workspace_id)


async def authenticated(key: str) -> None:
    settings = load_settings()
    with closing(Database(settings.database_url)) as database:
        await Authenticator(database, settings.secrets).authenticate(key)


def test_the_owner_of_the_first_workspace_gets_a_login(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def typed(password: str, *arguments: str) -> str:
        monkeypatch.setattr("sys.stdin", io.StringIO(f"{password}\n"))
        return output_of(capsys, "set-password", *arguments)

    assert "me@example.com can log in" in typed("a better one", "--new-email", "Me@Example.com")
    assert "ann@example.com can log in" in typed("a better two", "--email", "ann@example.com")
    for email, password in (
        ("me@example.com", "a better one"),
        ("ann@example.com", "a better two"),
    ):
        asyncio.run(logged_in(email, password))
    with pytest.raises(Unauthorized):
        asyncio.run(logged_in("ann@example.com", "a long password"))
    for wrong, message in (("short", "8 to 256"), ("12345678", "too easy to guess")):
        with pytest.raises(SystemExit, match=message):
            typed(wrong)
    with pytest.raises(SystemExit, match="an account with this address exists"):
        typed("a better one", "--new-email", "ann@example.com")
    with pytest.raises(SystemExit, match="@"):
        typed("a better one", "--new-email", "nowhere")


async def logged_in(email: str, password: str) -> None:
    settings = load_settings()
    database = Database(settings.database_url)
    try:
        accounts = Accounts(database, settings.secrets, load_yaml(PlansConfig, "plans"))
        assert (await accounts.log_in(email, password)).token
    finally:
        database.close()


def test_a_workspace_whose_keys_are_lost_gets_a_new_one(capsys: pytest.CaptureFixture[str]) -> None:
    key = output_of(capsys, "new-key", "--email", "ann@example.com").strip()

    async def name_of() -> str:
        settings = load_settings()
        database = Database(settings.database_url)
        try:
            return (await Authenticator(database, settings.secrets).authenticate(key)).workspace
        finally:
            database.close()

    assert asyncio.run(name_of()) == "Ann"


def test_a_payment_reference_is_credited_once(capsys: pytest.CaptureFixture[str]) -> None:
    output_of(capsys, "credit", "1", "--reference", "invoice-7")
    with pytest.raises(SystemExit, match="keeps 6.000000 USD: .*'invoice-7' was booked before"):
        main(["credit", "1", "--reference", "invoice-7"])


@pytest.mark.parametrize(
    ("change", "arguments", "message"),
    [
        ("", "credit -5.000001", "keeps 5.000000 USD: .* less than the 5.000001 USD"),
        ("DELETE FROM account", "credit 1", "no account to credit"),
        (f"{RELEASE} = '9999'", "reconcile", "of a newer one: .*9999"),
        (f"{RELEASE} = '0012'", "reconcile", "start version 0.9.0 once"),
    ],
)
def test_a_command_that_the_database_does_not_allow_is_refused(
    change: str, arguments: str, message: str
) -> None:
    if change:
        execute(change)
    with pytest.raises(SystemExit, match=message):
        main(arguments.split())
    if change.startswith(RELEASE):  # as a start would say
        state, line = asyncio.run(outcome(lambda: check_database(load_settings())))
        assert state == "FIX" and re.search(message, line)


@pytest.mark.parametrize("amount", ["0.0000001", "NaN", "much", "1e300"])
def test_an_invalid_amount_of_credit_is_refused(amount: str) -> None:
    with pytest.raises(SystemExit):
        main(["credit", amount])


def test_the_plan_command_sets_the_plan_of_a_workspace(capsys: pytest.CaptureFixture[str]) -> None:
    output = output_of(capsys, "plan", "enterprise", "--cycle", "annual")
    assert "is on Enterprise, with the annual cycle; the next cycle begins at " in output
    with pytest.raises(SystemExit, match="is not a plan; `antiphon plans` lists them"):
        main(["plan", "gold"])
    with pytest.raises(SystemExit, match="no such workspace"):
        main(["plan", "pro", "--workspace", "1"])


def test_the_invite_command_makes_a_code_for_one_sign_up(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, about = output_of(
        capsys, "invite", "--email", "Bob@Example.com", "--credit", "12.5", "--days", "1"
    ).splitlines()
    assert about.startswith("admits bob@example.com until ") and "closed" not in about
    monkeypatch.setenv("SIGN_UP", "closed")
    assert "it needs SIGN_UP=invite" in output_of(capsys, "invite")
    monkeypatch.setenv("SIGN_UP", "invite")
    asyncio.run(sign_up(load_settings(), "bob@example.com", "Bob", code))
    output = output_of(capsys, "credit", "0", "--email", "bob@example.com")
    assert "has 12.500000 USD" in output


def test_the_login_link_command_needs_a_service_alone_on_its_machine(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    link = output_of(capsys, "login-link")
    assert link.startswith("http://127.0.0.1:8000/console#login=login_")
    assert output_of(capsys, "login-link") != link
    monkeypatch.setenv("ANTIPHON_URL", "http://127.0.0.1:8123/")
    link = output_of(capsys, "login-link")
    assert link.startswith("http://127.0.0.1:8123/console#login=login_")
    monkeypatch.setenv("PUBLIC_URL", "https://speech.example")
    remedy = "`antiphon set-password --new-email you@example.com`"
    with pytest.raises(SystemExit, match=f"serves other machines.*{remedy}"):
        main(["login-link"])


@pytest.mark.parametrize("arguments", [("--days", "0"), ("--days", "366"), ("--credit", "-1")])
def test_an_impossible_invite_is_refused(arguments: tuple[str, str]) -> None:
    with pytest.raises(SystemExit):
        main(["invite", *arguments])


def test_reconcile_finds_balances_and_daily_sums_that_were_changed_by_hand(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert "every balance" in output_of(capsys, "reconcile")
    execute("UPDATE account SET balance = 9000000")
    execute("UPDATE ledger_day SET held = 1, units = 7")
    execute("INSERT INTO stored_bytes (workspace_id, bytes) VALUES (7, 1)")
    with pytest.raises(SystemExit) as ended:
        main(["reconcile"])
    lines = str(ended.value).splitlines()
    assert sum("entries=5000000" in line for line in lines) == 2
    assert sum("is not the sum of its entries" in line for line in lines) == 2
    assert "workspace 7: the stored bytes are not the sum of its files" in lines


def test_check_audit_finds_a_changed_entry(capsys: pytest.CaptureFixture[str]) -> None:
    assert "of 2 workspace(s) are complete" in output_of(capsys, "check-audit")
    execute("DROP TRIGGER audit_entry_update")
    execute("UPDATE audit_entry SET action = 'nothing' WHERE number = 2")
    with pytest.raises(SystemExit, match="entry 2 was changed"):
        main(["check-audit"])


def test_check_storage_writes_a_file_and_reports_an_unusable_store(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "files can be written to" in output_of(capsys, "check-storage")
    left = [path.name for path in (tmp_path / "files").rglob("*") if path.is_file()]
    assert left == [".store"]  # the mark
    (tmp_path / "file").touch()
    monkeypatch.setenv("STORAGE_URL", f"{tmp_path / 'file'}")
    with pytest.raises(
        SystemExit, match="^STORAGE_URL: file://.*/file cannot be used: [A-Z].*Error"
    ):
        main(["check-storage"])
    assert capsys.readouterr().err == ""


def test_rotate_keys_reports_the_re_encrypted_items(capsys: pytest.CaptureFixture[str]) -> None:
    said = output_of(capsys, "rotate-keys")
    assert "0 webhook(s), 0 dictionar(ies), 0 speaker(s), 0 event(s)" in said


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("STORAGE_URL", "gs://bucket"),  # gcsfs is not installed
        ("TRUSTED_PROXIES", "proxy"),
        ("DATABASE_URL", "mysql://host/database"),
        ("DATABASE_URL", "postgresql://user:canary@127.0.0.1:1/database"),  # refused
        ("DATABASE_URL", "sqlite:////nowhere/antiphon.db"),
    ],
)
def test_an_invalid_setting_ends_a_command_with_a_one_line_error(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit, match=f"^{name}") as ended:
        main(["rotate-keys"])
    assert "\n" not in str(ended.value) and "canary" not in str(ended.value)


def test_accept_secrets_allows_a_start_with_changed_secrets(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTIPHON_KEY_PEPPER", "another pepper, of 32 bytes or more")
    with pytest.raises(SettingsError, match="^ANTIPHON_KEY_PEPPER"):
        asyncio.run(prepare_database(load_settings()))
    assert "from now on" in output_of(capsys, "accept-secrets")
    asyncio.run(prepare_database(load_settings()))


@pytest.mark.parametrize("arguments", [[], ["unknown"], ["credit"], ["credit", "much"]])
def test_a_usage_error_exits_with_status_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2


def every_command(folder: Path) -> dict[str, list[str]]:
    """The arguments of each command, which run as they are, but for `accept-secrets`."""
    given = {
        "credit": ["1"],
        "plan": ["pro"],
        "delete-user": ["--email", "ann@example.com", "--yes"],
        "deploy": ["serve_config.yaml", "--check"],
        "backup": [str(folder / "copy")],
        "restore": [str(folder / "backup")],
    }
    return {name: given.get(name, []) for name in operator.commands if name != "accept-secrets"}


COMMANDS = sorted(every_command(Path()))


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("are_lost", "message"),
    [
        (False, "^ANTIPHON_KEY_PEPPER: not what this database"),
        (True, "^ANTIPHON_DATA_KEYS, .*: neither set nor in"),
    ],
)
def test_a_command_without_the_secrets_of_the_database_changes_nothing(
    are_lost: bool,
    message: str,
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    output_of(capsys, "backup", str(tmp_path / "backup"))
    if are_lost:
        (tmp_path / "secrets.json").unlink()
    else:
        monkeypatch.setenv("ANTIPHON_KEY_PEPPER", "another pepper, of 32 bytes or more")
    monkeypatch.setenv("NEW_DATABASE_URL", sqlite_url(tmp_path / "new.db"))
    if command == "restore":
        monkeypatch.setenv("DATABASE_URL", sqlite_url(tmp_path / "restored.db"))
    before = content_of(tmp_path)
    with pytest.raises(SystemExit, match=message) as ended:
        main([command, *every_command(tmp_path)[command]])
    assert "\n" not in str(ended.value) and capsys.readouterr().out == ""
    assert content_of(tmp_path) == before


def content_of(folder: Path) -> dict[str, bytes]:
    """The files below a folder, but for SQLite's lock and log."""
    return {
        str(path): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.suffix not in (".db-wal", ".db-shm", ".lock")
    }


def test_a_service_does_not_start_with_new_secrets_beside_its_old_database(tmp_path: Path) -> None:
    (tmp_path / "secrets.json").unlink()
    with pytest.raises(SettingsError, match="run `antiphon accept-secrets`"):
        load_settings()
    assert not (tmp_path / "secrets.json").exists()
    main(["accept-secrets"])
    asyncio.run(prepare_database(load_settings()))


def test_the_doctor_tells_secrets_that_are_not_those_of_the_database(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state, found = asyncio.run(outcome(lambda: check_database(load_settings())))
    assert state == "ok" and found.startswith("sqlite")
    monkeypatch.setenv("ANTIPHON_KEY_PEPPER", "another pepper, of 32 bytes or more")
    state, found = asyncio.run(outcome(lambda: check_database(load_settings())))
    assert state == "FIX" and found.startswith("ANTIPHON_KEY_PEPPER: not what this database")


def test_rotation_while_the_service_is_down_needs_no_other_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (old,) = load_settings().secrets.data_keys
    new = b64encode(b"n" * 32).decode()
    monkeypatch.setenv("ANTIPHON_DATA_KEYS", f"{new},{old}")
    for command in ("users", "check-storage", "reconcile"):  # record nothing
        main([command])
    monkeypatch.setenv("ANTIPHON_DATA_KEYS", new)
    with pytest.raises(SettingsError, match="^ANTIPHON_DATA_KEYS: not what this database"):
        asyncio.run(prepare_database(load_settings()))
    monkeypatch.setenv("ANTIPHON_DATA_KEYS", f"{new},{old}")
    main(["rotate-keys"])
    monkeypatch.setenv("ANTIPHON_DATA_KEYS", new)
    asyncio.run(prepare_database(load_settings()))


def test_a_rotation_that_fails_does_not_admit_the_new_key_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (old,) = load_settings().secrets.data_keys
    new = b64encode(b"n" * 32).decode()

    async def fails(_: Rotation) -> None:
        raise DatabaseUnavailable("the database does not answer")

    monkeypatch.setattr(Rotation, "run", fails)
    monkeypatch.setenv("ANTIPHON_DATA_KEYS", f"{new},{old}")
    with pytest.raises(SystemExit):
        main(["rotate-keys"])
    monkeypatch.setenv("ANTIPHON_DATA_KEYS", new)
    with pytest.raises(SettingsError, match="^ANTIPHON_DATA_KEYS: not what this database"):
        asyncio.run(prepare_database(load_settings()))


@pytest.mark.postgres
def test_key_rotation_works_with_a_password_protected_server(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    database = f"operated_{uuid4().hex}"
    with connected(make_url(postgres_url)) as connection:
        connection.execute(f"CREATE DATABASE {database}")
    url = make_url(postgres_url).set(database=database).render_as_string(hide_password=False)
    monkeypatch.setenv("NEW_DATABASE_URL", url)
    output = output_of(capsys, "move-database")
    assert "start the service with DATABASE_URL=" in output and quote(PASSWORD) not in output
    monkeypatch.setenv("DATABASE_URL", url)
    assert output_of(capsys, "new-key").startswith("sk_")
    assert "are now encrypted under the first key" in output_of(capsys, "rotate-keys")
    assert "every balance" in output_of(capsys, "reconcile")
    monkeypatch.setenv("ANTIPHON_KEY_PEPPER", "another pepper, of 32 bytes or more")
    for command in ("new-key", "rotate-keys"):
        with pytest.raises(SystemExit, match="^ANTIPHON_KEY_PEPPER: not what this database"):
            main([command])
