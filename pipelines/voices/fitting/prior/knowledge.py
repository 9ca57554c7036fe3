"""What every fit begins with: the stock voices, and how mixtures of them sound."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from configs.load import load_yaml
from configs.schema.models.tts import KokoroConfig
from configs.settings import weights_dir
from models.errors import WeightsCorrupt
from models.tts.kokoro.engine import read_voice_pack
from models.weights.store import WeightStore
from pipelines.voices.fitting.prior.mixtures import PRIOR_FILE, MixturePrior, read_prior
from pipelines.voices.fitting.recordings import TargetSpeaker
from pipelines.voices.fitting.search.style_space import StyleSpace, style_space
from pipelines.voices.fitting.sentences import FALLBACK_LANGUAGE

MODEL = "tts/kokoro"  # that the prior was made with
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
"""What a stock voice was trained in, by the first letter of its name; the second is its gender."""
BRITISH = "b"  # among those of English


@dataclass(frozen=True, slots=True)
class StockVoices:
    """Next to one speaker."""

    similarities: tuple[tuple[str, float], ...]  # all, the nearest first
    nearest: str
    native: str  # the nearest that learnt the language


@dataclass(frozen=True, slots=True)
class FittingPrior:
    """Shared and never changed."""

    space: StyleSpace
    prior: MixturePrior
    titles: Mapping[str, str] = field(default_factory=dict)  # what people call the stock voices

    def stock_for(
        self, speaker: TargetSpeaker, language: str, gender: str, *, british: bool = False
    ) -> StockVoices:
        """By recordings that are kept out of the fit, so that its gain is not flattered."""
        values = self.prior.stock @ speaker.held_out
        order = [int(index) for index in np.argsort(-values)]
        ranked = tuple((self.space.names[index], float(values[index])) for index in order)
        names = [name for name, _ in ranked]
        known = language if language in LANGUAGES.values() else FALLBACK_LANGUAGE
        native = [name for name in names if LANGUAGES.get(name[:1]) == known]
        if british and known == FALLBACK_LANGUAGE:
            native = [name for name in native if name[:1] == BRITISH]
        alike = [name for name in native if name[1:2] == gender[:1]]
        return StockVoices(ranked, names[0], (alike or native or names)[0])


def load_fitting_prior() -> FittingPrior:
    """Of this machine's weights; blocking, a second. Raises EngineError."""
    space = stock_space(WeightStore(weights_dir()))
    prior = read_prior(PRIOR_FILE.read_bytes())
    check_prior(prior, space)
    voices = load_yaml(KokoroConfig, MODEL).voices
    return FittingPrior(space, prior, {voice.key: voice.name for voice in voices})


def check_prior(prior: MixturePrior, space: StyleSpace) -> None:
    """Its points mean nothing among other voices. Raises WeightsCorrupt."""
    if prior.fingerprint != space.fingerprint:
        raise WeightsCorrupt(
            f"what fits know ({PRIOR_FILE.name}) was made with other stock voices; run "
            "python -m pipelines.voices.fitting.prior.make_prior"
        )


def stock_space(weights: WeightStore) -> StyleSpace:
    """Raises EngineError."""
    config = load_yaml(KokoroConfig, MODEL)
    folder = weights.folder(config.voice_weights) / "voices"
    # All that were published, whichever of them the operator offers.
    return style_space({path.stem: read_voice_pack(path) for path in folder.glob("*.bin")})
