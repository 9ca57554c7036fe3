"""The stages in which the applications of a configuration are deployed."""

import asyncio
import copy
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
import yaml

from configs.environment import SettingsError
from configs.settings import PROJECT_DIR
from deployments.cli.doctor import check_ray, outcome
from deployments.cluster.node import keep_private, start
from deployments.cluster.serve_api import failures
from deployments.rollout.serve_config import first_stage, first_voice
from tests.servers import free_port

# Raises once what Ray raises when a node needs more than 30 s, then starts one for real.
LATE_NODE = """
import os, subprocess
from deployments.cluster import node
node.prepare_environment()
from ray._private import services
get_node = services.get_node
def late(*arguments):
    services.get_node = get_node
    raise Exception("The current node timed out during startup.")
services.get_node = late
node.start(1)
import ray
print(ray.get(ray.remote(lambda: "works").remote()))
children = subprocess.check_output(["ps", "-o", "args=", "--ppid", str(os.getpid())], text=True)
print(sum("/raylet/raylet" in line for line in children.splitlines()))
"""


def shipped() -> dict[str, Any]:
    config: dict[str, Any] = yaml.safe_load((PROJECT_DIR / "serve_config.yaml").read_text())
    return config


def models(config: dict[str, Any]) -> dict[str, Any]:
    application = next(one for one in config["applications"] if one["name"] == "models")
    return {deployment["name"]: deployment for deployment in application["deployments"]}


def test_a_cluster_that_does_not_start_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise Exception("\nThe last 20 lines of dashboard.log:\nline 1")

    monkeypatch.setattr(ray, "init", fail)
    monkeypatch.setenv("RAY_TMPDIR", "/var/ray")
    with pytest.raises(RuntimeError, match="^Ray did not start; .* The last .*logs$"):
        start(1)


def test_the_first_stage_has_only_the_gateway_and_one_voice() -> None:
    config = shipped()
    before = copy.deepcopy(config)
    staged = first_stage(config)
    assert config == before  # it is deployed whole afterwards
    assert first_voice(config) == "TTSFast"
    assert [one["name"] for one in staged["applications"]] == ["gateway", "models"]
    first, whole = models(staged), models(config)
    for name in ("TTSFast", "ModelIndex"):
        assert first[name] == whole[name]
    for name in set(whole) - {"TTSFast", "ModelIndex"}:
        scaling = first[name]["autoscaling_config"]
        assert (scaling["min_replicas"], scaling["initial_replicas"]) == (0, 0)
        assert {**first[name], "autoscaling_config": None} == {
            **whole[name],
            "autoscaling_config": None,
        }


def test_the_first_stage_keeps_a_model_with_a_fixed_number_of_replicas() -> None:
    config = shipped()
    chat = models(config)["Chat"]
    del chat["autoscaling_config"]
    chat["num_replicas"] = 2
    assert models(first_stage(config))["Chat"] == chat


def test_the_first_stage_is_the_whole_configuration_without_tts_models() -> None:
    config = shipped()
    next(one for one in config["applications"] if one["name"] == "models")["args"] = {"chat": ["C"]}
    assert first_voice(config) is None
    assert first_stage(config) == config


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (
            "The deployment failed to start 3 times in a row. Error:\nTraceback (most recent call"
            ' last):\n  File "a.py", line 1\nThe actor is dead: its process has died. \n\n',
            "The actor is dead: its process has died.",
        ),
        ("Error:\nmodels.errors.ModelNotLoaded: tts/a: no file\n  at b", "tts/a: no file"),
        (" \n", "no reason is given"),
    ],
)
def test_a_failure_is_one_line(message: str, reason: str) -> None:
    dead = {"status": "UNHEALTHY", "message": message}
    state: dict[str, Any] = {"models": {**dead, "deployments": {"STT": dead}}}
    assert failures(state) == {"models/STT": reason}
    state["models"]["deployments"] = {}
    assert failures(state) == {"models": reason}


