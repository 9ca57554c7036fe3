"""The shape of `configs/voices.yaml`: which voice speaks when the caller names none."""

from pydantic import Field

from configs.schema.strict import StrictModel


class VoiceRef(StrictModel):
    """A voice by the names that its engine gives it."""

    engine: str  # name in the registry, such as "kokoro"
    key: str  # VoiceInfo.key


class VoicesConfig(StrictModel):
    """The default voice of each language."""

    defaults: dict[str, VoiceRef] = Field(min_length=1)  # ISO 639-1 code to voice
