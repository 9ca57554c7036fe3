"""The maker of custom voices that the configuration selects."""

from typing import Any

import pytest

from configs.load import load_yaml
from configs.schema.voices import CustomVoicesConfig
from deployments.voice_jobs import makers
from deployments.voice_jobs.makers import FitMaker, PromptMaker, configured_maker

SHIPPED = load_yaml(CustomVoicesConfig, "custom_voices")


def configured_with(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> makers.Maker:
    config = SHIPPED.model_copy(update=changes)
    monkeypatch.setattr(makers, "load_yaml", lambda shape, name: config)
    return configured_maker()


def test_method_fit_uses_kokoro_and_many_workers_on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    maker = configured_with(monkeypatch, method="fit")
    assert isinstance(maker, FitMaker)
    assert (maker.engine, maker.gpus) == ("kokoro", 0.0)
    assert maker.most_workers == SHIPPED.work.most_workers


def test_method_prompt_uses_csm_and_one_worker_with_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    maker = configured_with(monkeypatch, method="prompt")
    assert isinstance(maker, PromptMaker)
    assert (maker.engine, maker.most_workers, maker.gpus) == ("csm", 1, SHIPPED.prompt.gpus)
    alone = SHIPPED.prompt.model_copy(update={"judge": False})
    assert configured_with(monkeypatch, method="prompt", prompt=alone).gpus == 0.0
