"""The request for a correction."""

from dataclasses import dataclass, field
from typing import Literal
from uuid import UUID

from pipelines.billing.operation import Operation

AppContext = Literal["email", "chat", "document", "message", "social"]

MAX_CHARACTERS = 20_000  # length of a text; about eight pages


@dataclass(frozen=True, slots=True)
class DictionaryEntry:
    term: str  # 1 to 200 characters
    replacement: str  # inserted verbatim


@dataclass(frozen=True, slots=True)
class CorrectionStyle:
    """Requested style; None leaves the choice to the corrector."""

    tone: str | None = None
    auto_capitalize: bool | None = None  # begin sentences with a capital
    auto_punctuate: bool | None = None  # end sentences with a mark
    use_contractions: bool | None = None  # False writes them out
    expand_abbreviations: bool | None = None


@dataclass(frozen=True, slots=True)
class CorrectionRequest:
    workspace_id: int
    text: str  # at most MAX_CHARACTERS, of which at least one is not a space
    dictionary: tuple[DictionaryEntry, ...] = ()
    style: CorrectionStyle = CorrectionStyle()
    app_context: AppContext | None = None
    model: str | None = None  # id or alias of a model or the rules; None for the default
    save_chat: bool = True
    chat_id: UUID | None = None  # None begins a chat
    operation: Operation = field(default_factory=Operation)
