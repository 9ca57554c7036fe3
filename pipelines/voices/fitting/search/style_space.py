"""The space of styles that are searched: principal components of the stock voices' styles.

A voice pack has a row for each number of symbols. A search is for one style; the rows differ from
it as those of the stock voices do on average."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.tts.voice_pack import STYLE_SHAPE

HALF = STYLE_SHAPE[1] // 2  # timbre before it, prosody from it on
USUAL_ROWS = slice(20, 80)  # lengths of most sentences
FLATTENED = 0.5  # exponent of the spread of a direction: rare ones get larger steps

Vectors = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class StyleSpace:
    """Separate directions of timbre and prosody."""

    names: tuple[str, ...]  # names of the stock voices
    stock: Vectors  # [voices, 256]
    rows: NDArray[np.float32]  # [510, 256], added to a style in each row
    mean: Vectors  # [256]
    directions: Vectors  # [n, 256]
    rarity: Vectors  # [n]; squared distance of a step in each direction from stock voices
    fingerprint: str  # SHA-256 of the names and packs, in hexadecimal digits

    @property
    def size(self) -> int:
        return len(self.directions)

    @property
    def halves(self) -> tuple[slice, slice]:
        """Return the coordinates of the timbre, and of the prosody."""
        timbre = int(self.directions[:, :HALF].any(axis=1).sum())
        return slice(0, timbre), slice(timbre, self.size)

    def style(self, point: Vectors) -> Vectors:
        """Return the styles [..., 256] of coordinates [..., n]."""
        return np.asarray(self.mean + point @ self.directions)

    def point(self, style: Vectors) -> Vectors:
        """Return the coordinates that come nearest to a style [..., 256]."""
        lengths = np.square(self.directions).sum(axis=1)
        return np.asarray((style - self.mean) @ self.directions.T / lengths)


def style_space(packs: Mapping[str, NDArray[np.float32]]) -> StyleSpace:
    """Return the space of stock packs [510, 256] by name; equal packs count once."""
    seen: dict[bytes, str] = {}
    for name in sorted(packs):
        seen.setdefault(np.asarray(packs[name]).tobytes(), name)
    names = tuple(seen.values())
    digest = hashlib.sha256()
    for content, name in seen.items():
        digest.update(f"{name}:{len(content)}:".encode() + content)
    usual = np.stack([packs[name][USUAL_ROWS].mean(axis=0, dtype=np.float64) for name in names])
    rows = np.zeros(STYLE_SHAPE, np.float64)
    for name, style in zip(names, usual, strict=True):
        rows += (packs[name] - style) / len(names)
    mean = usual.mean(axis=0)
    directions, rarity = [], []
    for half in (slice(0, HALF), slice(HALF, None)):
        _, spread, axes = np.linalg.svd(usual[:, half] - mean[half], full_matrices=False)
        spread = spread[: len(names) - 1] / np.sqrt(len(names) - 1)
        scale = spread[0] * (spread / spread[0]) ** FLATTENED
        whole = np.zeros((len(scale), STYLE_SHAPE[1]))
        whole[:, half] = axes[: len(scale)] * scale[:, None]
        directions.append(whole)
        rarity.append(np.square(scale / spread))
    return StyleSpace(
        names=names,
        stock=usual,
        rows=rows.astype(np.float32),
        mean=mean,
        directions=np.concatenate(directions),
        rarity=np.concatenate(rarity),
        fingerprint=digest.hexdigest(),
    )
