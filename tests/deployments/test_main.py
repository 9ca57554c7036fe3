"""How the program behind `make run` reports invalid settings before it starts anything."""

import asyncio
import json
import os
import re
import shlex
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import ray
import yaml
from ray import serve

from configs import running
from configs.environment import sqlite_url
from configs.settings import DATABASE, OWNER, PROJECT_DIR, load_settings, setting_names
from db.database import make_engine
from db.errors import DatabaseUnavailable
from deployments import main as program
from deployments.cluster import serve_api
from deployments.cluster.readiness import readyz
from deployments.main import announce, doubts, prepare_database, show_notes, wait_until_ready, watch
from deployments.rollout.deploy import GB, RAY_BYTES, REPLICA_BYTES, memory_warning
from deployments.rollout.serve_config import read_config
from tests.deployments.forked import run_forked
from tests.promises.conftest import config_without_weights
from tests.servers import UNUSABLE_PROXIES, free_port


def run_program(
    folder: Path, *arguments: str, module: str = "deployments.main", **variables: str
) -> tuple[int, str, str]:
    """The exit status of the program, its stdout and its stderr."""
    ports = {"PORT": str(free_port()), "RAY_DASHBOARD_PORT": str(free_port())}
    environment = {**os.environ, "ANTIPHON_DATA": str(folder), **ports, **variables}
    done = run_forked(module, arguments, environment)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


@pytest.fixture
def taken_port() -> Iterator[int]:
    """A port on which another process listens with SO_REUSEPORT, as another gateway does."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


@pytest.mark.parametrize(
    ("name", "value"),
    [("PORT", "abc"), ("DATABASE_URL", "postgresql://user:canary@127.0.0.1:1/database")],
)
def test_an_invalid_setting_stops_the_start_with_a_one_line_error(
    tmp_path: Path, name: str, value: str
) -> None:
    status, output, errors = run_program(tmp_path, **{name: value})
    assert (status, output) == (1, "")
    assert errors.startswith(name) and errors.count("\n") == 1, errors
    assert "canary" not in errors


@pytest.mark.parametrize("module", ["deployments.main", "deployments.operator"])
def test_a_start_with_a_used_database_and_no_secrets_writes_nothing(
    database_url: str, tmp_path: Path, module: str
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    command = ["first-key"] if module == "deployments.operator" else []
    run = partial(run_program, module="deployments.operator", DATABASE_URL=database_url)
    assert run(first, "first-key")[0] == 0
    assert (first / "secrets.json").exists()
    for _ in range(2):  # the first refusal must not let the second start pass
        status, output, errors = run(second, *command, module=module)
        assert (status, output) == (1, "") and errors.count("\n") == 1, errors
        assert "not what this database was used with" in errors
        written = {path.name for path in second.rglob("*") if path.is_file()}
        assert written <= {"secrets.lock"}
    assert run(first, "users")[0] == 0


DROPPED = """
import os, signal, time
from deployments.main import interrupt_on_signals

class Dropped:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.1)

interrupt_on_signals()
try:
    Dropped()
    os.kill(os.getpid(), signal.SIGINT)  # changes nothing
    time.sleep(60)
    print("lasts")
except KeyboardInterrupt:
    print("interrupted")
"""


def test_a_signal_whose_exception_is_dropped_interrupts_again() -> None:
    """As by Python's own hook of the module `logging`, when it came at a fork."""
    command = [sys.executable, "-c", DROPPED]
    done = subprocess.run(command, cwd=PROJECT_DIR, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "interrupted\n"), done.stderr
    assert "Exception ignored in: <function Dropped.__del__" in done.stderr


