"""The shape of `configs/grammar/*.yaml`."""

from typing import Literal

from configs.schema.strict import StrictModel


class HarperConfig(StrictModel):
    """Harper: rules and a dictionary of English, in process."""

    engine: Literal["harper"]
    dialect: Literal["american", "british", "australian", "canadian", "indian"] = "american"
    rules_off: tuple[str, ...]  # rules that are never asked for
    kinds_off: tuple[str, ...]  # kinds of findings that are matters of taste
