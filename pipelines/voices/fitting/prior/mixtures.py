"""How random mixtures of the stock voices sound: what every fit knows before it begins.

The file beside this module is made by `python -m pipelines.voices.fitting.prior.make_prior`.
"""

import io
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from models.errors import WeightsCorrupt
from pipelines.voices.fitting.search.style_space import StyleSpace, Vectors
from pipelines.voices.fitting.search.surrogate import Observation

PRIOR_FILE = Path(__file__).with_name("prior.npz")
_EMBEDDING_STEP = 1 / 400  # embeddings are not negative, and no number of one is over 0.6
_SPECTRUM_STEP_DB = 0.4


@dataclass(frozen=True, slots=True)
class MixturePrior:
    """Sounds of the engine as it is, with no filter."""

    points: Vectors  # [n, size of the space]
    embeddings: Vectors  # [n, 256]
    spectra: Vectors  # [n, 40], mean power in each mel band
    pitches: Vectors  # [n, 2], as pitch_marks gives them
    sentences: NDArray[np.int64]  # [n], of those that fits speak in English
    stock: Vectors  # [voices of the space, 256], the mean embedding of each stock voice
    fingerprint: str  # of the space that the points are in

    def heard(self, space: StyleSpace) -> Observation:
        return Observation(
            space.style(self.points),
            np.concatenate([self.embeddings, self.pitches], axis=1),
            self.sentences,
            np.zeros(len(self.points), np.bool_),
        )


def write_prior(prior: MixturePrior) -> bytes:
    """Rounded to what a sentence differs from another anyway."""
    target = io.BytesIO()
    levels = -10 * np.log10(prior.spectra + 1e-10) / _SPECTRUM_STEP_DB
    np.savez_compressed(
        target,
        points=prior.points.astype(np.float16),
        embeddings=np.clip(np.rint(prior.embeddings / _EMBEDDING_STEP), 0, 255).astype(np.uint8),
        pitches=prior.pitches.astype(np.float16),
        stock=prior.stock.astype(np.float16),
        spectra=np.clip(np.rint(levels), 0, 255).astype(np.uint8),
        sentences=prior.sentences.astype(np.int16),
        fingerprint=np.frombuffer(bytes.fromhex(prior.fingerprint), np.uint8),
    )
    return target.getvalue()


def read_prior(data: bytes) -> MixturePrior:
    """Raises WeightsCorrupt."""
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as parts:
            embeddings = parts["embeddings"] * _EMBEDDING_STEP
            stock = parts["stock"].astype(np.float64)
            return MixturePrior(
                points=parts["points"].astype(np.float64),
                embeddings=embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True),
                spectra=10 ** (-_SPECTRUM_STEP_DB * parts["spectra"].astype(np.float64) / 10),
                pitches=parts["pitches"].astype(np.float64),
                sentences=parts["sentences"].astype(np.int64),
                stock=stock / np.linalg.norm(stock, axis=1, keepdims=True),
                fingerprint=parts["fingerprint"].tobytes().hex(),
            )
    except (ValueError, OSError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise WeightsCorrupt("what fits know of the stock voices cannot be read") from error
