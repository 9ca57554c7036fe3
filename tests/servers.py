"""PostgreSQL, Redis and S3 servers for one test run, with temporary data, free ports and passwords
that a URL has to encode."""

import os
import pwd
import random
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest

from configs.settings import PROJECT_DIR
from deployments.cli.backup import postgres_program
from tests.patience import PATIENCE_S
from tests.processes import children, stopped

PASSWORD = "of this/run:100%@*é'"
UNUSABLE_PROXIES = {
    "HTTP_PROXY": "http://127.0.0.1:9",
    "http_proxy": "http://127.0.0.1:9",
    "ALL_PROXY": "socks5://127.0.0.1:9",
    "NO_PROXY": "",
    "no_proxy": "",
}
"""An environment of desktops and offices, where a request to this machine would go astray."""
MEMORY = Path("/dev/shm")
ROOM_IN_MEMORY = 1 << 30  # bytes for each process of a test run, which has a server of its own
DISK = Path("/var/tmp")  # a folder that every user may enter; /tmp is memory on some systems
HOW_TO_INSTALL = "`make test` installs it as root on Debian (tools/servers.sh)"


def free_port() -> int:
    """A TCP port on which nothing listens.

    Below those that the kernel gives to connections and to servers that ask for any port (from
    32768 on): one of these may be taken before the server that it is meant for has started.
    """
    while True:
        port = random.randint(20_000, 32_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("", port))
            return port


