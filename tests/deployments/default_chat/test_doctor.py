"""What `antiphon doctor` says of the running service."""

import asyncio
import json
import logging
import os
import re
import socket
import time
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import pytest

from configs import running
from configs.environment import SettingsError
from configs.settings import DATABASE, Settings, load_settings, load_settings_of_service
from deployments.cli import doctor
from deployments.cli.administration import operator
from deployments.cli.doctor import (
    Off,
    Problem,
    Wait,
    ask_ray,
    check_chat,
    check_ports,
    check_service,
    check_storage,
    outcome,
)
from deployments.cluster import serve_api
from deployments.cluster.readiness import local_url
from tests.servers import free_port


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("ANTIPHON_DATA", str(tmp_path))
    monkeypatch.setenv("PORT", str(free_port()))
    monkeypatch.delenv("RAY_TMPDIR", raising=False)
    return load_settings()


COMING = {"model": "svc/large", "got_bytes": 420, "size_bytes": 1000}


@pytest.mark.parametrize(
    ("chat", "line"),
    [
        ({"model": "svc/a"}, "svc/a answers; CHAT_MODEL selects another model"),
        (
            {"model": "svc/a", "coming": COMING},
            "svc/a answers, and 42% of svc/large are present; CHAT_MODEL selects another model",
        ),
        (
            {"coming": COMING},
            "no model answers, and 42% of svc/large are present; CHAT_MODEL selects another model",
        ),
    ],
)
def test_the_doctor_says_which_chat_model_answers_and_which_comes(
    chat: dict[str, Any], line: str
) -> None:
    assert check_chat(lambda: (200, {"status": "ok", "chat": chat})) == line
    stuck = chat | {"coming": {**COMING, "problem": "no network"}}
    with pytest.raises(Problem, match="42% of svc/large are present: no network$"):
        check_chat(lambda: (200, {"status": "ok", "chat": stuck}))


@pytest.mark.parametrize(
    ("status", "report", "line"),
    [
        (200, {"cluster": {"Chat": "release 2"}}, "degraded: Chat: release 2; update the process"),
        (
            200,
            {"degraded": ["models"]},
            r"degraded: the log has the reason \(model_swap_failed\); .*METRICS_TOKEN it is shown",
        ),
        (200, {"degraded": ["limits", "files"]}, r"degraded: .*`redis`.*\. .*see `storage`$"),
        (503, {"message": "not ready: STT"}, "/readyz is 503: not ready: STT; the log"),
    ],
)
def test_the_doctor_says_why_the_service_is_degraded_and_what_to_do(
    settings: Settings, status: int, report: dict[str, Any], line: str
) -> None:
    ask = lambda: (status, {"degraded": [*report]} | report)  # noqa: E731
    with pytest.raises(Problem, match=f"^{line}"):
        check_service(settings, ask, lambda: None)


def application(status: str) -> dict[str, Any]:
    return {"status": status, "message": "x", "deployments": {}}


LOADING = (503, {"message": "not ready: STT"})


@pytest.mark.parametrize(
    ("answer", "in_ray", "line"),
    [
        (None, None, "does not run at http.*; no service uses .*set ANTIPHON_DATA; if"),
        (None, {}, "is starting: no gateway answers"),
        (
            LOADING,
            {"gateway": application("RUNNING"), "models": application("DEPLOYING")},
            "is starting: /readyz is 503: not ready: STT",
        ),
        (LOADING, {"models": application("RUNNING")}, "FIX .*STT; the log has the cause"),
        (LOADING, {"models": application("DEPLOY_FAILED")}, "FIX .*STT; models: x"),
        (None, {"gateway": application("RUNNING")}, "FIX no gateway answers; the log"),
    ],
)
def test_the_doctor_tells_a_start_from_a_failure_and_names_memory(
    settings: Settings,
    answer: tuple[int, dict[str, Any]] | None,
    in_ray: dict[str, Any] | None,
    line: str,
) -> None:
    def found() -> str:
        try:
            return check_service(settings, lambda: answer, lambda: in_ray)
        except Problem as problem:
            return f"FIX {problem}"

    assert re.match(line, found())
    logs = settings.data_dir / "ray/ray/session_latest/logs"
    logs.mkdir(parents=True)
    (logs / "raylet.err").write_text("8 Workers (tasks / actors) killed due to memory pressure")
    is_running = answer is not None or in_ray is not None
    assert ("; Ray has ended 8 processes" in found()) == is_running


