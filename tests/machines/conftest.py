"""Machines of a cluster: network namespaces joined by a bridge, each with a name and a /tmp of its
own. Their stores run on the bridge's address, and die for no machine."""

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import httpx
import pytest
import yaml

from configs.settings import PROJECT_DIR
from tests import servers
from tests.patience import PATIENCE_S
from tests.promises.conftest import config_without_weights

PORT, GCS_PORT = 8000, 6379
CPUS = 2  # of each machine, for Ray


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.machines)
            if not os.environ.get("MACHINES"):
                item.add_marker(pytest.mark.skip(reason="minutes: `make test-machines` runs it"))


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@dataclass
class Machine:
    """One machine; `run` starts a program on it."""

    name: str
    address: str
    folder: Path  # its /tmp
    environment: dict[str, str]
    processes: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://{self.address}:{PORT}"

    def run(
        self,
        *command: str,
        variables: Mapping[str, str] | None = None,
        instead: Mapping[Path, Path] | None = None,
        output: int | IO[str] | None = subprocess.PIPE,
    ) -> subprocess.Popen[str]:
        """`instead` replaces files, as if this machine had others."""
        binds = {Path("/tmp"): self.folder, **(instead or {})}
        script = " && ".join(f"mount --bind {new} {old}" for old, new in binds.items())
        script += f' && hostname {self.name} && cd {PROJECT_DIR} && exec "$@"'
        process = subprocess.Popen(
            ["ip", "netns", "exec", self.name, "unshare", "--mount", "--uts", "--"]
            + ["sh", "-c", script, "sh", *command],
            env={**os.environ, **self.environment, **(variables or {})},
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.processes.append(process)
        return process

    def python(self, *arguments: str, **options: object) -> subprocess.Popen[str]:
        return self.run(sys.executable, *arguments, **options)  # type: ignore[arg-type]

    def said(self, *arguments: str, **options: object) -> tuple[int, str]:
        """The status and the output of a program that ends by itself."""
        process = self.python(*arguments, **options)
        output, _ = process.communicate(timeout=PATIENCE_S)
        return process.returncode, output

    def pids(self) -> list[int]:
        listed = subprocess.run(["ip", "netns", "pids", self.name], capture_output=True, text=True)
        return [int(one) for one in listed.stdout.split()]

    def die(self) -> None:
        """As by a cut of its power."""
        for pid in self.pids():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in self.processes:
            process.wait(10)
            if process.stdout is not None:
                process.stdout.close()

    def link(self, state: str) -> None:
        """`down` pulls its cable, `up` puts it back."""
        ip("link", "set", f"v-{self.name}", state)


@dataclass
class Site:
    """The machines, and the environment that they share."""

    machines: list[Machine]
    config: Path

    def start(self) -> str:
        """Starts the service on the first machine; returns the API key that it prints."""
        first = self.machines[0]
        process = first.python(
            "-m", "deployments.main", "--config", str(self.config), f"--num-cpus={CPUS}",
            variables={"CLUSTER_ADDRESS": f"{first.address}:{GCS_PORT}"},
        )  # fmt: skip
        assert process.stdout is not None
        seen = []
        for line in process.stdout:
            seen.append(line)
            if "API key" in line:
                key = line.split()[-1]
            if line.startswith("All models are ready"):
                status, output = first.said("-m", "deployments.operator", "plan", "enterprise")
                assert status == 0, output
                return key
        raise AssertionError("".join(seen))

    def join(self, machine: Machine) -> subprocess.Popen[str]:
        address = f"{self.machines[0].address}:{GCS_PORT}"
        command = ("-m", "deployments.join", address, f"--num-cpus={CPUS}")
        with (machine.folder / "join.log").open("w") as log:
            return machine.python(*command, output=log)

    def together(self) -> subprocess.Popen[str]:
        """Lets the second machine join, and waits for a gateway on each; returns its program."""
        joined = self.join(self.machines[1])
        self.deploy(gateways=2)
        for machine in self.machines:
            until(machine.url)
        return joined

    def deploy(self, gateways: int) -> None:
        """One gateway a machine."""
        config = yaml.safe_load(self.config.read_text())
        (app,) = [one for one in config["applications"] if one["name"] == "gateway"]
        app["deployments"][0] |= {"num_replicas": gateways, "max_replicas_per_node": 1}
        self.config.write_text(yaml.safe_dump(config))
        first = self.machines[0]
        status, output = first.said(
            "-m", "deployments.operator", "deploy", str(self.config),
            variables={"CLUSTER_ADDRESS": f"{first.address}:{GCS_PORT}"},
        )  # fmt: skip
        assert status == 0, output


@pytest.fixture
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    """As many machines as the parameter says, with PostgreSQL, Redis and a shared folder."""
    if os.geteuid() != 0 or shutil.which("ip") is None or shutil.which("unshare") is None:
        pytest.skip("network namespaces need root, `ip` and `unshare`")
    number, net = random.randrange(10_000), f"10.{random.randint(100, 250)}.{random.randrange(250)}"
    bridge = f"br{number}"
    folder = Path(tempfile.mkdtemp(prefix="antiphon-machines-", dir="/var/tmp"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        try:
            ip("link", "add", bridge, "type", "bridge")
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no bridges here: {error.stderr.decode()}")
        stack.callback(ip, "link", "del", bridge)
        ip("addr", "add", f"{net}.254/24", "dev", bridge)
        ip("link", "set", bridge, "up")
        postgres = stack.enter_context(servers.postgres(f"{net}.254"))
        redis = stack.enter_context(servers.redis(f"{net}.254"))
        shared = folder / "files"
        shared.mkdir()
        environment = {
            "TMPDIR": "/tmp",
            "RAY_TMPDIR": "/tmp",
            "HOST": "0.0.0.0",
            "PORT": str(PORT),
            "SIGN_UP": "open",
            "PUBLIC_URL": f"http://{net}.1:{PORT}",
            "DATABASE_URL": postgres.url,
            "REDIS_URL": redis.url,
            "STORAGE_URL": f"file://{shared}",
            "STORAGE_SHARED": "on",
            "ANTIPHON_TOKEN_KEY": "t" * 40,
            "ANTIPHON_KEY_PEPPER": "p" * 40,
            "ANTIPHON_URL_KEY": "u" * 40,
            "ANTIPHON_DATA_KEYS": "ZGRkZGRkZGRkZGRkZGRkZGRkZGRkZGRkZGRkZGRkZGQ=",
        }
        config = folder / "serve.yaml"
        config.write_text(yaml.safe_dump(config_without_weights()))
        made = []
        for at in range(1, request.param + 1):
            name, own = f"m{number}x{at}", folder / f"tmp{at}"
            own.mkdir()
            ip("netns", "add", name)
            stack.callback(ip, "netns", "del", name)
            ip("link", "add", f"v-{name}", "type", "veth", "peer", "name", "eth0", "netns", name)
            ip("link", "set", f"v-{name}", "master", bridge, "up")
            ip("-n", name, "addr", "add", f"{net}.{at}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", name, "link", "set", "lo", "up")
            data = {"ANTIPHON_DATA": str(folder / f"data{at}")}
            machine = Machine(name, f"{net}.{at}", own, environment | data)
            stack.callback(machine.die)
            made.append(machine)
        yield Site(made, config)


def until(url: str, path: str = "/readyz", within_s: float = 2 * PATIENCE_S) -> httpx.Response:
    """Waits for a 200."""
    deadline = time.monotonic() + within_s
    last: object = None
    while time.monotonic() < deadline:
        try:
            answer = httpx.get(f"{url}{path}", timeout=5)
            if answer.status_code == 200:
                return answer
            last = answer.text
        except httpx.HTTPError as error:
            last = error
        time.sleep(0.2)
    raise TimeoutError(f"{url}{path}: {last}")
