"""The client's wheel alone, in an environment without the server and its packages."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.local_server import Server, serve_local
from tests.patience import PATIENCE_S
from tests.wheels import UV, build_wheel

pytestmark = pytest.mark.slow

MEGABYTES = 10
PACKAGES = {"antiphon", "click", "httpx", "websockets"}
PACKAGES |= {"anyio", "certifi", "h11", "httpcore", "idna", "typing-extensions"}  # of httpx


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an environment with the wheel and what it requires."""
    folder = tmp_path_factory.mktemp("client")
    wheel = build_wheel("antiphon", folder)
    subprocess.run([UV, "venv", "--quiet", folder / "venv"], check=True)
    python = folder / "venv" / "bin" / "python"
    command = [str(UV), "pip", "install", "--python", str(python), str(wheel)]
    installed = subprocess.run(command, capture_output=True, text=True)
    if installed.returncode:
        pytest.skip(f"the wheel was NOT tried: {installed.stderr}")
    return folder / "venv"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serve_local(tmp_path_factory.mktemp("server")) as running:
        yield running


def run(environment: Path, program: str, *arguments: str, **variables: str) -> tuple[int, str, str]:
    """Return the status, the output and the errors of a program of the environment."""
    done = subprocess.run(
        [environment / "bin" / program, *arguments],
        env={**os.environ, "PYTHONPATH": "", "XDG_CONFIG_HOME": str(environment), **variables},
        cwd=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    return done.returncode, done.stdout, done.stderr


def test_the_client_brings_few_packages_and_megabytes(environment: Path) -> None:
    (site,) = environment.glob("lib/python*/site-packages")
    names = {path.name.split("-")[0].replace("_", "-") for path in site.glob("*.dist-info")}
    assert names <= PACKAGES, names
    size = sum(path.stat().st_size for path in site.rglob("*") if path.is_file())
    assert size < MEGABYTES * 1_000_000, size
    assert not (site / "antiphon" / "setup.py").exists()
    assert not {"api", "deployments", "pipelines"} & {path.name for path in site.iterdir()}


def test_every_module_of_the_client_can_be_imported_alone(environment: Path) -> None:
    program = (
        "import antiphon, importlib, pkgutil\n"
        "for module in pkgutil.walk_packages(antiphon.__path__, 'antiphon.'):\n"
        "    importlib.import_module(module.name)"
    )
    assert run(environment, "python", "-c", program) == (0, "", "")


def test_commands_of_operators_name_what_to_install(environment: Path) -> None:
    status, text, _ = run(environment, "antiphon", "--help")
    assert status == 0 and "  speak " in text and "  serve " not in text
    assert "'antiphon[server]'" in text
    for command in (("serve",), ("doctor",), ("models", "pull"), ("keys", "recover")):
        status, _, errors = run(environment, "antiphon", *command)
        assert status == 2 and f"No such command '{command[-1]}'." in errors
        assert "install 'antiphon[server]'" in errors


def test_the_client_speaks_with_a_service(environment: Path, server: Server) -> None:
    service = {"ANTIPHON_URL": server.url, "ANTIPHON_KEY": server.key}
    status, _, errors = run(environment, "antiphon", "speak", "Hi.", "-o", "a.wav", **service)
    assert status == 0, errors
    assert (environment / "a.wav").read_bytes().startswith(b"RIFF")
    status, listed, errors = run(environment, "antiphon", "models", "list", **service)
    assert status == 0 and listed.startswith("ID "), errors
