"""The fields of a chat body that ask for a correction, and the answer's list of edits."""

from dataclasses import asdict
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from api.http.schemas import OneLine, RequestModel
from pipelines.correction.edits import Edit, Kind
from pipelines.correction.request import (
    MAX_CHARACTERS,
    AppContext,
    CorrectionStyle,
    DictionaryEntry,
)

MAX_ENTRIES = 100


def _has_words(text: str) -> str:
    if not text.strip():
        raise ValueError("must have something in it beside spaces")
    return text


class Replacement(RequestModel):
    """Replaces `term` wherever it stands as whole words, regardless of case."""

    term: Annotated[str, Field(min_length=1, max_length=200)]
    replacement: Annotated[str, Field(max_length=200)]


class StyleFields(RequestModel):
    """Wishes beyond correctness; what is not given is left to the corrector."""

    model_config = ConfigDict(strict=True, extra="ignore", validate_by_name=False)

    tone: Annotated[OneLine, Field(max_length=100)] | None = None
    auto_capitalize: Annotated[bool | None, Field(alias="autoCapitalize")] = None
    auto_punctuate: Annotated[bool | None, Field(alias="autoPunctuate")] = None
    use_contractions: Annotated[bool | None, Field(alias="useContractions")] = None
    expand_abbreviations: Annotated[bool | None, Field(alias="expandAbbreviations")] = None


class CorrectionFields(RequestModel):
    """Of a body with `text` in place of `messages`."""

    text: Annotated[str, Field(max_length=MAX_CHARACTERS), AfterValidator(_has_words)] | None = None
    dictionary: Annotated[list[Replacement], Field(max_length=MAX_ENTRIES)] | None = None
    style: StyleFields | None = None
    app_context: Annotated[AppContext | None, Field(alias="appContext")] = None

    def wished(self) -> CorrectionStyle:
        """The wishes of style."""
        wishes = (self.style or StyleFields()).model_dump()
        return CorrectionStyle(**{**wishes, "tone": wishes["tone"] or None})

    def entries(self) -> tuple[DictionaryEntry, ...]:
        """The dictionary."""
        return tuple(DictionaryEntry(e.term, e.replacement) for e in self.dictionary or ())


class EditBody(BaseModel):
    """`text[start:end]` of the caller's text, in Unicode code points, became `replacement`."""

    start: int
    end: int
    original: str
    replacement: str
    kind: Kind


class CorrectionBody(BaseModel):
    """All edits, in order without overlaps: applied to the text they give the content."""

    edits: list[EditBody]


def correction_body(text: str, edits: list[Edit]) -> dict[str, object]:
    """The field `correction` of streamed and whole answers."""
    return CorrectionBody(
        edits=[EditBody(original=text[edit.start : edit.end], **asdict(edit)) for edit in edits]
    ).model_dump()
