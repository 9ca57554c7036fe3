"""The shape of `configs/retention.yaml`: how long things are kept."""

from typing import Self

from pydantic import Field, model_validator

from configs.schema.strict import StrictModel


class RetentionConfig(StrictModel):
    """Days."""

    chat_days: int | None = Field(ge=1)  # since a chat was last used; None is for ever
    event_days: int = Field(ge=4)  # the last attempt of a delivery is made within four
    failed_voice_days: int = Field(default=30, ge=1)  # since it failed
    revoked_key_days: int = Field(default=90, ge=1)  # in which its use is audited
    delivery_days: int  # an event and what became of it; not less than its body

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.delivery_days < self.event_days:
            raise ValueError("delivery_days: must not be less than event_days")
        return self
