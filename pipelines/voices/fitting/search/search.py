"""Searches for the style and the filter that sound most like a speaker, one generation at a time.

Each generation speaks the styles that the strategy (`cma_es.py`) chooses, and measures each sound
through several filters. A ridge regression of the changes to the embedding says which filter is
better; a Gaussian process (`surrogate.py`) says which styles may be.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from models.speaker.base import Embeddings
from pipelines.voices.fitting.equaliser import BANDS, bands_between, levelled
from pipelines.voices.fitting.prior.fitting_prior import MixturePrior
from pipelines.voices.fitting.recordings import TargetSpeaker
from pipelines.voices.fitting.search.cma_es import SearchStrategy, StrategyState
from pipelines.voices.fitting.search.objective import EMBEDDING, objective_for
from pipelines.voices.fitting.search.style_space import StyleSpace, Vectors
from pipelines.voices.fitting.search.surrogate import Observation, Surrogate

PITCH_STATISTICS = 2
FILTERS = 5  # beside the best so far
FILTER_SPREAD_DB = 2.0
FILTER_STEP_DB = 2.5  # root mean square, at most
FILTER_COST = 0.0002  # of a decibel squared in each band
FADING = 0.7  # weight of a generation for the filter, next to the one after it
PRIOR_STARTS = 8
NEAREST = 40  # styles whose mean spectrum the first filter is made for


@dataclass(frozen=True, slots=True)
class SearchTrial:
    """A style to speak, and the filters to measure it through."""

    point: Vectors  # [n]
    sentence: int
    bands: Vectors  # [1 + FILTERS, BANDS]; the first is the best so far


@dataclass(frozen=True, slots=True)
class Sound:
    """What was measured of it."""

    embeddings: Embeddings  # [1 + FILTERS, 256]
    pitch: tuple[float, float]  # as pitch_statistics gives it
    spectrum: NDArray[np.float32]  # [40], without a filter
    speaks: bool


@dataclass
class SearchState:
    """All that a search has to remember."""

    centre: Vectors  # [n]
    bands: Vectors  # [BANDS]
    spectrum: Vectors  # [40], mean power in each mel band of the last generation, unfiltered
    generation: int = 0
    points: list[Vectors] = field(default_factory=list)
    sounds: list[Vectors] = field(default_factory=list)  # [258] as Observation, through `filters`
    filters: list[Vectors] = field(default_factory=list)
    sentences: list[int] = field(default_factory=list)
    curve: list[tuple[int, float]] = field(default_factory=list)
    # of each generation: attempts until then, and the similarity of its mean embedding
    centres: list[Vectors] = field(default_factory=list)
    evolution: dict[str, Vectors] = field(default_factory=dict)  # of CMA-ES
    products: list[tuple[Vectors, Vectors]] = field(default_factory=list)  # of filters and changes


class Search:
    """Deterministic for a seed."""

    def __init__(
        self,
        space: StyleSpace,
        mixtures: MixturePrior,
        speaker: TargetSpeaker,
        generation: int,
        seed: int,
        state: SearchState | None,
    ) -> None:
        """Continues from `state`; blocking, a second. `generation` is the size of one."""
        self._space = space
        self._prior = mixtures.observations(space)
        objective = objective_for(speaker, space)
        self._target = objective.target
        self._strategy = SearchStrategy(space, objective, generation)
        self._seed = seed
        self.state = state or self._start(mixtures, speaker.spectrum.astype(np.float64))
        self._move_to(self._strategy.resume(self._position))

    @property
    def _position(self) -> StrategyState:
        return StrategyState(self.state.centre, self.state.evolution)

    def _move_to(self, position: StrategyState) -> None:
        self.state.centre = position.centre
        self.state.evolution = dict(position.evolution)

    def _start(self, mixtures: MixturePrior, spectrum: Vectors) -> SearchState:
        surrogate = Surrogate(self._prior, own=False)
        best = np.argsort(-(mixtures.embeddings @ self._target))[:PRIOR_STARTS]
        begin = self._space.point(self._prior.styles[best]).mean(axis=0)
        position = self._strategy.start(surrogate, begin, np.random.default_rng(self._seed))
        apart = np.square(self._prior.styles - self._space.style(position.centre)).sum(axis=1)
        near = np.argsort(apart)[:NEAREST]
        sounded = mixtures.spectra[near].mean(axis=0)
        bands = bands_between(sounded, spectrum)
        return SearchState(position.centre, bands, sounded, evolution=dict(position.evolution))

    def next_generation(self, size: int, sentences: range) -> list[SearchTrial]:
        """`size` styles, of which the first is the best that is known."""
        now = self.state
        draw = np.random.default_rng((self._seed, now.generation))
        rounds = -(-size // len(sentences))
        order = np.concatenate([draw.permutation(sentences) for _ in range(rounds)])
        trials = []
        points = self._strategy.points(self._position, size, draw)
        for sentence, point in zip(order, points, strict=False):
            variations = FILTER_SPREAD_DB * draw.normal(size=(FILTERS, BANDS))
            bands = np.concatenate([now.bands[None], now.bands + variations])
            trials.append(SearchTrial(point, int(sentence), bands))
        return trials

    def observe(self, trials: Sequence[SearchTrial], sounds: Sequence[Sound]) -> None:
        """Learns from a generation; blocking, up to a second. Those without speech are ignored."""
        now = self.state
        draw = np.random.default_rng((self._seed, now.generation, 1))
        now.generation += 1
        pairs = [(one, sound) for one, sound in zip(trials, sounds, strict=True) if sound.speaks]
        if not pairs:
            return
        for trial, sound in pairs:
            now.points.append(trial.point)
            now.sentences.append(trial.sentence)
            now.sounds.append(np.concatenate([sound.embeddings[0], sound.pitch]).astype(np.float64))
            now.filters.append(trial.bands[0])
        now.spectrum = np.mean([sound.spectrum for _, sound in pairs], axis=0, dtype=np.float64)
        mean = np.mean(now.sounds[-len(pairs) :], axis=0)[EMBEDDING]
        changes = self._filter_changes(pairs)
        bands = self._better_filter(mean, changes)
        now.centres.append(now.centre)
        position = self._strategy.update(
            self._position,
            points=np.stack([one.point for one in trials]),
            speaks=np.array([sound.speaks for sound in sounds]),
            surrogate=Surrogate(self._prior.and_then(self._own(bands, changes)), own=True),
            draw=draw,
        )
        self._move_to(position)
        now.bands = bands
        now.curve.append((len(now.points), similarity(mean, self._target)[0]))

    def _own(self, bands: Vectors, changes: Vectors) -> Observation:
        """All sounds as they would be through one filter, as far as it is near to theirs."""
        now = self.state
        moved = np.clip(bands - np.stack(now.filters), -2 * FILTER_SPREAD_DB, 2 * FILTER_SPREAD_DB)
        sounds = np.stack(now.sounds)
        sounds[:, EMBEDDING] += moved @ changes
        return Observation(
            styles=self._space.style(np.stack(now.points)),
            sounds=sounds,
            sentences=np.array(now.sentences),
            own=np.ones(len(now.points), np.bool_),
        )

    def _filter_changes(self, pairs: Sequence[tuple[SearchTrial, Sound]]) -> Vectors:
        """What a decibel of each band changes in an embedding, [BANDS, 256]."""
        now = self.state
        variations = np.concatenate([one.bands[1:] - one.bands[:1] for one, _ in pairs])
        heard = [sound.embeddings.astype(np.float64) for _, sound in pairs]
        change = np.concatenate([one[1:] - one[:1] for one in heard])
        now.products.append((variations.T @ variations, variations.T @ change))
        del now.products[:-4]
        weights = FADING ** np.arange(len(now.products))[::-1]
        squares = sum(w * one[0] for w, one in zip(weights, now.products, strict=True))
        products = sum(w * one[1] for w, one in zip(weights, now.products, strict=True))
        ridge = 0.3 * len(variations) * FILTER_SPREAD_DB**2 * np.eye(BANDS)
        return np.asarray(np.linalg.solve(squares + ridge, products))

    def _better_filter(self, mean: Vectors, changes: Vectors) -> Vectors:
        def cost(step: Any) -> tuple[float, Any]:
            cosine, slope = similarity(mean + step @ changes, self._target)
            gradient = 2 * FILTER_COST * step - changes @ slope
            return float(FILTER_COST * step @ step) - cosine, gradient

        bound = [(-2 * FILTER_STEP_DB, 2 * FILTER_STEP_DB)] * BANDS
        found = minimize(cost, np.zeros(BANDS), jac=True, method="L-BFGS-B", bounds=bound)
        size = float(np.sqrt(np.mean(np.square(found.x))))
        return levelled(self.state.bands + found.x * min(1.0, FILTER_STEP_DB / max(size, 1e-9)))


def similarity(embedding: Vectors, target: Vectors) -> tuple[float, Vectors]:
    """The cosine of two vectors, the second of length 1, and its gradient in the first."""
    length = max(float(np.linalg.norm(embedding)), 1e-9)
    cosine = float(embedding @ target) / length
    return cosine, (target - cosine * embedding / length) / length
