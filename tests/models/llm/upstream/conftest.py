import pytest

from models.runtimes import upstream
from tests.models.llm.upstream.raw_upstream import KEY


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries come at once, and the key is where the configurations look for it."""
    monkeypatch.setattr(upstream, "PAUSES_S", (0.01, 0.01))
    monkeypatch.setenv("FAR_KEY", KEY)
