"""The shape of `configs/retention.yaml`: how long things are kept."""

from pydantic import Field

from configs.strict import StrictModel


class RetentionConfig(StrictModel):
    """Days."""

    chat_days: int | None = Field(ge=1)  # since a chat was last used; None is for ever
    event_days: int = Field(ge=4)  # the last attempt of a delivery is made within four
    failed_voice_days: int = Field(default=30, ge=1)  # since it failed
