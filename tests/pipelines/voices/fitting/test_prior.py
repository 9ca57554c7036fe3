"""The prior of voice fits."""

from typing import Any

import pytest

from configs.load import load_yaml
from models.errors import WeightsMissing
from models.weights.store import WeightStore
from pipelines.voices.fitting import prior as fitting_prior
from pipelines.voices.fitting.prior import PRIOR_FILE, read_prior


@pytest.mark.weights
def test_the_fitting_prior_includes_stock_voices_that_are_not_offered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from configs.settings import weights_dir

    def with_few_voices(kind: Any, name: str) -> Any:
        config = load_yaml(kind, name)
        return config.model_copy(update={"voices": config.voices[:3]})

    monkeypatch.setattr(fitting_prior, "load_yaml", with_few_voices)
    try:
        space = fitting_prior.stock_space(WeightStore(weights_dir()))
    except WeightsMissing as error:
        pytest.skip(str(error))
    assert len(space.names) == 54
    fitting_prior.check_prior(read_prior(PRIOR_FILE.read_bytes()), space)
