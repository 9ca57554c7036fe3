"""The schemas of `configs/{vad,turn_detection,speaker,quality,watermark,grammar}/*.yaml`, by kind.
These engines have no deployment: each runs in the process that uses it."""

from typing import Annotated, Literal

from pydantic import Field

from configs.schema.base import StrictModel


class SileroConfig(StrictModel):
    """Silero's network; its weights come with faster-whisper."""

    engine: Literal["silero"]


class WebRtcConfig(StrictModel):
    """WebRTC's detector: cheaper and coarser, without weights."""

    engine: Literal["webrtc"]
    aggressiveness: int = Field(default=2, ge=0, le=3)  # 3 classifies the fewest frames as speech


VADConfig = Annotated[SileroConfig | WebRtcConfig, Field(discriminator="engine")]


class NetworkConfig(StrictModel):
    """The common fields of networks with weights of their own."""

    artefact: str  # name in the catalogue of weights
    threads: int = Field(default=1, ge=1, le=64)


class SmartTurnConfig(NetworkConfig):
    """Pipecat's Smart Turn, a network that hears whether a speaker has finished."""

    engine: Literal["smart_turn"]


class ResemblyzerConfig(NetworkConfig):
    """Resemblyzer's network, trained on thousands of speakers."""

    engine: Literal["resemblyzer"]
    batch_size: int = Field(default=16, ge=1, le=256)  # windows computed together


class CampplusConfig(NetworkConfig):
    """CAM++, trained on 200,000 speakers."""

    engine: Literal["campplus"]


SpeakerConfig = Annotated[ResemblyzerConfig | CampplusConfig, Field(discriminator="engine")]


class QualityConfig(NetworkConfig):
    """DNSMOS, a network that predicts listeners' ratings of speech."""

    engine: Literal["dnsmos"]


class PerthConfig(NetworkConfig):
    """Resemble's Perth, a network that embeds a watermark below 2 kHz."""

    engine: Literal["perth"]


class HarperConfig(StrictModel):
    """Harper: rules and a dictionary of English, in-process."""

    engine: Literal["harper"]
    dialect: Literal["american", "british", "australian", "canadian", "indian"] = "american"
    rules_off: tuple[str, ...]  # disabled rules
    kinds_off: tuple[str, ...]  # kinds of findings that are ignored as matters of style
