"""Looks for the style and the filter that sound most like a speaker, a generation at a time.

Each generation speaks styles around the best one that is known, and hears each sound through some
filters. Its strategy (`strategies.py`) says which styles, and learns from what was heard where to
go next.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from configs.schema.custom_voices import SearchKind
from models.speaker.base import Embeddings
from pipelines.voices.fitting.equaliser import BANDS, bands_between, levelled
from pipelines.voices.fitting.prior.mixtures import MixturePrior
from pipelines.voices.fitting.recordings import TargetSpeaker
from pipelines.voices.fitting.search.objective import EMBEDDING, objective_for
from pipelines.voices.fitting.search.strategies import StrategyState, Tried, strategy_of
from pipelines.voices.fitting.search.style_space import StyleSpace, Vectors
from pipelines.voices.fitting.search.surrogate import Observation, Surrogate, likeness

MARKS = 2  # of the pitch
FILTERS = 5  # beside the one that is best so far
FILTER_SPREAD_DB = 2.0
FILTER_STEP_DB = 2.5  # root mean square, at most
FILTER_COST = 0.0002  # of a decibel squared in each band
ROUGHNESS_COST = 0.00003  # of a decibel squared between neighbours
FADING = 0.7  # how much a generation counts for the filter next to the one after it
PRIOR_STARTS = 8
NEAREST = 40  # styles whose mean spectrum the first filter is made for


@dataclass(frozen=True, slots=True)
class SearchTrial:
    """A style to speak, and filters to hear it through."""

    point: Vectors  # [n]
    sentence: int
    bands: Vectors  # [1 + FILTERS, BANDS]; the first is the best so far


@dataclass(frozen=True, slots=True)
class Sound:
    """What was heard of it."""

    embeddings: Embeddings  # [1 + FILTERS, 256]
    pitch: tuple[float, float]  # MARKS, as pitch_marks gives it
    spectrum: NDArray[np.float32]  # [40], without a filter
    speaks: bool


@dataclass
class Searched:
    """All that a search has to remember."""

    centre: Vectors  # [n]
    bands: Vectors  # [BANDS]
    spectrum: Vectors  # [40], mean power in each mel band without the filter, of late
    generation: int = 0
    points: list[Vectors] = field(default_factory=list)
    heard: list[Vectors] = field(default_factory=list)  # [258] as Heard.sounds, through `through`
    through: list[Vectors] = field(default_factory=list)
    sentences: list[int] = field(default_factory=list)
    curve: list[tuple[int, float]] = field(default_factory=list)
    # of each generation: attempts until then, and the likeness of its mean embedding
    centres: list[Vectors] = field(default_factory=list)
    evolution: dict[str, Vectors] = field(default_factory=dict)  # of CMA-ES; empty without it
    products: list[tuple[Vectors, Vectors]] = field(default_factory=list)  # of filters and changes


class Search:
    """Deterministic for a seed."""

    def __init__(
        self,
        space: StyleSpace,
        prior: MixturePrior,
        speaker: TargetSpeaker,
        kind: SearchKind,
        generation: int,
        seed: int,
        searched: Searched | None,
    ) -> None:
        """Goes on from `searched`; blocking, a second. `generation` says how many it has."""
        self._space = space
        self._prior = prior.heard(space)
        aim = objective_for(speaker, space)
        self._target = aim.target
        self._way = strategy_of(kind, space, aim, generation)
        self._seed = seed
        self.searched = searched or self._start(prior, speaker.spectrum.astype(np.float64))
        self._stand(self._way.go_on(self._place))

    @property
    def _place(self) -> StrategyState:
        return StrategyState(self.searched.centre, self.searched.evolution)

    def _stand(self, place: StrategyState) -> None:
        self.searched.centre = place.centre
        self.searched.evolution = dict(place.evolution)

    def _start(self, prior: MixturePrior, spectrum: Vectors) -> Searched:
        known = Surrogate(self._prior, own=False)
        best = np.argsort(-(prior.embeddings @ self._target))[:PRIOR_STARTS]
        begin = self._space.point(self._prior.styles[best]).mean(axis=0)
        place = self._way.start(known, begin, np.random.default_rng(self._seed))
        apart = np.square(self._prior.styles - self._space.style(place.centre)).sum(axis=1)
        near = np.argsort(apart)[:NEAREST]
        sounded = prior.spectra[near].mean(axis=0)
        bands = bands_between(sounded, spectrum)
        return Searched(place.centre, bands, sounded, evolution=dict(place.evolution))

    def next_generation(self, size: int, sentences: range) -> list[SearchTrial]:
        """So many styles, of which the first is the best that is known."""
        now = self.searched
        draw = np.random.default_rng((self._seed, now.generation))
        rounds = -(-size // len(sentences))
        order = np.concatenate([draw.permutation(sentences) for _ in range(rounds)])
        attempts = []
        for index, point in enumerate(self._way.points(self._place, size, draw)):
            turns = FILTER_SPREAD_DB * draw.normal(size=(FILTERS, BANDS))
            bands = np.concatenate([now.bands[None], now.bands + turns])
            sentence = order[0] if self._way.one_sentence else order[index]
            attempts.append(SearchTrial(point, int(sentence), bands))
        return attempts

    def learn(self, attempts: Sequence[SearchTrial], sounds: Sequence[Sound]) -> None:
        """What was heard of each; blocking, up to a second. Those without speech teach nothing."""
        now = self.searched
        draw = np.random.default_rng((self._seed, now.generation, 1))
        now.generation += 1
        pairs = [(one, sound) for one, sound in zip(attempts, sounds, strict=True) if sound.speaks]
        if not pairs:
            return
        for attempt, sound in pairs:
            now.points.append(attempt.point)
            now.sentences.append(attempt.sentence)
            now.heard.append(_heard(sound))
            now.through.append(attempt.bands[0])
        now.spectrum = np.mean([sound.spectrum for _, sound in pairs], axis=0, dtype=np.float64)
        mean = np.mean(now.heard[-len(pairs) :], axis=0)[EMBEDDING]
        changes = self._learn_filters(pairs)
        bands = self._better_filter(mean, changes)
        tried = Tried(
            points=np.stack([one.point for one in attempts]),
            sounds=np.stack([_heard(sound) for sound in sounds]),
            speaks=np.array([sound.speaks for sound in sounds]),
        )

        def surrogate() -> Surrogate:
            return Surrogate(self._prior.and_then(self._own(bands, changes)), own=True)

        now.centres.append(now.centre)
        self._stand(self._way.learn(self._place, tried, surrogate, draw))
        now.bands = bands
        now.curve.append((len(now.points), likeness(mean, self._target)[0]))

    def _own(self, bands: Vectors, changes: Vectors) -> Observation:
        """All attempts as they would sound through one filter, as far as it is near to theirs."""
        now = self.searched
        moved = np.clip(bands - np.stack(now.through), -2 * FILTER_SPREAD_DB, 2 * FILTER_SPREAD_DB)
        sounds = np.stack(now.heard)
        sounds[:, EMBEDDING] += moved @ changes
        return Observation(
            styles=self._space.style(np.stack(now.points)),
            sounds=sounds,
            sentences=np.array(now.sentences),
            own=np.ones(len(now.points), np.bool_),
        )

    def _learn_filters(self, pairs: Sequence[tuple[SearchTrial, Sound]]) -> Vectors:
        """What a decibel of each band changes, [BANDS, 256]."""
        now = self.searched
        turns = np.concatenate([one.bands[1:] - one.bands[:1] for one, _ in pairs])
        heard = [sound.embeddings.astype(np.float64) for _, sound in pairs]
        change = np.concatenate([one[1:] - one[:1] for one in heard])
        now.products.append((turns.T @ turns, turns.T @ change))
        del now.products[:-4]
        weights = FADING ** np.arange(len(now.products))[::-1]
        squares = sum(w * one[0] for w, one in zip(weights, now.products, strict=True))
        products = sum(w * one[1] for w, one in zip(weights, now.products, strict=True))
        ridge = 0.3 * len(turns) * FILTER_SPREAD_DB**2 * np.eye(BANDS)
        return np.asarray(np.linalg.solve(squares + ridge, products))

    def _better_filter(self, mean: Vectors, changes: Vectors) -> Vectors:
        def cost(step: Any) -> tuple[float, Any]:
            cosine, slope = likeness(mean + step @ changes, self._target)
            return float(
                FILTER_COST * step @ step
            ) - cosine, 2 * FILTER_COST * step - changes @ slope

        bound = [(-2 * FILTER_STEP_DB, 2 * FILTER_STEP_DB)] * BANDS
        found = minimize(cost, np.zeros(BANDS), jac=True, method="L-BFGS-B", bounds=bound)
        size = float(np.sqrt(np.mean(np.square(found.x))))
        return levelled(self.searched.bands + found.x * min(1.0, FILTER_STEP_DB / max(size, 1e-9)))


def _heard(sound: Sound) -> Vectors:
    """[258] as Observation.sounds."""
    return np.concatenate([sound.embeddings[0], sound.pitch]).astype(np.float64)
