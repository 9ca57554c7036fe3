"""The method by which a custom voice is made, by the configuration and the deployed models."""

from dataclasses import replace
from typing import Any

import pytest

from configs.load import load_yaml
from configs.schema.voices import CustomVoicesConfig
from deployments.leased_work import makers
from deployments.leased_work.makers import FitMaker, PromptMaker, maker_for
from models.base import ModelInfo

SHIPPED = load_yaml(CustomVoicesConfig, "custom_voices")
KOKORO = ModelInfo("svc/tts-quality", "tts", "kokoro", "us", 0, languages=("de", "en"))
CSM = ModelInfo(
    "svc/tts-csm",
    "tts",
    "csm",
    "us",
    0,
    languages=("en",),
    device="cuda",
    takes_voice_packs=True,
    pack="transcribed recording",
)


def configured(
    monkeypatch: pytest.MonkeyPatch, *deployed: ModelInfo, language: str = "en", **changes: Any
) -> makers.Maker:
    config = SHIPPED.model_copy(update=changes)
    monkeypatch.setattr(makers, "load_yaml", lambda shape, name: config)
    return maker_for(language, deployed)


def test_voices_are_fitted_where_no_cloning_engine_is_deployed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert SHIPPED.method == "auto"
    maker = configured(monkeypatch, KOKORO)
    assert isinstance(maker, FitMaker)
    assert (maker.engine, maker.gpus) == ("kokoro", 0.0)
    assert maker.most_workers == SHIPPED.work.most_workers


def test_a_deployed_cloning_engine_makes_the_voices_of_its_languages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    maker = configured(monkeypatch, KOKORO, CSM)
    assert isinstance(maker, PromptMaker)
    assert (maker.engine, maker.most_workers, maker.gpus) == ("csm", 1, SHIPPED.prompt.gpus)
    assert isinstance(configured(monkeypatch, KOKORO, CSM, language="de"), FitMaker)


@pytest.mark.parametrize("method", ["fit", "prompt"])
def test_a_forced_method_needs_no_deployment(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = {"fit": FitMaker, "prompt": PromptMaker}[method]
    for deployed in ((KOKORO, CSM), (KOKORO,)):
        assert isinstance(configured(monkeypatch, *deployed, method=method), expected)


def test_an_engine_on_the_cpu_takes_no_share_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    pocket = SHIPPED.prompt.model_copy(update={"model": "tts/pocket"})
    model = replace(CSM, engine="pocket", device="cpu", pack="recording")
    maker = configured(monkeypatch, CSM, model, prompt=pocket)
    assert (maker.engine, maker.gpus) == ("pocket", 0.0)
    alone = SHIPPED.prompt.model_copy(update={"judge": False})
    assert configured(monkeypatch, CSM, prompt=alone).gpus == 0.0