@pytest.mark.parametrize(
    "module", ["configs.environment", pytest.param("deployments.main", marks=pytest.mark.slow)]
)
def test_a_start_on_a_port_in_use_is_refused(tmp_path: Path, taken_port: int, module: str) -> None:
    program = partial(run_program, tmp_path, module=module)
    status, output, errors = program(HOST="127.0.0.1", PORT=str(taken_port))
    assert (status, output) == (1, "")
    assert errors.startswith("HOST and PORT"), errors
    assert errors.endswith("; set PORT to a free port\n"), errors
    address = f"192.0.2.1:{taken_port}"
    settings = {"CLUSTER_ADDRESS": address, "DATABASE_URL": "", "STORAGE_SHARED": "on"}
    status, output, errors = program(**settings)
    assert (status, output) == (1, "")
    assert errors.startswith("CLUSTER_ADDRESS"), errors
    assert errors.endswith("; set the port of CLUSTER_ADDRESS to a free port\n"), errors
    status, output, errors = program(RAY_DASHBOARD_PORT=str(taken_port))
    assert (status, output) == (1, "")
    assert errors.startswith(f"RAY_DASHBOARD_PORT is {taken_port}, where nothing"), errors
    assert errors.endswith("; set RAY_DASHBOARD_PORT to a free port\n"), errors


HOLDER = """
import sys, time
from pathlib import Path
from configs import running
folder = running.take(Path(sys.argv[1]), "http://127.0.0.1:8123")
print("taken", flush=True)
time.sleep(600)
"""


def test_a_second_service_on_a_data_folder_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(running, "WAIT_S", 0.2)
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, cwd=PROJECT_DIR, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"taken\n"
        tmp_path.chmod(0o700)
        status, output, errors = run_program(tmp_path)
        assert (status, output) == (1, "")
        assert errors == (
            f"ANTIPHON_DATA: the service at http://127.0.0.1:8123 (process {holder.pid}) uses the"
            f" folder {str(tmp_path)!r}: stop it, or set ANTIPHON_DATA to another folder\n"
        )
        own_file = sqlite_url(tmp_path / "own.db")  # SQLite is not shared
        assert run_program(tmp_path, DATABASE_URL=own_file) == (1, "", errors)
        assert running.take(tmp_path, "http://127.0.0.1:8124", may_share=True) is None
        assert running.find(tmp_path) == "http://127.0.0.1:8123"
        holder.kill()
    assert running.find(tmp_path) is None
    with running.take(tmp_path, "http://127.0.0.1:8124") or pytest.fail("taken"):
        assert running.find(tmp_path) == "http://127.0.0.1:8124"


def test_commands_to_copy_carry_what_the_user_has_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    values = {
        "ANTIPHON_DATA": str(tmp_path),
        "HOST": "0.0.0.0",
        "PORT": "8123",
        "RAY_DASHBOARD_PORT": "8300",
        "PUBLIC_URL": "https://speech.example",
        "TRUSTED_PROXIES": "10.0.0.0/8, 10.1.0.0/16",
    }
    secrets = {
        "DATABASE_URL": "postgresql://u:canary@db/x",
        "REDIS_URL": "redis://cache:6379/0?password=canary",
        "STORAGE_URL": "s3://box/files?secret=canary",
        "PLAN_WEBHOOK_URL": "https://pay.example/?token=canary",
        "ANTIPHON_KEY_PEPPER": "canary" * 9,
        "METRICS_TOKEN": "canary" * 3,
        "WYOMING_KEY": "canary",
    }
    starts = {"PROFILE": "gpu", "SIGN_UP": "closed", "WEBRTC": "on"}
    for name, value in (values | secrets | starts).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv(OWNER, "1")
    monkeypatch.setenv("ANTIPHON_KEY", "canary")
    for command, given in (
        (program.operator_command("doctor"), values),
        (" ".join(program.own_variables(setting_names())), values | starts),
    ):
        assert "canary" not in command and OWNER not in command
        words = shlex.split(command) if command.startswith("env ") else command
        for name, value in given.items():
            assert f"{name}={value}" in words
        assert not any(f"{name}=" in command for name in secrets)


