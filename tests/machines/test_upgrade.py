"""An upgrade under load: the new release starts beside the old one, on the same database."""

import asyncio
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from configs.settings import PROJECT_DIR
from tests.machines.conftest import Plan, Site
from tests.promises.conftest import config_without_weights

pytestmark = [
    pytest.mark.parametrize("site", [Plan(machines=2)], indirect=True),
    pytest.mark.timeout(600),
]


def git(*arguments: str) -> str:
    command = ["git", "-C", str(PROJECT_DIR), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def last_release() -> str:
    """The last tag; without one, the commit before the newest migration, so that the tables change
    in between. UPGRADE_FROM names another."""
    if named := os.environ.get("UPGRADE_FROM"):
        return named
    try:
        if tag := git("tag", "--merged", "HEAD^", "--sort=-creatordate").partition("\n")[0]:
            return tag
        newest = git("log", "-1", "--format=%H", "--diff-filter=A", "--", "db/migrations/versions")
        return git("rev-parse", f"{newest}^")
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no history of releases here: {error.stderr}")


@pytest.fixture
def old(site: Site) -> Iterator[Path]:
    """The checkout of the last release."""
    folder = site.config.parent / "old"
    git("worktree", "add", "--detach", str(folder), last_release())
    (folder / ".venv").unlink(missing_ok=True)
    (folder / ".venv").mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
        git("worktree", "prune")


async def test_an_upgrade_fails_no_request(site: Site, old: Path) -> None:
    first, second = site.machines
    new_config = site.config.read_text()
    site.config.write_text(yaml.safe_dump(config_without_weights(old)))
    binds = {old / ".venv": PROJECT_DIR / ".venv", PROJECT_DIR: old}
    await asyncio.to_thread(site.start, instead=binds)
    service = first.processes[0]
    site.config.write_text(new_config)
    async with site.load([first.url, first.url]) as tenants:
        await asyncio.sleep(3)
        await asyncio.to_thread(site.start, 1)  # migrates
        await asyncio.sleep(3)
        for tenant in tenants:  # as the balancer does
            tenant.move(second.url)
        await asyncio.sleep(1)
        service.terminate()
        await asyncio.to_thread(service.wait, 90)
        await asyncio.sleep(3)
        for tenant in tenants:
            assert not tenant.state.doubtful and max(tenant.state.statuses) < 500, tenant.state