@dataclass
class Server:
    """A server process that tests may also kill, restart and stop with a signal."""

    url: str
    command: list[str]
    is_ready: Callable[[], bool]
    log: Path
    options: dict[str, Any] = field(default_factory=dict)  # of `Popen`
    _process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns when the server is ready. Raises RuntimeError with its log."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            with self.log.open("ab") as output:
                process = self._process = subprocess.Popen(
                    self.command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    **self.options,
                )
            while process.poll() is None and time.monotonic() < deadline:
                if self.is_ready():
                    return
                time.sleep(0.05)
            # After a kill PostgreSQL refuses to start until the last of its old children is gone.
            if time.monotonic() > deadline or "pre-existing shared memory" not in self._said():
                self.stop()
                raise RuntimeError(f"{self.command[0]} did not start:\n{self._said()}")
            time.sleep(0.2)

    def stop(self) -> None:
        """Graceful: SIGTERM, and SIGKILL after 10 s."""
        assert self._process is not None
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """SIGKILL: the server loses what it had in memory."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def signal(self, number: int) -> None:
        """Sends a signal to the main process only; `hanging` also stops its children."""
        assert self._process is not None
        self._process.send_signal(number)

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """SIGSTOP for it and its children until the block ends; connections stay open."""
        assert self._process is not None
        with stopped([self._process.pid, *children(self._process.pid)]):
            yield

    @contextmanager
    def running(self) -> Iterator["Server"]:
        """Starts the server, and stops it at the end of the block."""
        self.start()
        try:
            yield self
        finally:
            self.stop()

    @property
    def process_id(self) -> int:
        """Of its main process."""
        assert self._process is not None
        return self._process.pid

    def _said(self) -> str:
        return self.log.read_text(errors="replace")


def _parent_of_data(*, fsync: bool) -> Path:
    """DISK with `fsync`, else memory where that has room for all processes of the test run: each
    test has a database of its own, whose 300 files take up to half a second of CPU time on a disk.
    """
    room = ROOM_IN_MEMORY * int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", 1))
    if not fsync and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > room:
        return MEMORY
    return DISK


@contextmanager
def postgres(host: str = "127.0.0.1", *, fsync: bool = False) -> Iterator[Server]:
    """An empty database with a password, also on the socket in the folder of the server's log.
    Skips where there is no server.

    With `fsync` it writes as a service's does. Without it a power cut loses the data, which lives
    as long as the test run.
    """
    initdb, server = postgres_program("initdb"), postgres_program("postgres")
    if initdb is None or server is None:
        pytest.skip(f"no PostgreSQL server on this machine; {HOW_TO_INSTALL}")
    # Its user may not enter the temporary folder of root, and a socket's path has 107 bytes.
    parent = _parent_of_data(fsync=fsync)
    with tempfile.TemporaryDirectory(prefix="antiphon-postgres-", dir=parent) as folder:
        options: dict[str, Any] = {"cwd": folder}
        if os.geteuid() == 0:  # the server refuses to run as root
            try:
                account = pwd.getpwnam("postgres")
            except KeyError:
                pytest.skip("PostgreSQL refuses root, and there is no user `postgres`")
            os.chown(folder, account.pw_uid, account.pw_gid)
            options |= {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
        data, port, secret = f"{folder}/data", free_port(), Path(folder, "password")
        secret.write_text(PASSWORD, encoding="utf-8")
        secret.chmod(0o644)
        command = [initdb, "--auth=scram-sha-256", f"--pwfile={secret}", "--username=postgres"]
        command += ["--encoding=UTF8", "--no-sync", data]
        subprocess.run(command, check=True, capture_output=True, **options)
        with open(f"{data}/pg_hba.conf", "a") as rules:
            rules.write("host all all samenet scram-sha-256\n")
        address = {"host": host, "port": port, "user": "postgres", "dbname": "postgres"}
        address["password"] = PASSWORD

        def is_ready() -> bool:
            try:
                psycopg.connect(**address, connect_timeout=2).close()  # type: ignore[arg-type]
            except psycopg.OperationalError:
                return False
            return True

        settings = {"port": port, "listen_addresses": host, "unix_socket_directories": folder}
        if not fsync:
            settings |= {"fsync": "off", "max_wal_size": "64MB"}
        flags = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        url = f"postgresql+psycopg://postgres:{quote(PASSWORD, safe='')}@{host}:{port}/postgres"
        # Beside the data and not in it: the folder belongs to the server's user.
        with tempfile.TemporaryDirectory(prefix="antiphon-postgres-log-") as logs:
            command = [server, "-D", data, *flags]
            with Server(url, command, is_ready, Path(logs, "log"), options).running() as made:
                yield made


@contextmanager
def redis(host: str = "127.0.0.1", password: str = PASSWORD) -> Iterator[Server]:
    """An empty server, which lets everyone in only if `password` is empty. Skips the test where
    there is no Redis."""
    server = shutil.which("redis-server") or shutil.which("valkey-server")
    if server is None:
        pytest.skip(f"no Redis server on this machine; {HOW_TO_INSTALL}")
    port = free_port()

    def is_ready() -> bool:
        login = f'AUTH "{password}"\r\n'.encode() if password else b""
        return _answers(host, port, login + b"PING\r\n", b"+OK\r\n+PONG" if login else b"+PONG")

    with tempfile.TemporaryDirectory(prefix="antiphon-redis-") as folder:
        command = [server, "--bind", host, "--port", str(port), "--dir", folder]
        command += ["--save", "", "--appendonly", "no", "--requirepass", password]
        command += [] if password else ["--protected-mode", "no"]
        url = f"redis://:{quote(password, safe='')}@{host}:{port}/0"
        with Server(url, command, is_ready, Path(folder, "log")).running() as made:
            yield made


S3_ACCOUNT = {"AWS_ACCESS_KEY_ID": "antiphon", "AWS_SECRET_ACCESS_KEY": "of-this-run"}


@contextmanager
def s3(host: str = "127.0.0.1") -> Iterator[Server]:
    """An object store with the bucket `antiphon`; its URL is that of AWS_ENDPOINT_URL.

    Skips the test where `.venv-clients` has no `moto_server`.
    """
    program = PROJECT_DIR / ".venv-clients" / "bin" / "moto_server"
    if not program.exists():
        pytest.skip("no S3 server in .venv-clients; `make clients` installs it")
    port = free_port()

    def is_ready() -> bool:
        head = f"PUT /antiphon HTTP/1.0\r\nHost: {host}:{port}\r\n".encode()
        allowed = b"Authorization: AWS4-HMAC-SHA256 Credential=a/20260101/us-east-1/s3/aws4_request"
        return _answers(host, port, head + allowed + b"\r\n\r\n", b"HTTP/1.1 200")

    with tempfile.TemporaryDirectory(prefix="antiphon-s3-") as folder:
        command = [str(program), "--host", host, "--port", str(port)]
        with Server(
            f"http://{host}:{port}", command, is_ready, Path(folder, "log")
        ).running() as made:
            yield made


def _answers(host: str, port: int, request: bytes, begins: bytes) -> bool:
    try:
        with socket.create_connection((host, port), timeout=2) as connection:
            connection.sendall(request)
            return connection.recv(16).startswith(begins)
    except OSError:
        return False