@pytest.mark.parametrize("text", [None, "[]", "applications: ["])
def test_a_missing_or_bad_config_file_is_a_usage_error(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "serve.yaml"
    if text is not None:
        file.write_text(text)
    status, _, errors = run_program(tmp_path, "--config", str(file))
    assert status == 2 and "--config: " in errors and "Traceback" not in errors, errors


def test_a_misspelt_option_is_a_usage_error(tmp_path: Path) -> None:
    file, config = tmp_path / "serve.yaml", config_without_weights()
    config["applications"][0]["deployments"][0]["max_ongoing_reqests"] = 8
    file.write_text(yaml.safe_dump(config))
    closed = "postgresql://a:b@127.0.0.1:1/c"  # ends a start that does not check
    status, output, errors = run_program(tmp_path, "--config", str(file), DATABASE_URL=closed)
    assert (status, output) == (2, "") and "Traceback" not in errors, errors
    option = "applications.gateway.deployments.Gateway.max_ongoing_reqests"
    assert f"--config: unknown option: {option}" in errors


@pytest.mark.parametrize("is_new", [True, False])
async def test_a_start_names_the_lock_of_its_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_new: bool
) -> None:
    monkeypatch.setitem(make_engine.__kwdefaults__ or {}, "busy_timeout_ms", 100)
    monkeypatch.setenv("ANTIPHON_DATA", str(tmp_path))
    settings = load_settings()
    if not is_new:
        await prepare_database(settings)
    with closing(sqlite3.connect(tmp_path / DATABASE, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(DatabaseUnavailable, match="locked by another process|keep it locked"):
            await prepare_database(settings)
    await prepare_database(settings)


@pytest.mark.parametrize(
    ("host", "public_url", "expected"),
    [("127.0.0.1", "", 0), ("0.0.0.0", "", 1), ("::", "", 1), ("::", "https://speech.example", 0)],
)
def test_a_wildcard_host_without_a_public_url_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str, public_url: str, expected: int
) -> None:
    monkeypatch.setenv("ANTIPHON_DATA", str(tmp_path))
    monkeypatch.setenv("HOST", host)
    monkeypatch.setenv("PUBLIC_URL", public_url)
    warnings = doubts(load_settings())
    assert len(warnings) == expected and all("PUBLIC_URL" in text for text in warnings)


@pytest.mark.parametrize(
    ("name", "value", "warning"),
    [
        ("PUBLIC_URL", "https://example.org/speech", "need a host name of their own"),
        ("PUBLIC_URL", "https://speech.example.org/", None),
        ("WEBRTC_ADDRESSES", "192.0.2.77", "set 0.0.0.0=192.0.2.77"),
        ("WEBRTC_ADDRESSES", "192.0.2.77=203.0.113.7", "set 0.0.0.0=203.0.113.7"),
        ("WEBRTC_ADDRESSES", "0.0.0.0=203.0.113.7,127.0.0.1", None),
    ],
)
def test_an_address_that_clients_cannot_use_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str, warning: str | None
) -> None:
    monkeypatch.setenv("ANTIPHON_DATA", str(tmp_path))
    monkeypatch.setenv(name, value)
    warnings = doubts(load_settings())
    assert len(warnings) == (warning is not None)
    assert all(text.startswith(name) and str(warning) in text for text in warnings)


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        ("SIGNUP", "SIGN_UP"),
        ("PUBLICURL", "PUBLIC_URL"),
        ("CORS_ORIGIN", "CORS_ORIGINS"),
        ("OPERATER_TOKEN", "OPERATOR_TOKEN"),
        ("SIGN_UP", None),
        ("DATABASE", None),
        ("PLAN_WEBHOOK_URL", None),
    ],
)
def test_a_setting_that_is_nearly_spelt_right_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, setting: str | None
) -> None:
    monkeypatch.setenv("ANTIPHON_DATA", str(tmp_path))
    settings = load_settings()
    monkeypatch.setenv(name, "closed")
    expected = [f"{name} is not a setting and has no effect; did you mean {setting}?"]
    assert doubts(settings) == (expected if setting else [])


@pytest.mark.parametrize(
    ("host", "expected"), [("127.0.0.1", ("open", "self")), ("0.0.0.0", ("closed", "operator"))]
)
def test_the_start_prints_who_can_sign_up_and_who_changes_plans(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    host: str,
    expected: tuple[str, str],
) -> None:
    monkeypatch.setenv("ANTIPHON_DATA", str(tmp_path))
    monkeypatch.setenv("HOST", host)
    announce("is ready", load_settings(), "http://dashboard", 0.0)
    sign_up, plan_changes = expected
    output = capsys.readouterr().out
    assert f"Sign-up    {sign_up} (SIGN_UP)" in output
    assert f"Plans      {plan_changes} (PLAN_CHANGES)" in output


