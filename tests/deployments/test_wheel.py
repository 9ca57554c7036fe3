"""The wheels of client and server in an environment without the checkout."""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import httpx
import pytest
import yaml

from antiphon.version import __version__
from configs.settings import PROJECT_DIR
from tests.patience import PATIENCE_S
from tests.promises.conftest import config_without_weights
from tests.servers import free_port
from tests.wheels import UV, build_wheel

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of an environment with both wheels and the packages they need."""
    folder = tmp_path_factory.mktemp("wheel")
    wheels = [build_wheel(name, folder) for name in ("antiphon", "antiphon-server")]
    venv.create(folder / "venv", symlinks=True)
    site = next((folder / "venv" / "lib").glob("python*/site-packages"))
    # Not its path file, which would import the checkout.
    (site / "packages.pth").write_text(sysconfig.get_path("purelib"))
    assert {wheel.name.split("-")[1] for wheel in wheels} == {__version__}
    python = folder / "venv" / "bin" / "python"
    subprocess.run([UV, "pip", "install", "--python", python, "--no-deps", *wheels], check=True)
    shutil.rmtree(folder / "tree")
    return folder / "venv" / "bin"


def test_the_extra_is_the_server_of_the_same_version(installed: Path, tmp_path: Path) -> None:
    program = (
        "from importlib.metadata import requires, version\n"
        "print(version('antiphon'), version('antiphon-server'))\n"
        "print(*requires('antiphon'), *requires('antiphon-server'), sep='\\n')"
    )
    command = [str(installed / "python"), "-c", program]
    text = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    versions, *requirements = text.splitlines()
    client, server = versions.split()
    assert client == server
    assert f'antiphon-server=={server}; extra == "server"' in requirements
    assert f"antiphon=={client}" in requirements
    assert any(line.startswith("ray[serve]==") for line in requirements)


def test_operators_commands_are_those_of_a_checkout(installed: Path, tmp_path: Path) -> None:
    def text(*command: str | Path, cwd: Path) -> str:
        return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=True).stdout

    for arguments in (["--help"], ["models", "--help"], ["serve", "--help"]):
        checkout = text(sys.executable, "-m", "deployments.cli.main", *arguments, cwd=PROJECT_DIR)
        assert text(installed / "antiphon", *arguments, cwd=tmp_path) == checkout
        assert "antiphon[server]" not in checkout
    assert "--num-cpus" in checkout


def test_the_wheel_serves_and_speaks(installed: Path, tmp_path: Path) -> None:
    config, port = tmp_path / "serve.yaml", free_port()
    config.write_text(yaml.safe_dump(config_without_weights()))
    engines = tmp_path / "own" / "tests" / "engines"  # as those of an operator, who installed it
    shutil.copytree(PROJECT_DIR / "tests" / "engines", engines)
    environment = os.environ | {
        "PYTHONPATH": str(tmp_path / "own"),
        "XDG_DATA_HOME": str(tmp_path / "share"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "PORT": str(port),
        "RAY_DASHBOARD_PORT": str(free_port()),
        "ANTIPHON_URL": f"http://127.0.0.1:{port}",
    }
    command = [str(installed / "antiphon"), "serve", "--config", str(config), "--num-cpus", "2"]
    with subprocess.Popen(
        command, env=environment, cwd=tmp_path, stdout=subprocess.PIPE, text=True
    ) as service:
        assert service.stdout is not None
        try:
            key, lines = "", []
            for line in service.stdout:
                lines.append(line)
                if "API key" in line:
                    key = line.split()[-1]
                if line.startswith("All models are ready"):
                    break
            assert key, lines
            environment["ANTIPHON_KEY"] = key
            spoken = subprocess.run(
                [installed / "antiphon", "speak", "From a wheel.", "-o", "said.wav"],
                env=environment,
                cwd=tmp_path,
                timeout=PATIENCE_S,
            )
            assert spoken.returncode == 0
            assert (tmp_path / "said.wav").read_bytes().startswith(b"RIFF")
            page = httpx.get(f"http://127.0.0.1:{port}/console", timeout=PATIENCE_S)
            assert page.status_code == 200 and "Console" in page.text
        finally:
            service.terminate()
    assert (tmp_path / "share" / "antiphon" / "antiphon.db").is_file()
