"""Signals while a service starts: it ends well, leaves nothing behind, and can be started again."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from configs.settings import PROJECT_DIR
from deployments.main import GATEWAYS_STOP_S
from tests.deployments.rollout.test_deploy import entry
from tests.deployments.test_stop_phases import SERVE_S
from tests.engines import ECHO
from tests.patience import PATIENCE_S
from tests.processes import children, command_of
from tests.promises.conftest import config_without_weights
from tests.servers import free_port

pytestmark = pytest.mark.timeout(900)

LOAD_S = 60.0  # of the chat model, which is loaded after the first voice
ONCE, TWICE = (signal.SIGTERM,), (signal.SIGTERM, signal.SIGTERM, signal.SIGINT)


@dataclass
class Start:
    """A service that starts, with its descendants so far."""

    process: subprocess.Popen[str]
    output: Path

    def has_printed(self, text: str) -> bool:
        return text in self.output.read_text()

    def runs(self, title: str) -> bool:
        return any(title in command_of(pid) for pid in children(self.process.pid))

    def until(self, condition: Callable[["Start"], bool]) -> None:
        deadline = time.monotonic() + 3 * PATIENCE_S
        while not condition(self):
            assert self.process.poll() is None, self.output.read_text()
            assert time.monotonic() < deadline, self.output.read_text()
            time.sleep(0.02)


STAGES: dict[str, tuple[Callable[[Start], bool], tuple[signal.Signals, ...]]] = {
    "before Ray starts": (lambda start: start.has_printed("is starting"), TWICE),
    "while Ray starts": (lambda start: start.runs("gcs_server"), ONCE),
    "while Serve starts": (lambda start: start.runs("ServeController"), TWICE),
    "while the gateway starts": (lambda start: start.runs("ServeReplica:gateway"), ONCE),
    "while models load": (lambda start: start.has_printed("speaks after"), TWICE),
}
# Their neighbours end by the same code.
SLOW = ("while Ray starts", "while Serve starts", "while the gateway starts")


@contextmanager
def starting(folder: Path, variables: dict[str, str]) -> Iterator[Start]:
    command = [sys.executable, "-m", "deployments.main", "--num-cpus", "2"]
    command += ["--config", str(folder / "serve.yaml")]
    output = folder / "output"
    with output.open("w") as file:
        process = subprocess.Popen(
            command,
            cwd=PROJECT_DIR,
            env={**os.environ, **variables},
            stdout=file,
            stderr=file,
            text=True,
            process_group=0,
        )
    try:
        yield Start(process, output)
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data folder of all starts, beside a configuration whose chat model is slow to load."""
    made = tmp_path_factory.mktemp("interrupted")
    slow = yaml.safe_load(Path(ECHO).read_text()) | {"load_s": LOAD_S}
    (made / "echo.yaml").write_text(yaml.safe_dump(slow))
    config = config_without_weights()
    entry(config, "Chat")["user_config"] = {"model": str(made / "echo.yaml")}
    (made / "serve.yaml").write_text(yaml.safe_dump(config))
    (made / "data").mkdir(mode=0o700)
    return made


def marks(stage: str) -> list[pytest.MarkDecorator]:
    """Without Ray a start needs no core for itself."""
    needs_ray = stage != "before Ray starts"
    return [pytest.mark.ray] * needs_ray + [pytest.mark.slow] * (stage in SLOW)


@pytest.mark.parametrize("stage", [pytest.param(stage, marks=marks(stage)) for stage in STAGES])
def test_a_start_that_is_interrupted_leaves_nothing_behind(folder: Path, stage: str) -> None:
    variables = {
        "PORT": str(free_port()),
        "RAY_DASHBOARD_PORT": str(free_port()),
        "ANTIPHON_DATA": str(folder / "data"),
    }
    condition, signals = STAGES[stage]
    with starting(folder, variables) as start:
        start.until(condition)
        left = children(start.process.pid)
        for number in signals:
            os.killpg(start.process.pid, number)  # as `timeout` and terminals do
            time.sleep(0.01)
        began = time.monotonic()
        while start.process.poll() is None:
            assert time.monotonic() - began < GATEWAYS_STOP_S + SERVE_S + PATIENCE_S
            left += children(start.process.pid)
            time.sleep(0.1)
        took_s = time.monotonic() - began
        shown = start.output.read_text()
        sys.stderr.write(f"{stage}: {took_s:.1f} s\n")
    assert start.process.returncode == 0 and "Stopping ..." in shown, shown
    assert "Failed to connect to GCS" not in shown, shown  # Ray's processes did not get the signal
    deadline = time.monotonic() + PATIENCE_S
    while running := [command_of(pid) for pid in set(left) if command_of(pid)]:
        assert time.monotonic() < deadline, running
        time.sleep(0.1)
    with closing(sqlite3.connect(folder / "data" / "antiphon.db", timeout=0)) as database:
        database.execute("BEGIN EXCLUSIVE")  # which no lock is left to prevent
