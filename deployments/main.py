"""`make run`: a cluster here, the applications of `serve_config.yaml`, and a first key."""

import argparse
import asyncio
import os
import signal
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import FrameType
from typing import NoReturn

from configs.load import load_yaml
from configs.plans_schema import PlansConfig
from configs.settings import BRAND, PROJECT_DIR, Settings, load_settings
from db.ledger import discrepancies
from db.migrate import upgrade
from db.session import Database
from deployments import cluster
from pipelines.accounts import Accounts

READY_TIMEOUT_S = 180


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m deployments.main", description=__doc__)
    parser.add_argument("--config", type=Path, default=PROJECT_DIR / "serve_config.yaml")
    parser.add_argument("--num-cpus", type=int, help="cores to give to Ray; all by default")
    arguments = parser.parse_args()
    started = time.monotonic()
    cluster.prepare_environment()
    settings = load_settings()
    first_key = asyncio.run(prepare_database(settings))
    say(f"{BRAND} is starting ...")
    try:
        dashboard = cluster.start(arguments.num_cpus)
        # After Ray, which sets a handler of its own. A shell's background jobs ignore SIGINT.
        signal.signal(signal.SIGTERM, _interrupt)
        signal.signal(signal.SIGINT, _interrupt)
        cluster.deploy(dashboard, cluster.read_config(arguments.config))
        wait_until_ready(settings)
        announce(settings, dashboard, time.monotonic() - started)
        tell(first_key)
        first_key = None
        while True:
            time.sleep(3600)
    except KeyboardInterrupt:
        say("Stopping ...")
    except (ValueError, RuntimeError, TimeoutError) as error:
        say(str(error))
        sys.exit(1)
    finally:
        tell(first_key)  # also when the start failed: the key is never shown again
        stop()


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


async def prepare_database(settings: Settings) -> str | None:
    """Migrates, and on the first start makes a workspace; returns its key that one time."""
    upgrade(settings.database_url)
    database = Database(settings.database_url)
    try:
        plans = load_yaml(PlansConfig, "plans")
        accounts = Accounts(database, settings.secrets, plans)
        for account in await database.read(discrepancies):
            say(f"The ledger does not agree with an account: {account}")
        return await accounts.ensure_first_workspace()
    finally:
        database.close()


def wait_until_ready(settings: Settings) -> None:
    """Polls /readyz. Raises RuntimeError when a model cannot start, or TimeoutError."""
    deadline = time.monotonic() + READY_TIMEOUT_S
    next_look = time.monotonic() + 5
    while time.monotonic() < deadline:
        if answers(f"{local_url(settings)}/readyz"):
            return
        if time.monotonic() > next_look:
            next_look = time.monotonic() + 5
            if failed := cluster.failures():
                raise RuntimeError("\n".join(failed))
        time.sleep(0.1)
    raise TimeoutError(f"not ready after {READY_TIMEOUT_S} s; the Ray dashboard's logs say more")


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return bool(response.status == 200)
    except (OSError, urllib.error.URLError):
        return False


def local_url(settings: Settings) -> str:
    """The address as seen from this machine."""
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(settings.host, settings.host)
    return f"http://{host}:{settings.port}"


def announce(settings: Settings, dashboard: str, seconds: float) -> None:
    url = local_url(settings)
    say(f"{BRAND} is ready after {seconds:.1f} s")
    say(f"  Service    {url}")
    say(f"  Console    {url}/console")
    say(f"  Reference  {url}/docs")
    say(f"  Dashboard  {dashboard}")


def tell(first_key: str | None) -> None:
    """Shows the key, if there is one that was not shown yet."""
    if first_key is not None:
        say(f"  API key    {first_key}")
        say("             Shown this once; keep it. More keys: POST /developer/api.")


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def stop() -> None:
    """Drains the gateway and ends the cluster; a second interrupt does not cut it short."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    import ray
    from ray import serve

    if ray.is_initialized():
        serve.shutdown()
        ray.shutdown()


def run() -> NoReturn:
    """`main` without the end of the interpreter, where Ray's libraries take 2 s to clear up."""
    code: int | str | None = 0
    try:
        main()
    except SystemExit as end:
        code = end.code
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else bool(code))


if __name__ == "__main__":
    run()
