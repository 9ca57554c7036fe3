"""The shape of `configs/quality/*.yaml`."""

from typing import Literal

from pydantic import Field

from configs.schema.strict import StrictModel


class QualityConfig(StrictModel):
    """DNSMOS, a network that learned how people rate the sound of speech."""

    engine: Literal["dnsmos"]
    artefact: str  # name in the catalogue of weights
    threads: int = Field(default=1, ge=1, le=64)
