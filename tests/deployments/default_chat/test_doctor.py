"""What `antiphon doctor` says of the running service."""

from pathlib import Path
from typing import Any

import pytest

from configs.settings import load_settings
from deployments.cli import doctor
from deployments.cli.doctor import Problem, check_chat, check_ports

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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chat: dict[str, Any], line: str
) -> None:
    monkeypatch.setenv("ANTIPHON_DATA", str(tmp_path))
    monkeypatch.setattr(doctor, "readyz", lambda url: {"status": "ok", "chat": chat})
    assert check_chat(load_settings()) == line
    chat["coming"] = {**COMING, "problem": "no network"}
    with pytest.raises(Problem, match="42% of svc/large are present: no network$"):
        check_chat(load_settings())


def test_the_doctor_says_why_the_service_is_degraded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTIPHON_DATA", str(tmp_path))
    report = {"status": "degraded", "degraded": ["cluster"], "cluster": {"Chat": "release 2"}}
    ok = {"status": "ok"}
    monkeypatch.setattr(doctor, "listen_problem", lambda host, port: "already in use")
    monkeypatch.setattr(doctor, "readyz", lambda url: report if url.endswith("/readyz") else ok)
    with pytest.raises(
        Problem, match=r"^/readyz is degraded: cluster \[\{'Chat': 'release 2'\}\]$"
    ):
        check_ports(load_settings())
