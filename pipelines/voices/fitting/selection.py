"""Selects the style of the voice, by similarity and by the quality of the speech."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from models.speaker.base import mean_embedding
from pipelines.voices.fitting.equaliser import gains, levelled
from pipelines.voices.fitting.search.search import SearchState
from pipelines.voices.fitting.search.style_space import StyleSpace, Vectors
from pipelines.voices.fitting.trials import Outcome, Target, mean_rating

LAST = 6  # centres of a search, whose mean has less noise than the last one
STYLES = (1.0, 0.92, 0.85)  # distances from the mean of the stock voices, as factors
FILTERS = (1.0, 0.85)  # shares of the filter's decibels
QUALITY_SLACK, QUALITY_COST = 0.1, 0.5  # slack and cost of opinion scores below the stock voice
ERROR_SLACK, ERROR_COST = 0.01, 1.0  # slack and cost of the word error rate


@dataclass(frozen=True, slots=True)
class Candidate:
    name: str
    style: tuple[float, ...]  # [256]
    bands: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class SelectionResult:
    """Measurements of a voice, over some sentences."""

    similarity: float  # to the recordings that the fit may use
    held_out: float  # to the held-out recordings
    error_rate: float | None  # word error rate; None: the recogniser does not support the language
    quality: float | None
    spectrum: tuple[float, ...]
    pitches: tuple[float, ...]
    second: float | None = None  # to the held-out recordings, by the second encoder

    def score(self, stock: "SelectionResult", min_quality: float) -> float:
        """Return the similarity, less penalties for what is worse than in a stock voice."""
        floor = max((stock.quality or 0.0) - QUALITY_SLACK, min_quality)
        below = 0.0 if self.quality is None else floor - self.quality
        wrong = (self.error_rate or 0.0) - (stock.error_rate or 0.0) - ERROR_SLACK
        return self.similarity - QUALITY_COST * max(0.0, below) - ERROR_COST * max(0.0, wrong)


def candidates_of(space: StyleSpace, searched: SearchState) -> list[Candidate]:
    """Makes the mean of the last centres, and versions nearer to the mean of the stock voices."""
    steady = np.mean([*searched.centres[1 - LAST :], searched.centre], axis=0)
    return [
        Candidate(
            name=f"style {style:g}, filter {share:g}",
            style=tuple(space.style(style * steady).tolist()),
            bands=tuple(_loudness_neutral(share * searched.bands, searched.spectrum).tolist()),
        )
        for style in STYLES
        for share in FILTERS
    ]


def selection_result(outcomes: Sequence[Outcome], target: Target) -> SelectionResult:
    embedding = mean_embedding(np.concatenate([outcome.embeddings for outcome in outcomes]))
    error_rate, quality = mean_rating([outcome.rating for outcome in outcomes])
    seconds = [outcome.second for outcome in outcomes if outcome.second is not None]
    return SelectionResult(
        similarity=float(embedding @ target.embedding),
        held_out=float(embedding @ target.held_out),
        error_rate=error_rate,
        quality=quality,
        spectrum=tuple(np.mean([outcome.spectrum for outcome in outcomes], axis=0).tolist()),
        pitches=tuple(np.concatenate([outcome.pitches for outcome in outcomes]).round(1).tolist()),
        second=float(mean_embedding(np.stack(seconds)) @ target.second) if seconds else None,
    )


def _loudness_neutral(bands: Vectors, spectrum: Vectors) -> Vectors:
    """Removes a filter's change of loudness, so that nothing is clipped."""
    power = float(gains(bands) @ spectrum) / max(float(spectrum.sum()), 1e-9)
    return np.asarray(levelled(bands) - 10 * np.log10(max(power, 1e-9)))
