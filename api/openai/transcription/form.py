"""The form fields of OpenAI's transcription endpoint."""

import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from api.http.uploads import MultipartForm

TranscriptFormat = Literal["json", "text", "srt", "verbose_json", "vtt", "diarized_json"]
STREAMED: frozenset[TranscriptFormat] = frozenset({"json", "text", "diarized_json"})

_LIST_NAME = re.compile(r"(?P<name>.*)\[\d*\]", re.DOTALL)
_LISTS = frozenset({"timestamp_granularities", "languages", "keywords"})


def _clean(value: Any) -> Any:
    return value.strip() if isinstance(value, str) else value


Code = Annotated[str, BeforeValidator(_clean), Field(max_length=35)]
Switch = Annotated[bool, BeforeValidator(_clean)]


class OpenAITranscriptionFields(BaseModel):
    """The plain fields of the form; a form has only strings. Unknown fields are ignored."""

    model_config = ConfigDict(extra="ignore")

    model: str = Field(default="whisper-1", max_length=200)
    language: Code = Field(default="", description="A language code; detected when absent.")
    languages: list[Code] = Field(
        default=[], max_length=20, description="Detection chooses among these."
    )
    prompt: str = Field(
        default="", description="Names and terms to expect, or what was said before."
    )
    keywords: list[Annotated[str, Field(max_length=100)]] = Field(
        default=[], max_length=100, description="Terms to expect."
    )
    response_format: TranscriptFormat = "json"
    timestamp_granularities: list[Literal["word", "segment"]] = Field(
        default=[], max_length=10, description="Of `verbose_json`; by default `segment`."
    )
    stream: Switch = Field(
        default=False, description="Events as it is heard; not of verbose_json, srt and vtt."
    )
    temperature: float = Field(default=0.0, ge=0.0, le=1.0, description="Has no effect.")

    @model_validator(mode="after")
    def _can_stream(self) -> "OpenAITranscriptionFields":
        if self.stream and self.response_format not in STREAMED:
            raise ValueError(f"stream: {self.response_format} cannot be streamed, json can")
        return self

    @property
    def words(self) -> bool:
        """Whether the answer needs word timestamps."""
        if self.response_format == "verbose_json":
            return "word" in self.timestamp_granularities
        return self.response_format in ("srt", "vtt")

    @property
    def expected(self) -> str:
        """The prompt and the keywords in one text."""
        return " ".join(filter(None, (", ".join(self.keywords), self.prompt.strip())))


def fields_by_name(form: MultipartForm) -> dict[str, Any]:
    """The values of a form, with lists for fields such as `timestamp_granularities[]`.

    A plain field that comes twice has its last value.
    """
    found: dict[str, Any] = {}
    for sent, value in form.values:
        match = _LIST_NAME.fullmatch(sent)
        name = match["name"] if match else sent
        if name in _LISTS:
            found.setdefault(name, []).append(value)
        elif not match:
            found[name] = value
    return found
