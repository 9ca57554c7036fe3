"""Selects the style that becomes the voice: similarity alone does not make good speech."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from models.speaker.base import mean_embedding
from pipelines.voices.fitting.equaliser import gains, levelled
from pipelines.voices.fitting.search.search import SearchState
from pipelines.voices.fitting.search.style_space import StyleSpace, Vectors
from pipelines.voices.fitting.trials import Outcome, Target, mean_rating

LAST = 6  # centres of a search, whose mean is steadier than the last of them
STYLES = (1.0, 0.85, 0.7)  # of the way from the mean of the stock voices
FILTERS = (1.0, 0.75)  # of the decibels of the filter
QUALITY_SLACK, QUALITY_COST = 0.1, 0.5  # of an opinion score below the stock voice
ERROR_SLACK, ERROR_COST = 0.01, 1.0  # of the share of words that are heard wrongly


@dataclass(frozen=True, slots=True)
class Candidate:
    """A voice that may be selected."""

    name: str
    style: tuple[float, ...]  # [256]
    bands: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class SelectionResult:
    """What was measured of a voice, over some sentences."""

    similarity: float  # with the recordings that the fit may use
    held_out: float  # with the others
    error_rate: float | None  # of words; None: the recogniser does not support the language
    quality: float | None
    spectrum: tuple[float, ...]
    pitches: tuple[float, ...]

    def score(self, stock: "SelectionResult", min_quality: float) -> float:
        """Similarity, less penalties for quality and word errors worse than a stock voice's."""
        floor = max((stock.quality or 0.0) - QUALITY_SLACK, min_quality)
        below = 0.0 if self.quality is None else floor - self.quality
        wrong = (self.error_rate or 0.0) - (stock.error_rate or 0.0) - ERROR_SLACK
        return self.similarity - QUALITY_COST * max(0.0, below) - ERROR_COST * max(0.0, wrong)


def candidates_of(space: StyleSpace, searched: SearchState) -> list[Candidate]:
    """The mean of the last centres, and milder versions of it."""
    steady = np.mean([*searched.centres[1 - LAST :], searched.centre], axis=0)
    return [
        Candidate(
            name=f"style {style:g}, filter {share:g}",
            style=tuple(space.style(style * steady).tolist()),
            bands=tuple(_as_loud(share * searched.bands, searched.spectrum).tolist()),
        )
        for style in STYLES
        for share in FILTERS
    ]


def selection_result(outcomes: Sequence[Outcome], target: Target) -> SelectionResult:
    """Over all sentences of one voice."""
    embedding = mean_embedding(np.concatenate([one.embeddings for one in outcomes]))
    error_rate, quality = mean_rating([one.rating for one in outcomes])
    return SelectionResult(
        similarity=float(embedding @ target.embedding),
        held_out=float(embedding @ target.held_out),
        error_rate=error_rate,
        quality=quality,
        spectrum=tuple(np.mean([one.spectrum for one in outcomes], axis=0).tolist()),
        pitches=tuple(np.concatenate([one.pitches for one in outcomes]).round(1).tolist()),
    )


def _as_loud(bands: Vectors, spectrum: Vectors) -> Vectors:
    """The filter with which a voice is as loud as without it, so that nothing is clipped."""
    power = float(gains(bands) @ spectrum) / max(float(spectrum.sum()), 1e-9)
    return np.asarray(levelled(bands) - 10 * np.log10(max(power, 1e-9)))
