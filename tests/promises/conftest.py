"""The service of `serve_config.yaml` with engines that need no weights, as a process of its own."""

import re
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from sqlalchemy import Engine

from benchmarks.harness.service import Service, running_service
from configs.environment import sqlite_url
from configs.settings import PROJECT_DIR, weights_dir
from db.database import make_engine
from tests import servers
from tests.engines import ECHO, SCRIPTED, TONE
from tests.pipelines.webhooks.receivers import Authority
from tests.processes import command_of, find
from tests.servers import Server, free_port

ON_SERVERS = pytest.mark.parametrize("running", ["servers"], indirect=True, scope="session")

OPEN_TO_ALL = 0o1777  # as /tmp
START_S = 30.0  # on two cores that have nothing else to do

WITHOUT_WEIGHTS = {"TTSFast": TONE, "STT": SCRIPTED, "Chat": ECHO}


@dataclass
class Running:
    """A service, a view of its database, and the stores behind it if they are servers."""

    service: Service
    engine: Engine
    authority: Authority  # whose certificates its webhooks trust
    slowness: float  # of this machine now: how many times as long as usual the start took
    since: float  # time.time() before it was started
    temporary: Path  # the folder for temporary files of its machine, which all users can enter
    dashboard: int  # the port of Ray's dashboard
    postgres: Server | None = None
    redis: Server | None = None

    @property
    def logs(self) -> Path:
        """The folder in which the processes of its cluster log."""
        (raylet, *_) = find(self.service.pid, "/raylet ")
        found = re.search(r"/\S+/session_[^/\s]+", command_of(raylet))
        assert found is not None, command_of(raylet)
        return Path(found[0]) / "logs"


def config_without_weights(checkout: Path = PROJECT_DIR) -> dict[str, Any]:
    """The configuration that an operator deploys, except for the models."""
    config: dict[str, Any] = yaml.safe_load((checkout / "serve_config.yaml").read_text())
    without_weights = WITHOUT_WEIGHTS
    if not (checkout / "tests" / "engines").is_dir():  # an older release, which had them in configs
        without_weights = {"TTSFast": "tts/tone", "STT": "stt/scripted", "Chat": "llm/echo"}
    models = next(app for app in config["applications"] if app["name"] == "models")
    models["args"] = {"tts": ["TTSFast"], "stt": ["STT"], "chat": ["Chat"]}
    models["deployments"] = [
        entry
        for entry in models["deployments"]
        if entry["name"] in {"ModelIndex", *WITHOUT_WEIGHTS}
    ]
    for entry in models["deployments"]:
        if entry["name"] in WITHOUT_WEIGHTS:
            entry["user_config"] = {"model": without_weights[entry["name"]]}
    return config


@pytest.fixture(scope="session")
def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    """As a newcomer starts it, with SQLite and limits counted in the cluster, or with PostgreSQL
    and Redis.

    One for all modules, as its start takes half a minute. `test_stop` comes last and ends it.
    """
    folder, since = tmp_path_factory.mktemp("promises"), time.time()
    file = folder / "serve.yaml"
    file.write_text(yaml.safe_dump(config_without_weights()))
    command = [sys.executable, "-m", "deployments.main", "--config", str(file), "--num-cpus", "2"]
    with ExitStack() as stack:
        # The paths of Ray's sockets have 107 bytes at most.
        machine = tempfile.TemporaryDirectory(prefix="t-", dir="/tmp")
        temporary = Path(stack.enter_context(machine))
        temporary.chmod(OPEN_TO_ALL)
        (home := temporary / "home").mkdir()
        authority = Authority.make(folder)
        dashboard = free_port()
        variables = {
            "WEBHOOK_TIME_SCALE": "0.01",
            "WEBHOOK_NETWORKS": "127.0.0.0/8",
            "WEBHOOK_CA_FILE": authority.ca_file,
            "TRUSTED_PROXIES": "127.0.0.1",
            "TMPDIR": str(temporary),
            "HOME": str(home),
            "ANTIPHON_WEIGHTS": str(weights_dir()),
            "RAY_DASHBOARD_PORT": str(dashboard),
            "DASHBOARD_METRIC_PORT": str(free_port()),  # other clusters may have Ray's default
        }
        postgres = redis = None
        if request.param == "servers":
            postgres = stack.enter_context(servers.postgres())
            redis = stack.enter_context(servers.redis())
            variables |= {"DATABASE_URL": postgres.url, "REDIS_URL": redis.url}
        with pytest.MonkeyPatch.context() as environment:
            for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_TMPDIR"):  # of tests' clusters
                environment.delenv(name, raising=False)
            service = stack.enter_context(running_service(command, variables))
        url = variables.get("DATABASE_URL") or sqlite_url(service.data / "antiphon.db")
        slowness = max(1.0, (time.monotonic() - service.started) / START_S)
        engine = make_engine(url)
        stack.callback(engine.dispose)
        yield Running(
            service, engine, authority, slowness, since, temporary, dashboard, postgres, redis
        )
