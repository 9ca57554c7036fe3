"""What every fit begins with."""

from typing import Any

import pytest

from configs.load import load_yaml
from models.errors import WeightsMissing
from models.weights.store import WeightStore
from pipelines.voices.fitting.prior import knowledge
from pipelines.voices.fitting.prior.mixtures import PRIOR_FILE, read_prior


@pytest.mark.weights
def test_fits_know_voices_that_the_operator_does_not_offer(monkeypatch: pytest.MonkeyPatch) -> None:
    from configs.settings import weights_dir

    def with_few_voices(kind: Any, name: str) -> Any:
        config = load_yaml(kind, name)
        return config.model_copy(update={"voices": config.voices[:3]})

    monkeypatch.setattr(knowledge, "load_yaml", with_few_voices)
    try:
        space = knowledge.stock_space(WeightStore(weights_dir()))
    except WeightsMissing as error:
        pytest.skip(str(error))
    assert len(space.names) == 54
    knowledge.check_prior(read_prior(PRIOR_FILE.read_bytes()), space)
