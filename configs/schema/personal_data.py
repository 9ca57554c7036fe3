"""What personal data a caller may have masked."""

from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "email", "account", "card", "ssn", "birth_date", "phone", "address", "name", "number"
]


@dataclass(frozen=True, slots=True)
class Redaction:
    """The kinds of personal data to redact from a text."""

    kinds: frozenset[Kind]
    language: str = ""  # of numbers in words (ISO 639-1); default: detected
