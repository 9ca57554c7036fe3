"""What another user of the machine can reach of a running service and of its Ray cluster."""

import base64
import json
import os
import socket
import stat
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import grpc
import httpx
import pytest

from benchmarks.harness.service import Service
from tests.patience import PATIENCE_S
from tests.processes import children, listeners
from tests.promises.conftest import ON_SERVERS, Running

pytestmark = [pytest.mark.ray, pytest.mark.postgres, pytest.mark.redis, ON_SERVERS]

OTHER = 65534
# What runs code or changes state at each kind of Ray's servers: GCS, raylets, workers, replicas.
GRPC_METHODS = (
    "/ray.rpc.JobInfoGcsService/AddJob",
    "/ray.rpc.InternalKVGcsService/InternalKVPut",
    "/ray.rpc.NodeManagerService/RequestWorkerLease",
    "/ray.rpc.CoreWorkerService/PushTask",
    "/ray.serve.ASGIService/HandleRequest",
)
# Of the dashboard, its agents, and the agent that prepares the folders of jobs.
HTTP_PATHS = ("/api/jobs/", "/api/job_agent/jobs/", "/get_or_create_runtime_env")

ATTACK = """
import encodings.idna, json, os, socket, sys, urllib.request
given, done = json.load(sys.stdin), []
os.setgroups([])
os.setgid(given["uid"])
os.setuid(given["uid"])
def tries(what, call):
    try:
        call()
    except OSError:
        return
    done.append(what)
for path in given["folders"]:
    tries(f"list {path}", lambda: os.listdir(path))
    tries(f"write {path}", lambda: os.mkdir(f"{path}/of-another-user"))
    tries(f"replace {path}", lambda: os.rename(path, f"{path}.old"))
for path in given["files"]:
    tries(f"read {path}", lambda: open(path).close())
    tries(f"change {path}", lambda: open(path, "a").close())
for path in given["sockets"]:
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        tries(f"connect to {path}", lambda: socket.socket(socket.AF_UNIX, kind).connect(path))
for url in given["urls"]:
    job = urllib.request.Request(url, b'{"entrypoint": "id"}', {"Content-Type": "application/json"})
    tries(f"send a job to {url}", lambda: urllib.request.urlopen(job, timeout=30))
print(json.dumps(done))
"""


def use(service: Service) -> None:
    """Speaks, transcribes, chats, and lets a job of Ray write a book."""
    headers = {"Authorization": f"Bearer {service.key}"}
    with httpx.Client(base_url=service.url, headers=headers, timeout=PATIENCE_S) as client:
        body = {"text": "Hello there.", "voice": "Alto", "encoding": "wav"}
        spoken = client.post("/tts-synthesize", json=body).raise_for_status()
        audio = base64.b64decode(spoken.json()["audio_base64"])
        client.post("/stt", files={"audio": audio}).raise_for_status()
        chat = {"messages": [{"role": "user", "content": "Hello"}]}
        client.post("/v1/chat/completions", json=chat).raise_for_status()
        book = {"document": ("a.txt", b"A short book.", "text/plain")}
        made = client.post("/jobs/speech", files=book, data={"voice": "Alto"}).raise_for_status()
        deadline = time.monotonic() + 2 * PATIENCE_S
        while (job := client.get(f"/jobs/{made.json()['id']}").json()).get("status") != "completed":
            assert job.get("status") != "failed" and time.monotonic() < deadline, job
            time.sleep(0.5)


def of_processes(pid: int, since: float) -> set[Path]:
    """The named files that the process and its descendants hold open and made after `since`."""
    found = set()
    for process in [pid, *children(pid)]:
        with suppress(OSError):  # it has ended
            for descriptor in Path(f"/proc/{process}/fd").iterdir():
                with suppress(OSError):
                    path = Path(os.readlink(descriptor))
                    if path.is_absolute() and path.lstat().st_ctime >= since:
                        if not path.is_relative_to("/dev/pts") and not path.is_relative_to("/proc"):
                            found.add(path)
    return found


def unix_sockets(pid: int) -> set[str]:
    """The addresses of local sockets of the process and its descendants; abstract ones have @."""
    names = {}
    for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
        fields = line.split()
        if len(fields) > 7:
            names[f"socket:[{fields[6]}]"] = fields[7]
    found = set()
    for process in [pid, *children(pid)]:
        with suppress(OSError):
            for descriptor in Path(f"/proc/{process}/fd").iterdir():
                with suppress(OSError):
                    found.add(names.get(os.readlink(descriptor), ""))
    return found - {""}


def is_open(path: Path) -> bool:
    """Whether its modes and those of the folders above let another user use it at all."""
    if (
        path.is_symlink()
        or not path.exists()
        or not all(parent.stat().st_mode & 0o011 for parent in path.parents)
    ):
        return False
    return bool(stat.S_IMODE(path.lstat().st_mode) & 0o077)


def listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as connection:
            # Without a listener, a connection may still meet itself: the kernel had chosen the
            # port of the address for its own end.
            return bool(connection.getsockname() != connection.getpeername())
    except OSError:
        return False


def addresses_of(pid: int) -> set[str]:
    """The listening addresses of the process and its descendants."""
    return set().union(*listeners(pid).values())


def test_another_user_of_the_machine_reaches_nothing_of_the_service(running: Running) -> None:
    service, temporary, dashboard = running.service, running.temporary, running.dashboard
    use(service)
    made = {Path(at, name) for at, *names in os.walk(temporary) for name in sum(names, [])}
    made |= {Path(at, name) for at, *names in os.walk(service.data) for name in sum(names, [])}
    made.discard(temporary / "home")
    made |= of_processes(service.pid, running.since)
    sockets = unix_sockets(service.pid)
    assert not [name for name in sockets if name.startswith("@")], "any user can connect"
    made |= {Path(name) for name in sockets if Path(name).exists()}
    text = "\n".join(map(str, made))
    for part in ("working_dir_files", "plasma_store", "/logs/", "secrets.json", "ray_token"):
        assert part in text, f"the test does not see {part}"
    assert sorted(str(path) for path in made if is_open(path)) == []

    ports = {
        address
        for command, addresses in listeners(service.pid).items()
        for address in addresses
        if address != service.url.removeprefix("http://")
    }
    for address in ports:
        for path in HTTP_PATHS:
            with suppress(httpx.HTTPError):
                answer = httpx.post(f"http://{address}{path}", json={"entrypoint": "id"})
                assert answer.status_code >= 400, (address, path, answer.text)
    refused = {name: refusals(name, ports) for name in GRPC_METHODS}
    assert all(refused.values()), refused

    processes = [service.pid, *children(service.pid)]
    given = {
        "folders": [str(path) for path in made if path.is_dir()] + [str(temporary)],
        "files": [
            *(str(path) for path in made if path.is_file()),
            *(f"/proc/{process}/environ" for process in processes),
        ],
        "sockets": [str(path) for path in made if path.is_socket()],
        "urls": [f"http://127.0.0.1:{dashboard}/api/jobs/"],
    }
    assert all(given.values())
    if os.geteuid() == 0:
        assert attacked(given) == [f"list {temporary}", f"write {temporary}"]  # as anyone
    # The owner's own tools work, as docs/operating.md has them.
    link = service.data / "ray"
    assert (link / "ray" / "session_latest" / "logs").is_dir()
    own = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    tools = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(service.data / "ray_token")}
    command = [str(Path(sys.executable).with_name("ray")), "job", "list"]
    listed = subprocess.run(
        [*command, "--address", f"http://127.0.0.1:{dashboard}"],
        env={**own, **tools, "RAY_TMPDIR": str(link)},
        capture_output=True,
        text=True,
    )
    assert listed.returncode == 0 and "deployments.main" in listed.stdout, listed.stderr
    # Prometheus, which is another user, asks for the ports with a copy of the token.
    headers = {"Authorization": f"Bearer {(service.data / 'ray_token').read_text()}"}
    url = f"http://127.0.0.1:{dashboard}/api/prometheus/sd"
    listed_ports = httpx.get(url, headers=headers, timeout=PATIENCE_S)
    assert listed_ports.headers["content-type"].startswith("application/json")
    (group,) = listed_ports.json()
    targets = {f"127.0.0.1:{port.rpartition(':')[2]}" for port in group["targets"]}
    assert targets & ports
    # Processes end and begin while this looks: nothing listens at the ports of the former, and
    # those of the latter are seen when they are looked for once more.
    deadline = time.monotonic() + PATIENCE_S
    while others := {target for target in targets if listens(target)} - ports:
        ports |= addresses_of(service.pid)
        assert time.monotonic() < deadline, others


def refusals(method: str, addresses: set[str]) -> set[str]:
    """The addresses that refuse the method for want of a token. Fails where one accepts it."""
    found = set()
    for address in addresses:
        with grpc.insecure_channel(address, [("grpc.enable_http_proxy", 0)]) as channel:
            call = channel.unary_unary(method)
            try:
                call(b"", timeout=5)
            except grpc.RpcError as error:
                code = error.code()
                if code == grpc.StatusCode.UNAUTHENTICATED:
                    found.add(address)
                else:  # another kind of server, or none of gRPC
                    others = ("UNIMPLEMENTED", "UNAVAILABLE", "DEADLINE_EXCEEDED", "INTERNAL")
                    assert code.name in (*others, "CANCELLED", "UNKNOWN"), (address, method, error)
                continue
            raise AssertionError(f"{address} accepts {method} without a token")
    return found


def attacked(given: dict[str, list[str]]) -> list[str]:
    """What a process managed to do as another user, which it becomes: Python may be root's."""
    done = subprocess.run(
        [sys.executable, "-I", "-c", ATTACK],
        cwd="/",
        input=json.dumps({**given, "uid": OTHER}),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found: list[str] = json.loads(done.stdout)
    return found
