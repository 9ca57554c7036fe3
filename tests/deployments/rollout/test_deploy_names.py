"""Names, fallbacks and files of chat models, which `antiphon deploy` compares."""

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from configs.settings import PROJECT_DIR
from deployments.rollout import deploy
from deployments.rollout.check import application_problems, option_problems
from deployments.rollout.deploy import model_problems
from tests.deployments.rollout.test_deploy import application, entry
from tests.promises.conftest import config_without_weights

GGUF = {"engine": "llama_cpp", "weights": "/models/mine.gguf", "unverified": True}


def with_model(folder: Path, **options: Any) -> dict[str, Any]:
    """The configuration with a second chat model, whose YAML is outside of the tree."""
    mine = {"id": "svc/mine", "owned_by": "me", "created": 0, "languages": ["en"]}
    file = folder / "mine.yaml"
    file.write_text(yaml.safe_dump({"engine": "tests.engines.echo:EchoEngine"} | mine | options))
    config = config_without_weights()
    models = application(config, "models")
    other = copy.deepcopy(entry(config, "Chat"))
    models["args"]["chat"].append("Other")
    models["deployments"].append(other | {"name": "Other", "user_config": {"model": str(file)}})
    return config


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"aliases": ["gpt-4o-mini"], "fallback": "svc/echo"}, None),
        ({"aliases": ["svc/mine"], "fallback": "svc/mine"}, None),
        ({"aliases": ["svc/echo"]}, "Other and Chat both answer to 'svc/echo'"),
        ({"fallback": "svc/none"}, "Other: its fallback 'svc/none' is no model"),
        (GGUF, "mine.yaml: [Errno 2] No such file or directory: '/models/mine.gguf'"),
    ],
)
def test_names_of_two_models_unknown_fallbacks_and_missing_files_are_problems(
    tmp_path: Path, options: dict[str, Any], problem: str | None
) -> None:
    found = deploy.model_problems(with_model(tmp_path, **options))
    assert len(found) == (problem is not None)
    assert not found or str(problem) in found[0]


def test_a_file_that_is_read_where_it_is_needs_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "mine.gguf"
    with path.open("wb") as file:
        file.truncate(3 << 30)
    config = with_model(tmp_path, **GGUF | {"weights": str(path)})
    monkeypatch.setattr(deploy, "free_bytes", lambda: 1 << 30)
    problem = deploy.memory_problem(config, {"Other": 1})
    assert problem is not None and problem.startswith("the weights of Other need 3.0 GiB")


@pytest.mark.parametrize("file", ["serve_config.yaml", "configs/serve_gpu.yaml"])
def test_the_configurations_of_the_tree_have_no_problem(file: str) -> None:
    config = yaml.safe_load((PROJECT_DIR / file).read_text())
    assert application_problems(config) == option_problems(config) == []


def test_a_number_as_the_build_is_one_as_its_text() -> None:
    config = config_without_weights()
    for application_ in config["applications"]:
        application_.setdefault("args", {})["build"] = 2
    assert application_problems(config) == []


def test_only_chat_models_are_chosen_by_the_service() -> None:
    config = config_without_weights()
    entry(config, "STT")["user_config"] = {"model": "auto"}
    assert model_problems(config) == ["STT: only a chat model can be 'auto' without `wanted`"]


def test_models_are_checked_without_ray() -> None:
    assert model_problems(config_without_weights()) == []
