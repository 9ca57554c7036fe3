"""An engine with a small model, which all tests of vLLM share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from models.errors import WeightsMissing
from models.llm.base import ChatEngine
from models.weights.store import WeightStore
from tests.models.weights.one_folder import OneFolder


@pytest.fixture(scope="session")
def smollm(weights: WeightStore, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of SmolLM2 as on the hub."""
    from tests.models.llm.vllm.smollm import write_smollm

    try:
        gguf = weights.folder("smollm2-135m-q4") / "model.gguf"
    except WeightsMissing as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("smollm")
    write_smollm(gguf, folder)
    return folder


@pytest.fixture(scope="session")
def engine(smollm: Path) -> Iterator[ChatEngine]:
    from models.llm.vllm.engine import VllmEngine
    from tests.models.llm.vllm.smollm import smollm_config

    engine = VllmEngine(smollm_config(), OneFolder(smollm))
    yield engine
    engine.close()
