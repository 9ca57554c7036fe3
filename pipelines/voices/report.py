"""The stored report of how a voice was made.

The fit writes it (`VoiceReport(...).to_json()`), also for a voice that fails. It holds some seconds
of a recording, so it is stored encrypted, like the samples.
"""

import base64
import binascii
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    FiniteFloat,
    ValidationError,
    model_validator,
)

MAX_SAMPLE_BYTES = 256 * 1024  # of one sample of sound


class ReportError(ValueError):
    """The stored bytes are no report of a known version."""


class _ReportPart(BaseModel):
    """Frozen; fields of newer versions are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class StockSimilarity(_ReportPart):
    """How near a stock voice is to the speaker."""

    voice: str
    name: str | None = Field(default=None, description="What people call it; None: as `voice`.")
    similarity: FiniteFloat


class Pitch(_ReportPart):
    """Histograms of the fundamental, over the voiced frames of each."""

    hz_bins: list[FiniteFloat] = Field(description="Edges in Hz, one more than there are shares.")
    source: list[FiniteFloat] = Field(description="Shares of the recordings' frames, sum 1.")
    clone: list[FiniteFloat] = Field(description="Shares of the clone's frames, sum 1.")
    source_hz: FiniteFloat | None = Field(default=None, description="Median of the recordings.")
    clone_hz: FiniteFloat | None = Field(default=None, description="Median of the clone.")

    @model_validator(mode="after")
    def _fits(self) -> "Pitch":
        if not len(self.hz_bins) - 1 == len(self.source) == len(self.clone) >= 1:
            raise ValueError("source and clone have one share less than there are edges")
        return self


class Spectrum(_ReportPart):
    """Long-term average spectra of the speech, each with a mean of 0 dB."""

    hz: list[FiniteFloat]
    source_db: list[FiniteFloat]
    clone_db: list[FiniteFloat]

    @model_validator(mode="after")
    def _fits(self) -> "Spectrum":
        if not len(self.hz) == len(self.source_db) == len(self.clone_db) >= 2:
            raise ValueError("hz, source_db and clone_db are of one length")
        return self


class Judged(_ReportPart):
    """The finished voice with sentences and recordings that it was not fitted to.

    `stock_…` is what stock voices reach. None: not measured.
    """

    similarity: FiniteFloat = Field(description="Cosine of embeddings; 1 is the same speaker.")
    stock_similarity: FiniteFloat | None = None
    wer: FiniteFloat | None = Field(
        default=None, description="Share of words that a recogniser reads wrongly."
    )
    stock_wer: FiniteFloat | None = None
    dnsmos: FiniteFloat | None = Field(default=None, description="Quality, 1 to 5 (DNSMOS).")
    stock_dnsmos: FiniteFloat | None = None


def _is_sound(text: str) -> str:
    try:
        size = len(base64.b64decode(text, validate=True))
    except binascii.Error:
        raise ValueError("not base64") from None
    if size > MAX_SAMPLE_BYTES:
        raise ValueError(f"over {MAX_SAMPLE_BYTES} bytes")
    return text


Sound = Annotated[
    str,
    AfterValidator(_is_sound),
    Field(description="Ogg Opus in base64.", json_schema_extra={"contentEncoding": "base64"}),
]


class Samples(_ReportPart):
    """Some seconds of both, to be compared by ear."""

    sentence: str = Field(description="What the clone says.")
    source: Sound
    clone: Sound


class VoiceReport(_ReportPart):
    """How a voice was made, and what came of it."""

    version: Literal[1] = 1
    evaluations: int = Field(ge=0, description="Candidates that were tried.")
    seconds: FiniteFloat = Field(ge=0, description="What the work took, all attempts together.")
    similarity_curve: list[tuple[int, FiniteFloat]] = Field(
        description="The best so far: [evaluation, similarity], in order."
    )
    stock: list[StockSimilarity] = Field(description="Every stock voice, the nearest first.")
    pitch: Pitch | None = None
    spectrum: Spectrum | None = None
    judged: Judged | None = None
    formants: FiniteFloat | None = Field(
        default=None,
        description="What the formants of the style are multiplied with; 1: as they are.",
    )
    samples: Samples | None = None

    def to_json(self) -> bytes:
        return self.model_dump_json().encode()

    @classmethod
    def from_json(cls, data: bytes) -> "VoiceReport":
        """Raises ReportError."""
        try:
            return cls.model_validate_json(data)
        except ValidationError as error:
            raise ReportError(f"{error.error_count()} fields are wrong") from None
