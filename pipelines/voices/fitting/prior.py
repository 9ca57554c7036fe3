"""The prior of every fit: the stock voices, and measurements of random mixtures of them.
`prior.npz` beside this module is made by `python -m benchmarks.voices.make_prior`."""

import io
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from configs.load import load_yaml
from configs.schema.models.tts import KokoroConfig
from configs.settings import weights_dir
from models.errors import WeightsCorrupt
from models.tts.kokoro.engine import read_voice_pack
from models.weights.store import WeightStore
from pipelines.text.usual_language import FALLBACK_LANGUAGE
from pipelines.voices.fitting.features import TargetSpeaker
from pipelines.voices.fitting.search.style_space import StyleSpace, Vectors, style_space
from pipelines.voices.fitting.search.surrogate import Observation

PRIOR_FILE = Path(__file__).with_name("prior.npz")
MODEL = "tts/kokoro"  # model that the prior was computed with
LANGUAGES = {
    "a": "en",
    "b": "en",
    "e": "es",
    "f": "fr",
    "h": "hi",
    "i": "it",
    "j": "ja",
    "p": "pt",
    "z": "zh",
}
"""The language of a stock voice by its first letter; the second letter is the gender."""
BRITISH = "b"  # first letter of British voices, in English
EMBEDDING_STEP = 1 / 400  # the numbers of an embedding are from 0 to 0.6
SPECTRUM_STEP_DB = 0.4
STOCK_SENTENCES = 4  # measurements of each stock voice


@dataclass(frozen=True, slots=True)
class MixturePrior:
    """Measurements of the engine's speech with random mixtures of stock voices, without filters."""

    points: Vectors  # [n, size of the space]
    embeddings: Vectors  # [n, 512] as `embed_both`
    spectra: Vectors  # [n, 40], mean power in each mel band
    pitches: Vectors  # [n, 2], as pitch_statistics gives them
    qualities: Vectors  # [n], mean opinion scores
    sentences: NDArray[np.int64]  # [n], of those that fits speak in English
    stock: Vectors  # [voices of the space, 512], the mean embedding of each stock voice
    fingerprint: str  # fingerprint of the space that the points are in

    def observations(self, space: StyleSpace) -> Observation:
        return Observation(
            space.style(self.points),
            np.column_stack([self.embeddings, self.pitches, self.qualities]),
            self.sentences,
            np.zeros(len(self.points), np.bool_),
        )


@dataclass(frozen=True, slots=True)
class FittingPrior:
    """The prior that all fits share; immutable."""

    space: StyleSpace
    mixtures: MixturePrior
    titles: Mapping[str, str] = field(default_factory=dict)  # display names of the stock voices

    def stock_for(
        self, speaker: TargetSpeaker, language: str, gender: str, *, british: bool = False
    ) -> tuple[list[tuple[str, float]], str]:
        """Return the stock voices by their similarity to the held-out recordings, the nearest
        first, and the native one, which is the nearest that was trained in the language."""
        values = self.mixtures.stock @ speaker.held_out
        order = [int(index) for index in np.argsort(-values)]
        ranked = [(self.space.names[index], float(values[index])) for index in order]
        names = [name for name, _ in ranked]
        supported = language if language in LANGUAGES.values() else FALLBACK_LANGUAGE
        native = [name for name in names if LANGUAGES.get(name[:1]) == supported]
        if british and supported == FALLBACK_LANGUAGE:
            native = [name for name in native if name[:1] == BRITISH]
        alike = [name for name in native if name[1:2] == gender[:1]]
        return ranked, (alike or native or names)[0]

    def quality_of(self, voice: str) -> float:
        """Return the mean opinion score of a stock voice, from the nearest measurements."""
        point = self.space.point(self.space.stock[self.space.names.index(voice)])
        near = np.argsort(np.square(self.mixtures.points - point).sum(axis=1))[:STOCK_SENTENCES]
        return float(self.mixtures.qualities[near].mean())


def load_fitting_prior() -> FittingPrior:
    """Load the prior with the weights of this machine; blocking, a second. Raises EngineError."""
    space = stock_space(WeightStore(weights_dir()))
    mixtures = read_prior(PRIOR_FILE.read_bytes())
    check_prior(mixtures, space)
    voices = load_yaml(KokoroConfig, MODEL).voices
    return FittingPrior(space, mixtures, {voice.key: voice.name for voice in voices})


def check_prior(mixtures: MixturePrior, space: StyleSpace) -> None:
    """Raise WeightsCorrupt if the points of the prior are not in this space."""
    if mixtures.fingerprint != space.fingerprint:
        raise WeightsCorrupt(
            f"the prior of voice fits ({PRIOR_FILE.name}) was made with other stock voices; run "
            "python -m benchmarks.voices.make_prior"
        )


def stock_space(weights: WeightStore) -> StyleSpace:
    """Return the space of the stock voices. Raises EngineError."""
    config = load_yaml(KokoroConfig, MODEL)
    folder = weights.folder(config.voice_weights) / "voices"
    # All published voices, whichever of them the operator offers.
    return style_space({path.stem: read_voice_pack(path) for path in folder.glob("*.bin")})


def read_prior(data: bytes) -> MixturePrior:
    """Read a prior. Raises WeightsCorrupt."""
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as parts:
            embeddings = parts["embeddings"] * EMBEDDING_STEP
            stock = parts["stock"].astype(np.float64)
            return MixturePrior(
                points=parts["points"].astype(np.float64),
                embeddings=embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True),
                spectra=10 ** (-SPECTRUM_STEP_DB * parts["spectra"].astype(np.float64) / 10),
                pitches=parts["pitches"].astype(np.float64),
                qualities=parts["qualities"].astype(np.float64),
                sentences=parts["sentences"].astype(np.int64),
                stock=stock / np.linalg.norm(stock, axis=1, keepdims=True),
                fingerprint=parts["fingerprint"].tobytes().hex(),
            )
    except (ValueError, OSError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise WeightsCorrupt("the prior of voice fits cannot be read") from error
