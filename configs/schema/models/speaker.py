"""The shapes of `configs/speaker/*.yaml`: one class an engine, chosen by `engine`."""

from typing import Annotated, Literal

from pydantic import Field

from configs.schema.strict import StrictModel


class ResemblyzerConfig(StrictModel):
    """Resemblyzer's network, which learned to tell thousands of speakers apart."""

    engine: Literal["resemblyzer"]
    artefact: str  # name in the catalogue of weights
    threads: int = Field(default=1, ge=1, le=64)
    batch_size: int = Field(default=16, ge=1, le=256)  # windows computed together


class BandsConfig(StrictModel):
    """The average spectrum: no weights, and no judge of people. For tests."""

    engine: Literal["bands"]


SpeakerConfig = Annotated[ResemblyzerConfig | BandsConfig, Field(discriminator="engine")]
