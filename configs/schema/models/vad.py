"""The shapes of `configs/vad/*.yaml`: one class an engine, chosen by `engine`."""

from typing import Annotated, Literal

from pydantic import Field

from configs.schema.strict import StrictModel


class SileroConfig(StrictModel):
    """Silero's network; its weights come with faster-whisper."""

    engine: Literal["silero"]


class WebRtcConfig(StrictModel):
    """WebRTC's detector: cheaper and coarser, with no weights."""

    engine: Literal["webrtc"]
    aggressiveness: int = Field(default=2, ge=0, le=3)  # 3 calls the least of all sounds speech


VADConfig = Annotated[SileroConfig | WebRtcConfig, Field(discriminator="engine")]
