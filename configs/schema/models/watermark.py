"""The shape of `configs/watermark/*.yaml`."""

from typing import Literal

from pydantic import Field

from configs.schema.strict import StrictModel


class PerthConfig(StrictModel):
    """Resemble's Perth, a network that hides a mark below 2 kHz."""

    engine: Literal["perth"]
    artefact: str  # name in the catalogue of weights
    threads: int = Field(default=1, ge=1, le=64)