def test_each_start_for_this_machine_alone_links_on_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ANTIPHON_DATA", str(tmp_path))
    monkeypatch.setenv("PORT", "8123")
    monkeypatch.setenv(OWNER, "1")  # of another start
    consoles: list[str] = []
    for host in ("0.0.0.0", "127.0.0.1", "0.0.0.0", "127.0.0.1"):
        is_alone = host == "127.0.0.1"
        monkeypatch.setenv("HOST", host)
        first_key = asyncio.run(prepare_database(load_settings()))
        assert (first_key is None) == bool(consoles)
        settings = load_settings()  # as a gateway does
        assert (settings.free_workspace_id is not None) == is_alone
        for is_terminal in (True, False):
            monkeypatch.setattr(sys.stdout, "isatty", lambda value=is_terminal: value)
            announce("is ready", settings, "http://dashboard", 0.0)
            output = capsys.readouterr().out
            assert "export ANTIPHON_URL=http://127.0.0.1:8123\n" in output
            consoles += re.findall(r"^  Console    (.+)$", output, re.MULTILINE)
            assert ("once, within 10 minutes" in output) == (is_alone and is_terminal)
            command = rf"env ANTIPHON_DATA={tmp_path} HOST={host} PORT=8123 RAY\S+ \S*antiphon "
            assert bool(re.search(f"{command}login-link", output)) == (is_alone and not is_terminal)
            assert bool(re.search(f"{command}set-password --new-email", output)) == (not is_alone)
    links = consoles[2::4]
    assert len(consoles) == 8 and links[0] != links[1]
    for console in consoles:
        start, _, token = console.partition("#login=")
        assert start == "http://127.0.0.1:8123/console"
        assert token.startswith("login_") == (console in links)


def test_a_start_with_too_little_free_memory_says_what_it_needs() -> None:
    config = config_without_weights()
    need = RAY_BYTES + 4 * REPLICA_BYTES  # its engines have no weights
    assert memory_warning(config, need) is None
    warning = memory_warning(config, 1_800_000_000)
    assert warning is not None and "CHAT_MODEL" in warning
    assert warning.startswith("1.8 GB of memory are free, and the service with its models needs")
    whole = read_config(PROJECT_DIR / "serve_config.yaml")
    assert memory_warning(whole, need) is not None


def test_the_service_says_what_memory_killed_and_when_nothing_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ANTIPHON_DATA", str(tmp_path))
    monkeypatch.delenv("RAY_TMPDIR", raising=False)
    logs = tmp_path / "ray/ray/session_latest/logs"
    logs.mkdir(parents=True)
    answers: list[dict[str, Any] | None] = [{}, None, {}, None, None, None, {}]
    killed = (
        "[state-dump] 8 Workers (tasks / actors) killed due to memory pressure (OOM), 0 crashed"
    )

    def ask(url: str) -> tuple[int, dict[str, Any]] | None:
        if not answers:
            raise KeyboardInterrupt
        if len(answers) == 4:
            (logs / "raylet.err").write_text(f"{killed}\n")
        return None if (body := answers.pop(0)) is None else (200, body)

    monkeypatch.setattr(program, "ask", ask)
    monkeypatch.setattr(program, "WATCH_S", 0.0)
    with pytest.raises(KeyboardInterrupt):
        watch(load_settings())
    lines = capsys.readouterr().out.splitlines()
    silent = next(line for line in lines if "does not answer any more" in line)
    deaths = next(line for line in lines if "for lack of memory" in line)
    assert deaths.startswith("Ray has ended 8 processes") and "CHAT_MODEL" in deaths
    assert len(lines) == 4 and lines.index(silent) == 0 + (lines[0] == deaths)
    assert lines[-1].endswith("answers again.")


def test_a_stop_ends_although_serve_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(ray, "shutdown", ended.set)
    monkeypatch.setattr(serve, "status", threading.Event().wait)  # as without a controller
    monkeypatch.setattr(program, "SERVE_STOP_S", 0.1)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    program.stop(None)
    assert ended.is_set()


