"""The result of a fit, and its report, also of a voice that fails. The report holds some seconds of
a recording, so it is stored encrypted, like the samples."""

import base64
import binascii
import io
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Annotated, Literal

import av
import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, FiniteFloat, model_validator

from models.audio import Pcm, pcm16_to_float
from models.figures import beside
from models.speaker.base import SPEAKER_SAMPLE_RATE
from models.speaker.mel import mel_centres_hz
from pipelines.voices.fitting.features import at_level

MAX_SAMPLE_BYTES = 256 * 1024  # limit of one sample of audio
BINS_HZ = np.geomspace(60, 400, 39)  # 0.07 octaves each
BIT_RATE = 24_000
LOUDER_DB = 8.0  # difference from the level used for embeddings
SHOWN_S = 5.0  # seconds of the recordings that are shown
SILENT = 1e-9
TOO_UNLIKE = "similarity_too_low"

Preview = tuple[bytes, float]
"""Speech with the best style so far as Ogg Opus, and the similarity of the last generation."""


class _ReportPart(BaseModel):
    """A frozen part of a report, which ignores fields of newer versions."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class StockSimilarity(_ReportPart):
    """The similarity of a stock voice to the speaker."""

    voice: str
    name: str | None = Field(default=None, description="Display name, if it differs from `voice`.")
    similarity: FiniteFloat


class Pitch(_ReportPart):
    """Histograms of the fundamental frequency over voiced frames."""

    hz_bins: list[FiniteFloat] = Field(description="Bin edges in Hz, one more than bins.")
    source: list[FiniteFloat] = Field(description="Share of the recordings' frames in each bin.")
    clone: list[FiniteFloat] = Field(description="Share of the clone's frames in each bin.")
    source_hz: FiniteFloat | None = Field(default=None, description="The recordings' median pitch.")
    clone_hz: FiniteFloat | None = Field(default=None, description="The clone's median pitch.")

    @model_validator(mode="after")
    def _fits(self) -> "Pitch":
        if not 1000 >= len(self.hz_bins) - 1 == len(self.source) == len(self.clone) >= 1:
            raise ValueError("source and clone have one share less than there are edges")
        return self


class Spectrum(_ReportPart):
    """Long-term average spectra of the speech, each normalised to a mean of 0 dB."""

    hz: list[FiniteFloat]
    source_db: list[FiniteFloat]
    clone_db: list[FiniteFloat]

    @model_validator(mode="after")
    def _fits(self) -> "Spectrum":
        if not 1000 >= len(self.hz) == len(self.source_db) == len(self.clone_db) >= 2:
            raise ValueError("hz, source_db and clone_db are of one length")
        return self


class Judged(_ReportPart):
    """Scores of the finished voice on held-out sentences and recordings.

    `stock_…` are the scores of stock voices. Null means not measured.
    """

    similarity: FiniteFloat = Field(description="Cosine similarity; 1 is the same speaker.")
    stock_similarity: FiniteFloat | None = None
    replaced_similarity: FiniteFloat | None = None  # similarity of the voice that it replaces
    recordings_similarity: FiniteFloat | None = None  # other recordings to held-out ones
    second_similarity: FiniteFloat | None = Field(
        default=None,
        description="Similarity by CAM++, unused by the search; different speakers have about 0.1.",
    )
    stock_second_similarity: FiniteFloat | None = None
    recordings_second_similarity: FiniteFloat | None = None
    wer: FiniteFloat | None = Field(
        default=None, description="Word error rate of a speech recogniser."
    )
    stock_wer: FiniteFloat | None = None
    dnsmos: FiniteFloat | None = Field(default=None, description="DNSMOS quality score, 1 to 5.")
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
    Field(description="Ogg Opus audio in base64.", json_schema_extra={"contentEncoding": "base64"}),
]


class Samples(_ReportPart):
    """Excerpts of the recordings and the clone, for listening."""

    sentence: str = Field(description="Sentence that the clone speaks.")
    source: Sound
    clone: Sound


class VoiceReport(_ReportPart):
    """How a voice was built, and its measured quality."""

    version: Literal[1] = 1
    evaluations: int = Field(ge=0, description="Number of candidates tried.")
    seconds: FiniteFloat = Field(ge=0, description="Total computing time, in seconds.")
    similarity_curve: list[tuple[int, FiniteFloat]] = Field(
        max_length=5000, description="Best similarity so far, as [evaluation, similarity]."
    )
    stock: list[StockSimilarity] = Field(description="All stock voices, most similar first.")
    pitch: Pitch | None = None
    spectrum: Spectrum | None = None
    judged: Judged | None = None
    samples: Samples | None = None


@dataclass(frozen=True, slots=True)
class FittedVoice:
    """A voice that passed the quality checks."""

    pack: bytes  # packed as by models.tts.voice_pack
    similarity: float  # similarity of unseen sentences to held-out recordings
    report: VoiceReport | None = None


@dataclass(frozen=True, slots=True)
class FailedFit:
    """A voice that failed the quality checks."""

    code: str
    reason: str  # reason for the caller, with the measured value
    report: VoiceReport | None = None


def too_unlike(similarity: float, floor: float, report: VoiceReport) -> FailedFit:
    likeness, least = beside(similarity, floor, 2)
    reason = (
        f"the similarity to the recordings is only {likeness}, and {least} is needed; "
        "longer and cleaner recordings may help"
    )
    return FailedFit(TOO_UNLIKE, reason, report)


def pitch_of(source: NDArray[np.float32], clone: NDArray[np.float32]) -> Pitch | None:
    """Return histograms of the pitches of frames (Hz); None if one of the two has no pitch."""
    if not len(source) or not len(clone):
        return None
    shares = []
    for pitches in (source, clone):
        counts = np.histogram(np.clip(pitches, BINS_HZ[0], BINS_HZ[-1]), BINS_HZ)[0]
        shares.append((counts / max(1, counts.sum())).round(4).tolist())
    return Pitch(
        hz_bins=BINS_HZ.round(1).tolist(),
        source=shares[0],
        clone=shares[1],
        source_hz=round(float(np.median(source)), 1),
        clone_hz=round(float(np.median(clone)), 1),
    )


def spectrum_of(source: NDArray[np.floating], clone: NDArray[np.floating]) -> Spectrum:
    """Return spectra from mean powers in the mel bands, [40] each."""
    levels = []
    for powers in (source, clone):
        decibels = 10 * np.log10(powers + SILENT)
        levels.append((decibels - decibels.mean()).round(2).tolist())
    hz = mel_centres_hz().round(1).tolist()
    return Spectrum(hz=hz, source_db=levels[0], clone_db=levels[1])


def samples_of(sentence: str, source: Pcm, clone: NDArray[np.int16] | None) -> Samples | None:
    """Return some seconds of both at one level; None if the clone has no speech."""
    if clone is None:
        return None
    original = source[: int(SHOWN_S * SPEAKER_SAMPLE_RATE)]
    cloned = pcm16_to_float(clone.tobytes())
    first, second = (base64.b64encode(ogg_opus(excerpt)).decode() for excerpt in (original, cloned))
    return Samples(sentence=sentence, source=first, clone=second)


def best_so_far(curve: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    best = accumulate((value for _, value in curve), max)
    return [(count, round(value, 4)) for (count, _), value in zip(curve, best, strict=True)]


def ogg_opus(pcm: Pcm) -> bytes:
    """Encode a signal at SPEAKER_SAMPLE_RATE, louder than LEVEL_DBFS by LOUDER_DB."""
    loud = np.clip(at_level(pcm) * 10 ** (LOUDER_DB / 20), -1, 1)
    samples, target = np.asarray(loud * 32767, np.int16), io.BytesIO()
    with av.open(target, "w", format="ogg") as file:
        stream = file.add_stream("libopus", rate=SPEAKER_SAMPLE_RATE, layout="mono")
        stream.bit_rate = BIT_RATE
        frame = av.AudioFrame.from_ndarray(samples[None], format="s16", layout="mono")
        frame.sample_rate = SPEAKER_SAMPLE_RATE
        for packet in (*stream.encode(frame), *stream.encode(None)):
            file.mux(packet)
    return target.getvalue()
