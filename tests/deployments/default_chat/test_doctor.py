"""What `antiphon doctor` says of the running service."""

import logging
from pathlib import Path
from typing import Any

import pytest

from configs.settings import load_settings
from deployments.cli import doctor
from deployments.cli.doctor import Problem, check_chat, check_service, check_storage

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
    status: int, report: dict[str, Any], line: str
) -> None:
    with pytest.raises(Problem, match=f"^{line}"):
        check_service(lambda: (status, {"degraded": [*report]} | report))


def test_the_doctor_asks_the_service_for_its_readiness_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[object] = []

    def report(settings: object) -> tuple[int, dict[str, Any]]:
        asked.append(settings)
        return 200, {"status": "ok", "chat": {"model": "svc/a"}}

    monkeypatch.setenv("ANTIPHON_DATA", str(tmp_path))
    settings = load_settings()
    monkeypatch.setattr(doctor, "load_settings", lambda new: settings)
    monkeypatch.setattr(doctor, "readyz", lambda url: {"status": "ok"})
    monkeypatch.setattr(doctor, "report", report)
    monkeypatch.setattr(logging, "disable", lambda: None)
    with pytest.raises(SystemExit):
        doctor.main.main([])
    lines = capsys.readouterr().out
    assert "service    is ready" in lines and "chat       svc/a answers" in lines
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