def test_notes_of_chat_models_are_printed_and_none_ends_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ANTIPHON_DATA", str(tmp_path))
    config = read_config(PROJECT_DIR / "configs" / "serve_gpu.yaml")
    show_notes(config, 64 * GB)
    assert "  Chat       svc/slm-3b-int4, by HuggingFaceTB" in capsys.readouterr().out
    [chat] = [
        entry
        for application in config["applications"]
        for entry in application["deployments"]
        if entry["name"] == "Chat"
    ]
    broken = tmp_path / "broken.yaml"
    broken.write_text("engine: [")
    for wrong in ({"model": "llm/none"}, {"model": str(broken)}, {"modle": "x"}, None):
        chat["user_config"] = wrong
        show_notes(config, 64 * GB)
    assert not capsys.readouterr().out


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"status": "degraded", "degraded": ["files"]}', ["files"]),
        (b'{"status": "ok"}', []),
        (b"<html>", None),  # another program
    ],
)
def test_degraded_stores_are_read_from_readyz(
    service: "Service", body: bytes, expected: list[str] | None
) -> None:
    service.body = body
    url = f"http://127.0.0.1:{service.server_port}/readyz"
    response = readyz(url)
    assert (None if response is None else response.get("degraded", [])) == expected
    service.shutdown()
    service.server_close()
    assert readyz(url) is None


class Service(HTTPServer):
    """Serve's API and a gateway on one port, where the models but for `down` answer."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.down: set[str] = set()
        self.message = "not ready: {}"
        self.gateway_status = 200
        self.body: bytes | None = None  # in place of its own
        self.applications: dict[str, Any] = {}


class _Handler(BaseHTTPRequestHandler):
    server: Service

    def do_GET(self) -> None:
        path, _, asked = self.path.partition("?models=")
        missing = sorted(self.server.down & set(asked.split(",")))
        body: dict[str, Any] = {"message": self.server.message.format(", ".join(missing))}
        if path.startswith("/api"):
            body = {"applications": self.server.applications}
        self.send_response(503 if missing else self.server.gateway_status)
        self.end_headers()
        self.wfile.write(self.server.body or json.dumps(body).encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    monkeypatch.setattr(program, "READY_TIMEOUT_S", 0.3)
    monkeypatch.setenv("ANTIPHON_DATA", str(tmp_path))
    monkeypatch.setenv("HOST", "127.0.0.1")
    with Service() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("PORT", str(server.server_port))
        yield server
        server.shutdown()


def wait(service: Service, failed: set[str]) -> None:
    names = {"Chat", "STT", "TTS"}
    dashboard = f"http://127.0.0.1:{service.server_port}"
    wait_until_ready(load_settings(), dashboard, names, names, failed)


def test_a_model_that_hangs_at_the_start_takes_only_itself_out(
    service: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    service.down, failed = {"STT"}, set[str]()
    wait(service, failed)
    late = "not ready after 0.3 s; the logs in Ray's dashboard say more"
    assert (failed, capsys.readouterr().out) == ({"STT"}, f"STT is not available: {late}\n")


def test_a_gateway_that_is_late_ends_the_start(service: Service) -> None:
    service.gateway_status = 500
    with pytest.raises(TimeoutError, match=r"^the gateway is not ready after 0.3 s; "):
        wait(service, set())


def test_a_database_that_does_not_answer_is_not_taken_for_models(service: Service) -> None:
    service.down, service.message = {"Chat", "STT", "TTS"}, "the database does not answer in time"
    with pytest.raises(TimeoutError, match="say more: the database does not answer in time$"):
        wait(service, set())


def test_the_start_asks_this_machine_past_a_proxy_of_the_environment(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in UNUSABLE_PROXIES.items():
        monkeypatch.setenv(name, value)
    failed = set[str]()
    wait(service, failed)
    assert not failed
    assert serve_api.applications(f"http://127.0.0.1:{service.server_port}") == {}


@pytest.mark.parametrize(
    "module", ["deployments.main", "deployments.join", "deployments.rollout.deploy"]
)
def test_programs_set_the_switches_of_ray_before_they_import_it(module: str) -> None:
    """Ray reads its switches, such as that for tokens, when it is imported."""
    asked = f"import sys, {module}; print('ray' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
