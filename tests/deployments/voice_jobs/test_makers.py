"""Which way of making voices the configuration chooses."""

from typing import Any

import pytest

from configs.load import load_yaml
from configs.schema.voices import CustomVoicesConfig
from deployments.voice_jobs import makers
from deployments.voice_jobs.makers import FitMaker, PromptMaker, configured_maker

SHIPPED = load_yaml(CustomVoicesConfig, "custom_voices")


def chosen(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> makers.Maker:
    config = SHIPPED.model_copy(update=changes)
    monkeypatch.setattr(makers, "load_yaml", lambda shape, name: config)
    return configured_maker()


def test_a_fit_is_made_for_kokoro_by_many_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    maker = chosen(monkeypatch, method="fit")
    assert isinstance(maker, FitMaker)
    assert (maker.engine, maker.gpus) == ("kokoro", 0.0)
    assert maker.most_workers == SHIPPED.work.most_workers


def test_a_prompt_is_judged_by_one_with_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    maker = chosen(monkeypatch, method="prompt")
    assert isinstance(maker, PromptMaker)
    assert (maker.engine, maker.most_workers, maker.gpus) == ("csm", 1, SHIPPED.prompt.gpus)
    alone = SHIPPED.prompt.model_copy(update={"judge": False})
    assert chosen(monkeypatch, method="prompt", prompt=alone).gpus == 0.0
