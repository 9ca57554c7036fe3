"""Processes that would work on stores of their own do not start, other differences are told."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

import deployments.cluster.release as release_module
from configs.environment import SettingsError
from configs.settings import Settings, load_settings
from db.database import make_engine
from db.migrate import upgrade
from deployments.cluster.compat import RAY_SWITCHES
from deployments.cluster.release import differences, missing_switches, release
from deployments.cluster.shared_stores import open_database
from telemetry.reports import Report

Configured = Callable[..., Settings]


@pytest.fixture
def configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Configured:
    """The settings of one data folder, with some variables."""

    def load(**variables: str) -> Settings:
        monkeypatch.setenv("ANTIPHON_DATA", str(tmp_path))
        for name in ("DATABASE_URL", "STORAGE_URL", "STORAGE_SHARED"):
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        return load_settings()

    return load


async def test_another_store_is_refused_until_an_operator_accepts_it(
    configured: Configured, tmp_path: Path
) -> None:
    settings = configured()
    (await open_database(settings)).close()
    (await open_database(settings)).close()
    other = configured(STORAGE_URL=str(tmp_path / "others"))
    with pytest.raises(SettingsError, match="^STORAGE_URL: not what this database was used with"):
        await open_database(other)
    (await open_database(settings)).close()
    (await open_database(other, accept=True)).close()
    (await open_database(other)).close()
    with pytest.raises(SettingsError, match="^STORAGE_URL"):
        await open_database(settings)


async def test_processes_that_start_at_once_mark_the_store_alike(
    configured: Configured, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = configured()
    upgrade(settings.database_url)
    # One thread at a time.
    monkeypatch.setattr("deployments.cluster.shared_stores.upgrade", lambda _: None)
    for database in await asyncio.gather(*(open_database(settings) for _ in range(6))):
        database.close()
    (await open_database(settings)).close()


async def test_a_later_process_does_not_wait_for_who_writes(configured: Configured) -> None:
    settings = configured()
    (await open_database(settings)).close()
    engine = make_engine(settings.database_url)
    with engine.begin() as connection:  # of SQLite, which has one writer at a time
        connection.execute(text("SELECT 1"))
        (await open_database(settings)).close()
    engine.dispose()


async def test_a_store_that_is_down_does_not_stop_the_start(
    configured: Configured, tmp_path: Path
) -> None:
    (await open_database(configured())).close()
    (tmp_path / "file").touch()
    (await open_database(configured(STORAGE_URL=f"{tmp_path / 'file'}/below"))).close()


def report(deployment: str, release: str = "r1", **fields: Any) -> Report:
    return Report(deployment, deployment, 1, {}, node="10.0.0.1", release=release, **fields)


def test_processes_that_differ_from_most_are_named_with_their_machine() -> None:
    usual = [report("Gateway"), report("STT"), report("Chat")]
    assert differences([]) == differences(usual) == {}
    (told,) = differences([*usual, report("Worker", "r2")]).items()
    assert told[0] == "Worker on 10.0.0.1" and "r2, not r1" in told[1]
    (told,) = differences([*usual, report("Worker", missing=("RAY_AUTH_MODE",))]).items()
    assert told[1] == "its node was started without RAY_AUTH_MODE"


def test_what_operators_deploy_is_no_other_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release_module, "PROJECT_DIR", tmp_path)
    for kind in ("embedding", "llm", "stt", "tts"):
        (tmp_path / "configs" / kind).mkdir(parents=True)
    (tmp_path / "configs" / "serve_config.yaml").symlink_to("../serve_config.yaml")
    deployed = [f"configs/{kind}/mine.yaml" for kind in ("embedding", "llm", "stt", "tts")]
    files = "configs/plans.yaml", "configs/load.py", "serve_config.yaml", *deployed
    seen = []
    for changed in (None, *files):
        for name in files:
            (tmp_path / name).write_text("changed" if name == changed else "as before")
        seen.append(release.__wrapped__())
    usual, plans, load, *others = seen
    assert set(others) == {usual} and len({usual, plans, load}) == 3


def test_a_process_knows_its_release_and_the_switches_of_its_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert len(release()) == 12
    for name, value in RAY_SWITCHES.items():
        monkeypatch.setenv(name, value)
    assert missing_switches() == ()
    monkeypatch.delenv("RAY_SERVE_REPLICA_GRPC_MAX_MESSAGE_LENGTH")
    assert missing_switches() == ("RAY_SERVE_REPLICA_GRPC_MAX_MESSAGE_LENGTH",)
