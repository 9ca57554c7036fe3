"""The schema of `configs/redaction.yaml`: what personal data looks like, and frequent names."""

from typing import Literal

from configs.load import load_yaml
from configs.schema.base import StrictModel
from configs.schema.languages import Words
from configs.schema.personal_data import Kind


class RedactionPatterns(StrictModel):
    """Regular expressions of entities; the file explains them."""

    kinds: dict[Kind, tuple[str, ...]]
    growing: str
    sets: dict[str, str]
    digits: dict[str, dict[str, int]]  # by language, in addition to number words
    repeats: dict[str, int]  # such as "double"
    names: dict[Literal["given", "surnames", "words"], Words]


PATTERNS = load_yaml(RedactionPatterns, "redaction")