def test_commands_find_the_service_of_the_data_folder(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_DASHBOARD_PORT", "1234")
    url = local_url(settings)
    with running.take(settings.data_dir, url) or pytest.fail("taken"):
        for name in ("PORT", "RAY_DASHBOARD_PORT"):
            monkeypatch.delenv(name)
        settings.data_dir.joinpath(DATABASE).touch()
        found = load_settings_of_service()
        assert local_url(found) == url and os.environ["RAY_DASHBOARD_PORT"] == "1234"
        line = check_service(found, lambda: None, lambda: None)  # before its cluster has begun
        assert isinstance(line, Wait) and line.startswith("is starting")
        monkeypatch.setenv("PORT", str(free_port()))
        other = load_settings_of_service()
        line = check_service(other, lambda: None, lambda: {"gateway": application("RUNNING")})
        assert line.startswith(f"does not run at {local_url(other)}; the service of ")
        assert f"runs at {url}: unset HOST and PORT" in line
    monkeypatch.delenv("PORT")
    assert load_settings_of_service().port == 8000  # nothing is left of a service that has ended


@pytest.mark.parametrize(("age_s", "state"), [(10, "wait"), (1000, "FIX")])
def test_a_controller_that_does_not_run_yet_has_not_died(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, age_s: int, state: str
) -> None:
    def no_controller(*_: object, **__: object) -> NoReturn:
        raise ValueError

    monkeypatch.setattr(serve_api, "nodes", lambda _: [])
    monkeypatch.setattr(serve_api, "applications", no_controller)
    with running.take(settings.data_dir, local_url(settings)) or pytest.fail("taken"):
        began = time.time() - age_s
        os.utime(settings.data_dir / running.FILE, (began, began))
        for in_ray in (partial(ask_ray, settings), lambda: None):  # with and without a cluster
            check = partial(check_service, settings, lambda: None, in_ray)
            assert asyncio.run(outcome(check))[0] == state


@pytest.mark.parametrize("kind", ["pid", "net"])
def test_a_service_in_a_container_is_not_taken_for_one_here(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(running, "WAIT_S", 0.0)
    own = running._namespace
    url = local_url(settings)
    monkeypatch.setenv("PUBLIC_URL", "")  # restored after the test
    with monkeypatch.context() as container:
        container.setenv("PUBLIC_URL", "https://speech.example.com")
        container.setattr(running, "_namespace", lambda each: own(each) + "1" * (each == kind))
        container.setattr(running, "gethostname", lambda: "box")
        folder = running.take(settings.data_dir, url) or pytest.fail("taken")
    with folder:
        monkeypatch.delenv("PORT")
        assert running.find(settings.data_dir) == (url if kind == "pid" else None)
        assert os.environ["PUBLIC_URL"] == "https://speech.example.com"
        assert ("PORT" in os.environ) == (kind == "pid")
        with pytest.raises(SettingsError, match=r"another machine \(box\) uses the folder"):
            running.take(settings.data_dir, url)
        if kind == "net":
            line = check_service(settings, lambda: None, lambda: None)
            assert isinstance(line, Off) and line.endswith(": run this command there")
            settings.data_dir.joinpath(DATABASE).touch()
            with pytest.raises(SystemExit, match=r"\(box\) uses .*: run this command there$"):
                operator(["login-link"])


@pytest.mark.parametrize("written", ["", "{", '{"process": 1}', "net only"])
def test_a_lock_file_without_all_its_content_names_another_service(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, written: str
) -> None:
    monkeypatch.setattr(running, "WAIT_S", 0.0)
    if written == "net only":
        written = json.dumps({"net": running._namespace("net")})
    with running.take(settings.data_dir, local_url(settings)) or pytest.fail("taken"):
        (settings.data_dir / running.FILE).write_text(written)
        assert running.find(settings.data_dir) is None
        with pytest.raises(SettingsError, match=": another service uses the folder"):
            running.take(settings.data_dir, local_url(settings))


@pytest.mark.parametrize(
    ("checks", "status"),
    [
        ({"service": "is ready", "redis": Off("none")}, 0),
        ({"service": Wait("is starting"), "redis": "answers"}, 0),
        ({"service": Off("does not run"), "redis": Off("none")}, 4),
        ({"service": Off("does not run"), "redis": Problem("is down")}, 1),
    ],
)
def test_each_line_of_the_doctor_and_the_exit_status_are_true(
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    checks: dict[str, str | Problem],
    status: int,
) -> None:
    def answer(name: str) -> str:
        result = checks.get(name, "well")
        if isinstance(result, Problem):
            raise result
        return result

    for name in [name for name in vars(doctor) if name.startswith("check_")]:
        found = partial(answer, name.removeprefix("check_"))
        monkeypatch.setattr(doctor, name, lambda *_, found=found: found())
        getattr(doctor, name).__name__ = name
    monkeypatch.setattr(doctor, "load_settings_of_service", lambda: settings)
    monkeypatch.setattr(logging, "disable", lambda: None)
    with pytest.raises(SystemExit) as ended:
        doctor.main.main([], standalone_mode=False)
    assert ended.value.code == status
    for line in capsys.readouterr().out.splitlines():
        state, name = line.split()[:2]
        result = checks.get(name, "well")
        expected = {Problem: "FIX", Off: "off", Wait: "wait", str: "ok"}[type(result)]
        assert (state, line.endswith(f" {result}")) == (expected, True)


def test_the_doctor_knows_a_dashboard_port_of_its_own_ray(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        number = listener.getsockname()[1]
        monkeypatch.setenv("RAY_DASHBOARD_PORT", str(number))
        own = check_ports(settings, dict)
        assert own.endswith(f"free, {number} is used by the Ray of this service")
        with pytest.raises(Problem, match="; set RAY_DASHBOARD_PORT to .*; no service uses"):
            check_ports(settings, lambda: None)


def test_the_doctor_asks_the_service_for_its_readiness_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[object] = []

    def report(settings: object) -> tuple[int, dict[str, Any]]:
        asked.append(settings)
        return 200, {"status": "ok", "chat": {"model": "svc/a"}}

    monkeypatch.setenv("ANTIPHON_DATA", str(tmp_path))
    settings = load_settings()
    monkeypatch.setattr(doctor, "load_settings_of_service", lambda: settings)
    monkeypatch.setattr(doctor, "readyz", lambda url: {"status": "ok"})
    monkeypatch.setattr(doctor, "report", report)
    monkeypatch.setattr(logging, "disable", lambda: None)
    with pytest.raises(SystemExit):
        doctor.main.main([])
    lines = capsys.readouterr().out
    assert f"service    is ready at {local_url(settings)}" in lines
    assert "chat       svc/a answers" in lines
    assert len(asked) == 1


async def test_the_doctor_tells_a_full_volume_of_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTIPHON_DATA", str(tmp_path))
    monkeypatch.setenv("FREE_SPACE_MB", "1000000000")
    settings = load_settings()
    with pytest.raises(
        Problem, match=r"free on the volume of files .*, and nothing is stored below"
    ):
        await check_storage(settings)
