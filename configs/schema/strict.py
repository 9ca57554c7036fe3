"""The base of every configuration model."""

from pydantic import BaseModel, ConfigDict


class StrictModel(BaseModel):
    """Immutable, and refuses unknown keys, so a typo in a YAML fails before a replica starts."""

    model_config = ConfigDict(extra="forbid", frozen=True)
