"""Searches the style and the filter that are most similar to a speaker, by generations.

Each generation synthesises the styles that CMA-ES (`cma_es.py`) proposes, and measures each through
several filters. A ridge regression of the changes to the embedding improves the filter. A Gaussian
process (`surrogate.py`) predicts embedding and pitch of styles: for each synthesised generation,
PREDICTED_GENERATIONS more are evaluated by it alone."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from configs.schema.voices import FitConfig
from pipelines.voices.fitting.equaliser import BANDS, bands_between, levelled
from pipelines.voices.fitting.features import SOUND_SIZE, TargetSpeaker, pitch_statistics
from pipelines.voices.fitting.prior import FittingPrior, MixturePrior
from pipelines.voices.fitting.search.cma_es import Evolution
from pipelines.voices.fitting.search.style_space import Vectors
from pipelines.voices.fitting.search.surrogate import Observation, Surrogate
from pipelines.voices.fitting.trials import Outcome

EMBEDDING = slice(0, SOUND_SIZE)  # part of a measurement
PITCH = slice(SOUND_SIZE, SOUND_SIZE + 2)  # level and range
MEASUREMENTS = SOUND_SIZE + 3  # the last is the quality
FILTERS = 3  # filters that are tried beside the best so far
FILTER_SPREAD_DB = 2.0
FILTER_STEP_DB = 2.5  # root mean square, at most
FILTER_COST = 0.0002  # cost of a decibel squared in each band
FADING = 0.7  # weight of a generation for the filter, relative to the next one
PRIOR_STARTS = 8
NEAREST = 40  # styles whose mean spectrum the first filter corrects

FIRST_REACH, REACH = 12.0, 2.5  # how far a generation moves without a cost
FIRST_STEP, STEP = 0.2, 0.3  # step sizes: among the mixtures of the prior, and later
FIRST_PREDICTED_GENERATIONS, PREDICTED_GENERATIONS = 200, 60
MIN_POPULATION = 16  # a smaller generation is filled up with predictions
SILENCE_COST = 1.0  # cost of a style without speech, above the worst with speech
PITCH_COST, RANGE_COST = 1.0, 0.3  # costs of squared log distances from the speaker's level, range
QUALITY_COST = 0.3  # cost of an opinion score below the minimum of the configuration
RARITY = 0.01  # cost of a style as far from the stock voices as these are from their mean
DISTANCE_COST = 0.05  # cost of a step beyond the reach, times the squared excess


@dataclass(frozen=True, slots=True)
class SearchTrial:
    """A style to speak, and the filters to measure it through."""

    point: Vectors  # [n]
    sentence: int
    bands: Vectors  # [1 + FILTERS, BANDS]; the first is the best so far


@dataclass
class SearchState:
    centre: Vectors  # [n]
    bands: Vectors  # [BANDS]
    spectrum: Vectors  # [40], mean power in each mel band of the last generation, unfiltered
    generation: int = 0
    points: list[Vectors] = field(default_factory=list)
    sounds: list[Vectors] = field(default_factory=list)  # [515] as Observation, through `filters`
    filters: list[Vectors] = field(default_factory=list)
    sentences: list[int] = field(default_factory=list)
    # Of each generation: attempts until then, and the similarity of its mean embedding.
    curve: list[tuple[int, float]] = field(default_factory=list)
    centres: list[Vectors] = field(default_factory=list)
    evolution: dict[str, Vectors] = field(default_factory=dict)  # state of CMA-ES
    # Faded sums over the generations, for `_filter_changes`.
    squares: Vectors = field(default_factory=lambda: np.zeros((BANDS, BANDS)))
    products: Vectors = field(default_factory=lambda: np.zeros((BANDS, SOUND_SIZE)))


class Search:
    """A search, which is deterministic for a seed."""

    def __init__(
        self,
        prior: FittingPrior,
        speaker: TargetSpeaker,
        config: FitConfig,
        state: SearchState | None,
    ) -> None:
        """Continue from `state`; blocking, a second."""
        pitch = np.array(pitch_statistics(speaker.pitches))
        space = prior.space
        self._space = space
        self._prior = prior.mixtures.observations(space)
        self._target = speaker.embedding.astype(np.float64)
        self._min_quality = config.min_quality
        self._pitch = np.nan_to_num(pitch)
        self._pitch_costs = np.where(np.isnan(pitch), 0.0, (PITCH_COST, RANGE_COST))
        self._rarity = RARITY / space.size * space.rarity  # cost of a step in each direction
        self._population = max(config.generation, MIN_POPULATION)
        self._seed = config.seed
        self.state = state or self._start(prior.mixtures, speaker.spectrum.astype(np.float64))

    def _evolution(self, draw: np.random.Generator) -> Evolution:
        """Makes the evolution, with steps of STEP or more: predictions shrink a population."""
        state, seed = self.state.evolution, _seed_of(draw)
        return Evolution.resume(self._space, state, self._population, seed, STEP)

    def _start(self, mixtures: MixturePrior, spectrum: Vectors) -> SearchState:
        surrogate = Surrogate(self._prior, own=False)
        best = np.argsort(-(mixtures.embeddings @ self._target))[:PRIOR_STARTS]
        begin = self._space.point(self._prior.styles[best]).mean(axis=0)
        seed = _seed_of(np.random.default_rng(self._seed))
        evolution = Evolution.begin(self._space, begin, FIRST_STEP, self._population, seed)
        costs = self._predicted_costs(surrogate, begin, FIRST_REACH)
        evolution.evolve(costs, FIRST_PREDICTED_GENERATIONS)
        centre = evolution.mean
        apart = np.square(self._prior.styles - self._space.style(centre)).sum(axis=1)
        near = np.argsort(apart)[:NEAREST]
        sounded = mixtures.spectra[near].mean(axis=0)
        bands = bands_between(sounded, spectrum)
        return SearchState(centre, bands, sounded, evolution=evolution.state())

    def next_generation(self, size: int, sentences: range) -> list[SearchTrial]:
        """Return `size` styles, the first of which is the best so far."""
        now = self.state
        draw = np.random.default_rng((self._seed, now.generation))
        rounds = -(-size // len(sentences))
        order = np.concatenate([draw.permutation(sentences) for _ in range(rounds)])
        trials = []
        for sentence, point in zip(order, self._points(size, draw), strict=False):
            variations = FILTER_SPREAD_DB * draw.normal(size=(FILTERS, BANDS))
            bands = np.concatenate([now.bands[None], now.bands + variations])
            trials.append(SearchTrial(point, int(sentence), bands))
        return trials

    def _points(self, size: int, draw: np.random.Generator) -> Iterator[Vectors]:
        """Chooses the styles to synthesise, [n] each; the first is the centre."""
        yield self.state.centre
        yield from self._evolution(draw).ask()[1:size]

    def observe(self, trials: Sequence[SearchTrial], outcomes: Sequence[Outcome]) -> None:
        """Learns from a generation; blocking, up to a second. Ignores outcomes without speech."""
        now = self.state
        draw = np.random.default_rng((self._seed, now.generation, 1))
        now.generation += 1
        speaks = np.array([outcome.duration_s > 0 for outcome in outcomes])
        pairs = [
            (trial, outcome)
            for trial, outcome in zip(trials, outcomes, strict=True)
            if outcome.duration_s > 0
        ]
        if not pairs:
            return
        for trial, sound in pairs:
            pitch = pitch_statistics(sound.pitches)
            now.points.append(trial.point)
            now.sentences.append(trial.sentence)
            now.sounds.append(np.array([*sound.embeddings[0], *pitch, sound.rating.quality]))
            now.filters.append(trial.bands[0])
        now.spectrum = np.mean([sound.spectrum for _, sound in pairs], axis=0, dtype=np.float64)
        mean = np.mean(now.sounds[-len(pairs) :], axis=0)[EMBEDDING]
        changes = self._filter_changes(pairs)
        bands = self._better_filter(mean, changes)
        now.centres.append(now.centre)
        surrogate = Surrogate(self._prior.and_then(self._through_filter(bands, changes)), own=True)
        self._evolve(np.stack([trial.point for trial in trials]), speaks, surrogate, draw)
        now.bands = bands
        now.curve.append((len(now.points), similarity(mean, self._target)[0]))

    def _evolve(
        self,
        points: Vectors,
        speaks: NDArray[np.bool_],
        surrogate: Surrogate,
        draw: np.random.Generator,
    ) -> None:
        """Evolves from a generation [m, n], of which only those with `speaks` [m] gave speech."""
        evolution = self._evolution(draw)
        costs = self._predicted_costs(surrogate, self.state.centre, REACH)
        points = np.concatenate([points, evolution.ask()[len(points) :]])
        first = costs(points)
        first[: len(speaks)][~speaks] = first.max() + SILENCE_COST
        evolution.tell(points, first)
        evolution.evolve(costs, PREDICTED_GENERATIONS)
        self.state.centre = evolution.mean
        self.state.evolution = evolution.state()

    def _predicted_costs(
        self, surrogate: Surrogate, begin: Vectors, reach: float
    ) -> Callable[[Vectors], Vectors]:
        """Predicts the costs of points [m, n]: for unlikeness to the speaker, their pitch and the
        stock voices, for low quality, and for steps beyond the `reach` of `begin` [n]."""

        def costs(points: Vectors) -> Vectors:
            sounds = surrogate.sounds(self._space.style(points))
            embeddings = sounds[:, EMBEDDING]
            lengths = np.maximum(np.linalg.norm(embeddings, axis=1), 1e-9)
            off = np.nan_to_num(sounds[:, PITCH] - self._pitch)
            excess = np.maximum(0.0, np.linalg.norm(points - begin, axis=1) - reach)
            unlike = off**2 @ self._pitch_costs + points**2 @ self._rarity
            unlike += QUALITY_COST * np.maximum(0.0, self._min_quality - sounds[:, -1])
            unlike = unlike - embeddings @ self._target / lengths
            return np.asarray(unlike + DISTANCE_COST * excess**2)

        return costs

    def _through_filter(self, bands: Vectors, changes: Vectors) -> Observation:
        """Return all measurements, corrected to the filter `bands` up to a maximum difference."""
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

    def _filter_changes(self, pairs: Sequence[tuple[SearchTrial, Outcome]]) -> Vectors:
        """Estimates the change of an embedding per decibel of each band, [BANDS, 512]."""
        now = self.state
        variations = np.concatenate([part.bands[1:] - part.bands[:1] for part, _ in pairs])
        embeddings = [sound.embeddings.astype(np.float64) for _, sound in pairs]
        change = np.concatenate([part[1:] - part[:1] for part in embeddings])
        now.squares = FADING * now.squares + variations.T @ variations
        now.products = FADING * now.products + variations.T @ change
        ridge = 0.3 * len(variations) * FILTER_SPREAD_DB**2 * np.eye(BANDS)
        return np.asarray(np.linalg.solve(now.squares + ridge, now.products))

    def _better_filter(self, mean: Vectors, changes: Vectors) -> Vectors:
        def cost(step: Any) -> tuple[float, Any]:
            cosine, slope = similarity(mean + step @ changes, self._target)
            gradient = 2 * FILTER_COST * step - changes @ slope
            return float(FILTER_COST * step @ step) - cosine, gradient

        bound = [(-2 * FILTER_STEP_DB, 2 * FILTER_STEP_DB)] * BANDS
        solution = minimize(cost, np.zeros(BANDS), jac=True, method="L-BFGS-B", bounds=bound)
        size = float(np.sqrt(np.mean(np.square(solution.x))))
        return levelled(self.state.bands + solution.x * min(1.0, FILTER_STEP_DB / max(size, 1e-9)))


def _seed_of(draw: np.random.Generator) -> int:
    return int(draw.integers(2**31))


def similarity(embedding: Vectors, target: Vectors) -> tuple[float, Vectors]:
    """Computes the cosine of two vectors, the second of length 1, and its gradient in the first."""
    length = max(float(np.linalg.norm(embedding)), 1e-9)
    cosine = float(embedding @ target) / length
    return cosine, (target - cosine * embedding / length) / length
