"""Machines of a cluster: network namespaces joined by a bridge, each with a name and a /tmp of its
own. Their stores (PostgreSQL, Redis, S3) run on the bridge's address, and die for no machine."""

import asyncio
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import pytest
import yaml

from configs.settings import PROJECT_DIR, weights_dir
from tests import servers
from tests.machines.load import load
from tests.machines.slow_cable import SlowCable
from tests.patience import PATIENCE_S
from tests.pipelines.webhooks.receivers import Authority
from tests.promises.conftest import config_without_weights
from tests.promises.recovery import recovery
from tests.promises.tenants import Tenant

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
        binds = {**self.kept(), Path("/tmp"): self.folder, **(instead or {})}
        steps = [shlex.join(["mount", "--rbind", str(new), str(old)]) for old, new in binds.items()]
        steps += [f"hostname {self.name}", shlex.join(["cd", str(PROJECT_DIR)]), 'exec "$@"']
        process = subprocess.Popen(
            ["ip", "netns", "exec", self.name, "unshare", "--mount", "--uts", "--"]
            + ["sh", "-c", " && ".join(steps), "sh", *command],
            env={**os.environ, **self.environment, **(variables or {})},
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.processes.append(process)
        return process

    def kept(self) -> dict[Path, Path]:
        """What all machines share below /tmp, such as the checkout, by its place in this one's."""
        shared = (PROJECT_DIR, Path(sys.prefix), Path(sys.base_prefix), weights_dir())
        places = {}
        for path in shared:
            if path.is_relative_to("/tmp") and path.exists():
                place = self.folder / path.relative_to("/tmp")
                place.mkdir(parents=True, exist_ok=True)
                places[place] = path
        return places

    def python(self, *arguments: str, **options: object) -> subprocess.Popen[str]:
        return self.run(sys.executable, *arguments, **options)  # type: ignore[arg-type]

    def said(self, *arguments: str, **options: object) -> tuple[int, str]:
        """The status and the output of a program that ends by itself."""
        process = self.python(*arguments, **options)
        output, _ = process.communicate(timeout=5 * PATIENCE_S)
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
    """The machines, the stores, and where clients are: on the bridge."""

    machines: list[Machine]
    config: Path
    address: str  # of the clients
    authority: Authority  # whose certificates its webhooks trust
    postgres: servers.Server
    gcs_redis: servers.Server  # for Ray, which shows a password in the arguments of its processes

    def start(self, at: int = 0, **options: object) -> str:
        """Starts a cluster on a machine; returns the API key that a first start prints, or ""."""
        first, key, seen = self.machines[at], "", []
        process = first.python(
            "-m", "deployments.main", "--config", str(self.config), f"--num-cpus={CPUS}",
            variables={"CLUSTER_ADDRESS": f"{first.address}:{GCS_PORT}"},
            **options,
        )  # fmt: skip
        assert process.stdout is not None
        for line in process.stdout:
            seen.append(line)
            if "API key" in line:
                key = line.split()[-1]
            if line.startswith("All models are ready"):
                if key:
                    status, output = first.said("-m", "deployments.operator", "plan", "enterprise")
                    assert status == 0, output
                return key
        raise AssertionError("".join(seen))

    def join(self, machine: Machine) -> subprocess.Popen[str]:
        address = f"{self.machines[0].address}:{GCS_PORT}"
        command = ("-m", "deployments.join", address, f"--num-cpus={CPUS}")
        with (machine.folder / "join.log").open("w") as log:
            return machine.python(*command, output=log)

    def together(self, of_each: Collection[str] = ("Gateway",)) -> list[subprocess.Popen[str]]:
        """Lets the other machines join, with a replica of these deployments on each, and waits for
        the gateways; returns their programs."""
        joined = [self.join(machine) for machine in self.machines[1:]]
        self.deploy(of_each)
        urls = [machine.url for machine in self.machines]
        asyncio.run(recovery(*urls, within_s=5 * PATIENCE_S))
        return joined

    def load(self, urls: Sequence[str] = ()) -> AbstractAsyncContextManager[list[Tenant]]:
        """A tenant at each machine, or at these URLs, works until the block ends; then the data is
        checked."""
        urls = urls or [machine.url for machine in self.machines]
        return load(urls, self.authority, self.address, self.postgres.url)

    def deploy(self, of_each: Collection[str]) -> None:
        config = yaml.safe_load(self.config.read_text())
        for app in config["applications"]:
            for deployment in app["deployments"]:
                if deployment["name"] in of_each:
                    deployment.pop("autoscaling_config", None)
                    replicas = {"num_replicas": len(self.machines), "max_replicas_per_node": 1}
                    deployment |= replicas
        self.config.write_text(yaml.safe_dump(config))
        first = self.machines[0]
        status, output = first.said(
            "-m", "deployments.operator", "deploy", str(self.config),
            variables={"CLUSTER_ADDRESS": f"{first.address}:{GCS_PORT}"},
        )  # fmt: skip
        assert status == 0, output


@dataclass(frozen=True)
class Plan:
    """Of the machines that a test wants."""

    machines: int
    cable_s: float = 0.0  # how long a frame takes to or from each but the first


@pytest.fixture
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    """As many machines as the parameter says, with PostgreSQL, Redis and S3."""
    if os.geteuid() != 0 or shutil.which("ip") is None or shutil.which("unshare") is None:
        pytest.skip("network namespaces need root, `ip` and `unshare`")
    number, net = random.randrange(10_000), f"10.{random.randint(100, 250)}.{random.randrange(250)}"
    bridge = f"br{number}"
    folder = Path(tempfile.mkdtemp(prefix="antiphon-machines-", dir="/var/tmp"))
    with ExitStack() as stack:
        if "KEEP" not in os.environ:  # the logs of Ray
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
        gcs_redis = stack.enter_context(servers.redis(f"{net}.254", password=""))
        files = stack.enter_context(servers.s3(f"{net}.254"))
        authority = Authority.make(folder)
        environment = {
            "TMPDIR": "/tmp",
            "RAY_TMPDIR": "/tmp",
            "HOST": "0.0.0.0",
            "PORT": str(PORT),
            "SIGN_UP": "open",
            "PLAN_CHANGES": "self",
            "PUBLIC_URL": f"http://{net}.1:{PORT}",
            "DATABASE_URL": postgres.url,
            "REDIS_URL": redis.url,
            "STORAGE_URL": "s3://antiphon/files",
            "AWS_ENDPOINT_URL": files.url,
            **servers.S3_ACCOUNT,
            "TRUSTED_PROXIES": f"{net}.254",
            "WEBHOOK_NETWORKS": f"{net}.0/24",
            "WEBHOOK_CA_FILE": authority.ca_file,
            "WEBHOOK_TIME_SCALE": "0.01",
            "ANTIPHON_TOKEN_KEY": "t" * 40,
            "ANTIPHON_KEY_PEPPER": "p" * 40,
            "ANTIPHON_URL_KEY": "u" * 40,
            "ANTIPHON_DATA_KEYS": "ZGRkZGRkZGRkZGRkZGRkZGRkZGRkZGRkZGRkZGRkZGQ=",
        }
        config = folder / "serve.yaml"
        config.write_text(yaml.safe_dump(config_without_weights()))
        made = []
        plan: Plan = request.param
        for at in range(1, plan.machines + 1):
            name, own = f"m{number}x{at}", folder / f"tmp{at}"
            own.mkdir(mode=0o700)  # of Ray, too
            ip("netns", "add", name)
            stack.callback(ip, "netns", "del", name)
            ends = (f"v-{name}", f"w-{name}")
            if at > 1 and plan.cable_s:
                stack.callback(SlowCable(*ends, plan.cable_s).close)
            else:
                ip("link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
            ip("link", "set", ends[1], "netns", name, "name", "eth0")
            ip("link", "set", ends[0], "master", bridge, "up")
            ip("-n", name, "addr", "add", f"{net}.{at}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", name, "link", "set", "lo", "up")
            data = {"ANTIPHON_DATA": str(folder / f"data{at}")}
            machine = Machine(name, f"{net}.{at}", own, environment | data)
            stack.callback(machine.die)
            made.append(machine)
        yield Site(made, config, f"{net}.254", authority, postgres, gcs_redis)
