"""The wheel alone, in an environment without the checkout: client and server."""

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

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of an environment with the wheel and the packages that it needs."""
    folder = tmp_path_factory.mktemp("wheel")
    tree = folder / "tree"  # building leaves a folder in the checkout
    shutil.copytree(
        PROJECT_DIR, tree, ignore=shutil.ignore_patterns(".*", "data", "build", "__pycache__")
    )
    uv = Path(sys.executable).with_name("uv")
    built = subprocess.run(
        [uv, "build", "--wheel", "--out-dir", folder, tree], capture_output=True, text=True
    )
    if built.returncode:
        pytest.skip(f"the wheel was NOT tried: {built.stderr}")
    venv.create(folder / "venv", symlinks=True)
    site = next((folder / "venv" / "lib").glob("python*/site-packages"))
    # Not its path file, which would import the checkout.
    (site / "packages.pth").write_text(sysconfig.get_path("purelib"))
    (wheel,) = folder.glob("*.whl")
    assert wheel.name.split("-")[1] == __version__
    python = folder / "venv" / "bin" / "python"
    subprocess.run([uv, "pip", "install", "--python", python, "--no-deps", wheel], check=True)
    shutil.rmtree(tree)
    return folder / "venv" / "bin"


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
