"""Foretells how a style will sound to the speaker encoder, from styles that were heard.

A Gaussian process with one kernel for all 256 numbers of an embedding, so that each sentence that
was spoken teaches 256 things and not only how good it was.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from pipelines.voices.fitting.search.style_space import HALF, Vectors

# Fitted by cross-validation on random mixtures of the stock voices.
TIMBRE_LENGTH, PROSODY_LENGTH = 1.8, 3.5  # distances at which styles tell little of each other
NOISE = 0.3  # of a sentence, next to what styles differ by
SENTENCE = 0.1  # of that which all styles share when they say the same sentence
OTHER = 0.8  # how much sounds without the filter of the voice tell of those with it
OFFSET = 0.3  # what the filter changes in all of them alike


@dataclass(frozen=True, slots=True)
class Observation:
    """Styles, and how they sounded."""

    styles: Vectors  # [n, 256]
    sounds: Vectors  # [n, 258]: an embedding and the marks of the pitch, NaN where there is none
    sentences: NDArray[np.int64]  # [n], what was said
    own: NDArray[np.bool_]  # [n], through the filter of this voice

    def and_then(self, later: "Observation") -> "Observation":
        return Observation(
            np.concatenate([self.styles, later.styles]),
            np.concatenate([self.sounds, later.sounds]),
            np.concatenate([self.sentences, later.sentences]),
            np.concatenate([self.own, later.own]),
        )


class Surrogate:
    """Costs the cube of what was heard: 0.3 s for 1,500 sentences."""

    def __init__(self, heard: Observation, *, own: bool) -> None:
        """`own` asks for sounds through the filter of this voice."""
        self._styles = heard.styles / _LENGTHS
        shares = np.where(heard.own[:, None] == heard.own[None], 1.0, OTHER)
        kernel = _near(self._styles, self._styles) * shares
        kernel += OFFSET * np.outer(heard.own, heard.own)
        kernel += SENTENCE * (heard.sentences[:, None] == heard.sentences[None])
        kernel[np.diag_indices_from(kernel)] += NOISE
        alike = heard.sounds[heard.own == own]
        self._mean = np.nansum(alike, axis=0) / np.maximum(1, np.isfinite(alike).sum(axis=0))
        factor = cho_factor(kernel, lower=True, overwrite_a=True)
        apart = np.nan_to_num(heard.sounds - self._mean, nan=0.0)
        self._weights = cho_solve(factor, apart)  # [n, 258]
        self._share = np.where(heard.own == own, 1.0, OTHER)
        self._offset = OFFSET * heard.own if own else np.zeros(len(heard.own))

    def sounds(self, styles: Vectors) -> Vectors:
        """What is heard of each of [m, 256], [m, 258]; embeddings of any length."""
        near = _near(styles / _LENGTHS, self._styles) * self._share
        return np.asarray((near + self._offset) @ self._weights + self._mean)

    def sound(self, style: Vectors) -> tuple[Vectors, Callable[[Vectors], Vectors]]:
        """What is heard of a style [256]: [258], the embedding of any length.

        And a function that gives the slope [256] in the style of any weighted sum [258] of it.
        """
        scaled = style / _LENGTHS
        near = _near(scaled[None], self._styles)[0] * self._share

        def slope(weights: Vectors) -> Vectors:
            pulls = near * (self._weights @ weights)
            return np.asarray((pulls @ self._styles - pulls.sum() * scaled) / _LENGTHS)

        return (near + self._offset) @ self._weights + self._mean, slope


def likeness(embedding: Vectors, target: Vectors) -> tuple[float, Vectors]:
    """The cosine of two vectors, of which the second has length 1, and its slope in the first."""
    length = max(float(np.linalg.norm(embedding)), 1e-9)
    cosine = float(embedding @ target) / length
    return cosine, (target - cosine * embedding / length) / length


def _near(left: Vectors, right: Vectors) -> Vectors:
    """[n, m], 1 where they are the same."""
    distance = np.square(left).sum(axis=1)[:, None] + np.square(right).sum(axis=1)[None]
    distance -= 2 * left @ right.T
    return np.asarray(np.exp(-np.maximum(distance, 0) / 2))


_LENGTHS = np.repeat([TIMBRE_LENGTH, PROSODY_LENGTH], HALF)