@pytest.mark.ray
@pytest.mark.slow
def test_a_node_that_is_late_is_started_again_and_leaves_no_process() -> None:
    environment = {**os.environ, "RAY_DASHBOARD_PORT": str(free_port())}
    done = subprocess.run(
        [sys.executable, "-c", LATE_NODE],
        cwd=PROJECT_DIR,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.stdout.split() == ["works", "1"], done.stderr


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The data folder of a service on a machine whose temporary folder has a short path."""
    monkeypatch.delenv("RAY_TMPDIR")
    (folder := tmp_path / "data").mkdir(mode=0o700)
    with tempfile.TemporaryDirectory(prefix="t-", dir="/tmp") as name:
        Path(name).chmod(0o1777)
        monkeypatch.setattr(tempfile, "tempdir", name)
        mask = os.umask(0o022)
        yield folder
        os.umask(mask)


def test_the_folder_of_ray_is_private_and_kept_from_start_to_start(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = []
    for _ in range(2):
        monkeypatch.delenv("RAY_TMPDIR", raising=False)
        keep_private(data)
        folders.append(os.environ["RAY_TMPDIR"])
    assert len(set(folders)) == 1 and Path(folders[0]) == (data / "ray").readlink()
    assert Path(folders[0]).parent == Path(tempfile.gettempdir())
    assert Path(folders[0]).stat().st_mode & 0o777 == 0o700
    (data / "file").touch()
    assert (data / "file").stat().st_mode & 0o777 == 0o600


def test_old_sessions_of_ray_are_deleted_unless_they_run(data: Path) -> None:
    keep_private(data)
    sessions = [data / "ray/ray" / f"session_2026-12-{day}" for day in range(10, 30)]
    for session in sessions:
        (session / "sockets").mkdir(parents=True)
    (data / "ray/ray/session_latest").symlink_to(sessions[-1])
    for session in sessions[:8]:
        (session / "logs").mkdir()
        (session / "logs/raylet.out").touch()
        os.utime(session, (0, 0))
    for session in sessions[:4]:
        os.utime(session / "logs/raylet.out", (0, 0))
    with socket.socket(socket.AF_UNIX) as raylet, socket.socket(socket.AF_UNIX) as first:
        raylet.bind(str((data / "ray").resolve() / "ray" / sessions[0].name / "sockets/raylet"))
        raylet.listen(0)
        first.connect(raylet.getsockname())  # the queue is full: a stopped raylet
        keep_private(data)
    kept = [session for session in sessions if session.exists()]
    assert kept == [sessions[0], *sessions[4:9], *sessions[-5:]]


@pytest.mark.parametrize("change", ["deleted", "opened", "linked"])
def test_a_ray_folder_that_others_could_change_is_not_reused(
    data: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    keep_private(data)
    first = Path(os.environ["RAY_TMPDIR"])
    monkeypatch.delenv("RAY_TMPDIR")
    if change == "opened":
        first.chmod(0o770)
    else:
        first.rmdir()
    if change == "linked":
        first.symlink_to("/var/tmp")
    keep_private(data)
    assert os.environ["RAY_TMPDIR"] not in (str(first), "/var/tmp")
    assert (data / "ray").resolve() == Path(os.environ["RAY_TMPDIR"])


def test_an_open_ray_folder_in_the_data_folder_is_refused(data: Path) -> None:
    (data / "ray").mkdir()  # of mode 755, as a RAY_TMPDIR of an earlier release
    with pytest.raises(SettingsError, match="other users can reach"):
        keep_private(data)


@pytest.mark.parametrize("name", ["a" * 60, "a b"])
def test_ray_gets_another_folder_than_a_temporary_one_that_it_cannot_use(
    data: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (given := Path(tempfile.gettempdir(), name)).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(given))
    monkeypatch.setenv("TMPDIR", str(given))
    keep_private(data)
    folder = Path(os.environ["RAY_TMPDIR"])
    assert folder.parent == Path("/tmp")
    temporary = Path(os.environ["TMPDIR"])  # a short link to it, for the sockets of its processes
    assert temporary.parent == folder and temporary.resolve() == given
    shutil.rmtree(folder)


def test_a_missing_ray_folder_is_made_for_its_user_alone(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(tempfile.gettempdir(), "new", "ray")
    monkeypatch.setenv("RAY_TMPDIR", str(folder))
    assert asyncio.run(outcome(check_ray)) == ("ok", f"in {folder}, which is created at the start")
    keep_private(data)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert asyncio.run(outcome(check_ray)) == ("ok", f"in {folder}")


@pytest.mark.parametrize(
    "given", ["open", "long", "spaced", "file", "replaceable", "another's", "in another's"]
)
def test_an_unsuitable_ray_folder_is_refused_in_one_sentence(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    folder = Path(tempfile.gettempdir(), "ray")
    if given == "long":
        folder = tmp_path / ("a" * 60)
    elif given == "spaced":
        folder = Path(tempfile.gettempdir(), "a b")
    elif given == "replaceable":
        (folder := folder / "inside").parent.mkdir()
        folder.parent.chmod(0o777)
    elif given == "in another's":
        (folder := folder / "inside").parent.mkdir(mode=0o755)
        if os.geteuid() != 0:
            pytest.skip("root alone gives a folder to another user")
        os.chown(folder.parent, 65534, 65534)
    if given == "file":
        folder.touch(mode=0o700)
    else:
        folder.mkdir(mode=0o755 if given == "open" else 0o700)
    monkeypatch.setenv("RAY_TMPDIR", str(folder))
    if given == "another's":
        monkeypatch.setattr(os, "geteuid", lambda: 4711)
    with pytest.raises(SettingsError) as caught:
        keep_private(data)
    assert str(caught.value).startswith("RAY_TMPDIR: ") and "\n" not in str(caught.value)
    assert asyncio.run(outcome(check_ray)) == ("FIX", str(caught.value))
