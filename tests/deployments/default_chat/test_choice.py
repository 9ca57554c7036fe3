"""Which chat model `model: auto` stands for."""

import os
import re
from pathlib import Path
from typing import Any

import pytest

from configs.settings import PROJECT_DIR
from deployments import main as program
from deployments.default_chat.choice import resolved
from deployments.main import show_notes
from deployments.replicas import choice
from deployments.rollout.deploy import GB
from deployments.rollout.serve_config import read_config
from tests.deployments.rollout.test_deploy import entry
from tests.deployments.test_main import run_program

LARGE, MIDDLE, SMALL = "llm/qwen2_5_coder_1_5b", "llm/qwen2_5_coder_0_5b", "llm/smollm2"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The models whose weights are on this machine."""
    monkeypatch.setenv("ANTIPHON_DATA", str(tmp_path))
    monkeypatch.setenv("PORT", "8123")
    models = {LARGE, MIDDLE, SMALL}
    for module in (choice, program):
        monkeypatch.setattr(module, "is_here", lambda model: model in models)
    monkeypatch.setattr(choice, "free_bytes", lambda: 12 * 10**9)
    monkeypatch.setenv("CHAT_MODEL", "auto")
    return models


def chat_of(config: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = entry(config, "Chat")["user_config"]
    return found


def chosen(running: dict[str, Any] | None = None) -> tuple[str, str]:
    """The model that answers, and the one that is wanted."""
    found = chat_of(resolved(read_config(PROJECT_DIR / "serve_config.yaml"), running))
    return found["model"], found["wanted"]


@pytest.mark.parametrize(
    ("free_gb", "model"), [(9.5, LARGE), (9.49, MIDDLE), (6.5, MIDDLE), (6.49, SMALL), (0.1, SMALL)]
)
def test_the_free_memory_beside_the_service_decides(
    here: set[str], monkeypatch: pytest.MonkeyPatch, free_gb: float, model: str
) -> None:
    monkeypatch.setattr(choice, "free_bytes", lambda: int(free_gb * 1e9))
    assert chosen() == (model, model)


def test_the_best_one_that_is_here_answers_until_the_other_comes(here: set[str]) -> None:
    here.remove(LARGE)
    assert chosen() == (MIDDLE, LARGE)
    here.remove(MIDDLE)
    assert chosen() == (SMALL, LARGE)
    here.remove(SMALL)
    assert chosen() == ("auto", LARGE)


def test_the_setting_chooses_any_configuration(
    here: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHAT_MODEL", "llm/qwen3_4b")
    assert chosen() == (LARGE, "llm/qwen3_4b")
    monkeypatch.setenv("CHAT_MODEL", MIDDLE)
    assert chosen() == (MIDDLE, MIDDLE)
    here.remove(MIDDLE)
    assert chosen() == (SMALL, MIDDLE)  # and not the larger one


def test_a_deployment_keeps_what_the_start_has_chosen(
    here: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = resolved(read_config(PROJECT_DIR / "serve_config.yaml"))
    running = {one["name"]: {"deployed_app_config": one} for one in config["applications"]}
    monkeypatch.setattr(choice, "free_bytes", lambda: 10**9)  # the models have taken it
    assert chosen(running) == (LARGE, LARGE)
    assert chosen() == (SMALL, SMALL)
    monkeypatch.setenv("CHAT_MODEL", MIDDLE)
    assert chosen(running) == (MIDDLE, MIDDLE)


def test_a_model_that_the_operator_names_is_kept(
    here: set[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = read_config(PROJECT_DIR / "serve_config.yaml")
    entry(config, "Chat")["user_config"] = {"model": "llm/qwen3_8b"}
    monkeypatch.setenv("CHAT_MODEL", MIDDLE)
    assert resolved(config) == config
    show_notes(config, 64 * GB)
    assert "CHAT_MODEL is not used: Chat names its model" in capsys.readouterr().out


def test_the_start_names_what_answers_what_comes_and_what_is_better(
    here: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    here.remove(LARGE)
    show_notes(resolved(read_config(PROJECT_DIR / "serve_config.yaml")), 64 * GB)
    first, second, third, fourth = capsys.readouterr().out.splitlines()
    assert first.startswith("  Chat       svc/slm-0.5b-q4: 0.5 billion")
    assert second == "  Chat       svc/slm-1.5b-q4 will answer after its download"
    assert third.endswith("Better, if it can be downloaded: " + better_command("llm/qwen3_4b"))
    assert fourth.endswith(better_command("llm/qwen3_8b"))


def better_command(model: str) -> str:
    names = ("ANTIPHON_DATA", "PORT", "RAY_DASHBOARD_PORT")
    variables = " ".join(f"{name}={os.environ[name]}" for name in names)
    return f"{variables} CHAT_MODEL={model} make run"


def test_the_start_names_first_better_models_that_are_on_the_disk(
    here: set[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    here |= {"llm/qwen3_8b"}
    monkeypatch.setenv("CHAT_MODEL", MIDDLE)
    show_notes(resolved(read_config(PROJECT_DIR / "serve_config.yaml")), 64 * GB)
    _, *lines = capsys.readouterr().out.splitlines()
    named = [(LARGE, "and on this machine"), ("llm/qwen3_8b", "and on this machine")]
    named += [("llm/qwen3_4b", "if it can be downloaded")]
    expected = [f"Better, {where}: {better_command(model)}" for model, where in named]
    assert [line.strip() for line in lines] == expected
    monkeypatch.setenv("CHAT_MODEL", "llm/qwen3_8b")  # the best
    show_notes(resolved(read_config(PROJECT_DIR / "serve_config.yaml")), 64 * GB)
    assert "Better" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("free_gb", "better"),
    [
        (2.0, ""),
        (9.499, ""),
        (12, "llm/qwen3_4b"),
        (16, "llm/qwen3_4b llm/qwen3_8b"),
    ],
)
def test_only_better_models_that_fit_are_named(
    here: set[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    free_gb: float,
    better: str,
) -> None:
    free = int(free_gb * GB)
    monkeypatch.setattr(choice, "free_bytes", lambda: pytest.fail("measured again"))
    show_notes(resolved(read_config(PROJECT_DIR / "serve_config.yaml"), free=free), free)
    notes = capsys.readouterr().out
    assert " ".join(re.findall(r"CHAT_MODEL=(\S+)", notes)) == better
    figures = re.findall(r"only (\S+) GB of .*\n .*needs (\S+) GB \(\S+1_5b\)", notes)
    assert len(figures) == (free_gb < 9.5)
    assert all(float(has) < float(needs) for has, needs in figures)


def test_an_unknown_model_ends_the_start_with_the_list(tmp_path: Path) -> None:
    status, output, errors = run_program(tmp_path, CHAT_MODEL="llm/none")
    assert (status, output) == (1, "") and errors.count("\n") == 1
    assert errors.startswith("CHAT_MODEL is 'llm/none'") and LARGE in errors and SMALL in errors
