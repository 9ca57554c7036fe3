"""The shapes of `configs/{vad,speaker,quality,watermark,grammar}/*.yaml`, by kind of engine.

These engines have no deployment: each runs in the process that uses it.
"""

from typing import Annotated, Literal

from pydantic import Field

from configs.schema.base import StrictModel


class SileroConfig(StrictModel):
    """Silero's network; its weights come with faster-whisper."""

    engine: Literal["silero"]


class WebRtcConfig(StrictModel):
    """WebRTC's detector: cheaper and coarser, with no weights."""

    engine: Literal["webrtc"]
    aggressiveness: int = Field(default=2, ge=0, le=3)  # 3 calls the least of all sounds speech


VADConfig = Annotated[SileroConfig | WebRtcConfig, Field(discriminator="engine")]


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


class QualityConfig(StrictModel):
    """DNSMOS, a network that learned how people rate the sound of speech."""

    engine: Literal["dnsmos"]
    artefact: str  # name in the catalogue of weights
    threads: int = Field(default=1, ge=1, le=64)


class PerthConfig(StrictModel):
    """Resemble's Perth, a network that hides a mark below 2 kHz."""

    engine: Literal["perth"]
    artefact: str  # name in the catalogue of weights
    threads: int = Field(default=1, ge=1, le=64)


class HarperConfig(StrictModel):
    """Harper: rules and a dictionary of English, in process."""

    engine: Literal["harper"]
    dialect: Literal["american", "british", "australian", "canadian", "indian"] = "american"
    rules_off: tuple[str, ...]  # rules that are never asked for
    kinds_off: tuple[str, ...]  # kinds of findings that are matters of taste
