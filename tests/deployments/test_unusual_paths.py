"""A checkout and other folders whose names mean something in a URL, a shell or a pattern."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from benchmarks.harness.service import running_service
from configs.settings import PROJECT_DIR, weights_dir
from deployments.cluster.release import PARTS
from tests.promises.conftest import config_without_weights
from tests.promises.test_other_users import use
from tests.servers import UNUSABLE_PROXIES, free_port

UNUSUAL = "a b#c%20d?e&f'g\"h[1]*é漢$(x)`y`\\z;"
# Starts a program as a node of Ray starts a worker: by a line that it splits as a shell does, and
# by a second one, which a shell runs.
WORKER = """
import shlex, subprocess, sys
from pathlib import Path
from deployments.cluster import node
node.link_paths(Path(sys.argv[1]))
from ray._private import services
worker = Path(services.RAY_PATH, "_private", "workers", "setup_worker.py")
line = subprocess.list2cmdline([sys.executable, str(worker), "--language=PYTHON", sys.argv[2]])
raise SystemExit(subprocess.run(shlex.split(line)).returncode)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with an unusual name, with a checkout, and what the environment names beside it."""
    made = tmp_path / UNUSUAL
    for name in ("home", "temporary"):
        (made / name).mkdir(parents=True, mode=0o700)
    cached = shutil.ignore_patterns("__pycache__")
    for part in (*PARTS, "tests/engines"):
        shutil.copytree(PROJECT_DIR / part, made / "checkout" / part, ignore=cached)
    for file in ("pyproject.toml", "serve_config.yaml", "tests/__init__.py"):
        shutil.copy(PROJECT_DIR / file, made / "checkout" / file)
    (made / "checkout" / ".venv").symlink_to(sys.prefix)
    (made / "weights").symlink_to(weights_dir())
    return made


def environment_of(folder: Path) -> dict[str, str]:
    places = {"HOME": "home", "TMPDIR": "temporary", "ANTIPHON_WEIGHTS": "weights"}
    return {name: str(folder / place) for name, place in places.items()}


def run(folder: Path, module: str, *arguments: str, **variables: str) -> tuple[int, str]:
    """The status and the output of a program of the checkout."""
    checkout = folder / "checkout"
    done = subprocess.run(
        [checkout / ".venv" / "bin" / "python", "-m", module, *arguments],
        cwd=checkout,
        env={**os.environ, **environment_of(folder), **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return done.returncode, done.stdout


def test_commands_keep_to_folders_with_unusual_names(folder: Path, tmp_path: Path) -> None:
    operator, data = "deployments.operator", folder / "checkout" / "data"
    status, output = run(folder, operator, "first-key")
    assert status == 0 and "the first workspace is in sqlite:" in output, output
    (data / "files" / "1").mkdir(parents=True)
    (data / "files" / "1" / "file").write_text("kept")
    status, output = run(folder, operator, "backup", str(folder / "backup"))
    assert status == 0, output

    (restored := folder / "restored").mkdir(mode=0o700)
    shutil.copy(data / "secrets.json", restored)
    again = {"ANTIPHON_DATA": str(restored)}
    status, output = run(folder, operator, "restore", str(folder / "backup"), **again)
    assert status == 0 and "1 API key(s) are valid" in output, output
    assert (restored / "files" / "1" / "file").read_text() == "kept"

    (folder / "link").symlink_to(folder / "checkout")
    _, output = run(folder, "deployments.cli.main", "doctor", **again)
    checks = {line.split()[1]: line for line in output.splitlines()}
    for name in ("database", "storage", "disk"):
        assert checks[name].startswith("ok"), output
    assert [path.name for path in tmp_path.iterdir()] == [UNUSUAL]  # nothing beside it
    assert (data / "antiphon.db").is_file() and (restored / "antiphon.db").is_file()


def test_a_worker_of_ray_starts_with_a_python_in_an_unusual_folder(
    folder: Path, tmp_path: Path
) -> None:
    (folder / "checkout" / "starts.py").write_text(WORKER)
    (folder / "worker.py").write_text("print('works')")
    (tmp_path / "ray").mkdir()
    status, output = run(folder, "starts", str(tmp_path / "ray"), str(folder / "worker.py"))
    assert (status, output) == (0, "works\n")


@pytest.mark.ray
@pytest.mark.slow
def test_the_service_works_in_unusual_folders_behind_a_proxy(folder: Path) -> None:
    checkout = folder / "checkout"
    (checkout / "serve.yaml").write_text(yaml.safe_dump(config_without_weights(checkout)))
    command = ["env", "--chdir", str(checkout), "--unset=RAY_TMPDIR", ".venv/bin/python"]
    command += ["-m", "deployments.main", "--config", "serve.yaml", "--num-cpus", "2"]
    variables = {"ANTIPHON_DATA": str(checkout / "data"), "RAY_DASHBOARD_PORT": str(free_port())}
    variables |= environment_of(folder) | UNUSABLE_PROXIES
    with running_service(command, variables) as service:
        use(service)


def test_the_program_antiphon_starts_in_a_folder_with_an_unusual_name(tmp_path: Path) -> None:
    tools = tmp_path / UNUSUAL / "tools"
    programs = tmp_path / UNUSUAL / ".venv" / "bin"
    for made in (tools, programs):
        made.mkdir(parents=True)
    for name in ("venv.sh", "registries.sh"):
        shutil.copy(PROJECT_DIR / "tools" / name, tools)
    (tmp_path / UNUSUAL / "uv.lock").touch()
    # In place of Python and uv, which would fetch packages: prints its arguments, or a folder.
    stub = '#!/bin/sh\ncase "$2" in *purelib*) pwd;; *) echo "$0" "$@";; esac\n'
    for name in ("python", "uv"):
        (programs / name).write_text(stub)
        (programs / name).chmod(0o700)
    subprocess.run([tools / "venv.sh", "server"], check=True, capture_output=True)
    said = subprocess.check_output([programs / "antiphon", "a b"], text=True)
    assert said == f"{programs / 'python'} -P -m deployments.cli.main a b\n"
