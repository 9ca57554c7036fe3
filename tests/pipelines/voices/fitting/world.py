"""Synthetic outcomes for fits without an engine: embeddings are a projection of styles."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from configs.load import load_yaml
from configs.schema.voices import CustomVoicesConfig, FitConfig
from models.speaker.base import EMBEDDING_SIZE
from models.speaker.mel import MEL_BANDS
from models.tts.voice_pack import STYLE_SHAPE, read_pack
from pipelines.voices.fitting.features import SOUND_SIZE, TargetSpeaker
from pipelines.voices.fitting.fit import Fit, FitProgress
from pipelines.voices.fitting.prior import FittingPrior, MixturePrior
from pipelines.voices.fitting.search.search import SearchState
from pipelines.voices.fitting.search.style_space import Vectors, style_space
from pipelines.voices.fitting.trials import Outcome, SpeechRating, Trial

VOICES = ("af_one", "am_two", "bf_three", "em_four", "jf_five", "zm_six")
CONFIG: FitConfig = load_yaml(CustomVoicesConfig, "custom_voices").fit
SPREAD = 0.14  # of the stock voices, about as in the real space
FLAT = np.full(MEL_BANDS, 1 / MEL_BANDS, np.float32)


def unit(vectors: Vectors) -> Vectors:
    return np.asarray(vectors / np.linalg.norm(vectors, axis=-1, keepdims=True))


@cache
def _projection() -> Vectors:
    return np.random.default_rng(0).normal(size=(STYLE_SHAPE[1], SOUND_SIZE)) / 16 / SPREAD


def embeddings_of(style: Vectors, bands: Sequence[float] = ()) -> Vectors:
    """Embeddings of styles [..., 256]; a filter that is not flat changes them."""
    heard = 1.5 + style @ _projection()
    if len(bands):
        heard = heard + 0.02 * np.resize(bands, SOUND_SIZE)
    return unit(np.maximum(heard, 0))


@cache
def prior() -> FittingPrior:
    draw = np.random.default_rng(1)
    styles = SPREAD * draw.normal(size=(len(VOICES), 1, STYLE_SHAPE[1]))
    packs = styles + 0.1 * SPREAD * draw.normal(size=(len(VOICES), *STYLE_SHAPE))
    space = style_space(dict(zip(VOICES, packs.astype(np.float32), strict=True)))
    points = draw.normal(size=(80, space.size))
    marks = np.tile([np.log(120.0), 0.2], (len(points), 1))
    sentences = draw.integers(40, size=len(points))
    spectra = np.tile(FLAT, (len(points), 1)).astype(np.float64)
    heard = embeddings_of(space.style(points))
    stock = embeddings_of(space.stock)
    qualities = np.full(len(points), 3.2)
    mixtures = MixturePrior(
        points, heard, spectra, marks, qualities, sentences, stock, space.fingerprint
    )
    return FittingPrior(space, mixtures)


@cache
def speaker() -> TargetSpeaker:
    """A speaker between the stock voices, changed by a filter."""
    space = prior().space
    point = np.random.default_rng(2).normal(size=space.size)
    bands = np.linspace(-3, 3, 14).tolist()
    heard = embeddings_of(space.style(point), bands).astype(np.float32)
    return TargetSpeaker(
        embedding=heard,
        held_out=heard,
        second=unit(np.ones((2, EMBEDDING_SIZE))).astype(np.float32),
        spectrum=FLAT,
        pitches=np.full(50, 120, np.float32),
        excerpt=np.zeros(16_000, np.float32),
    )


def fit(
    config: FitConfig = CONFIG,
    *,
    seed: int = 1,
    british: bool = False,
    searched: SearchState | None = None,
    progress: FitProgress | None = None,
) -> Fit:
    return Fit(
        speaker(),
        "en",
        "female",
        config.model_copy(update={"seed": seed}),
        prior=prior(),
        british=british,
        searched=searched,
        progress=progress,
    )


def outcome_of(trial: Trial) -> Outcome:
    """The outcome that a worker would measure."""
    space = prior().space
    style = trial.style
    if trial.pack is not None:
        style = read_pack(trial.pack).style[0] - space.rows[0]
    elif style is None:
        style = space.stock[space.names.index(trial.voice)]
    spoken: Vectors = style.astype(np.float64)
    noise = 0.05 * np.random.default_rng(trial.number).normal(size=SOUND_SIZE)
    heard = [unit(embeddings_of(spoken, bands) + noise / 16) for bands in trial.filters or [()]]
    made = Outcome(
        number=trial.number,
        embeddings=np.array(heard, np.float32),
        spectrum=FLAT,
        pitches=np.full(10, 120, np.float32),
        duration_s=2.0,
        sample_rate=24_000,
        sound=np.zeros(32_000, np.int16) if trial.keep_sound else None,
    )
    words = len(trial.text.split()) if trial.rate else 0
    second = speaker().second[0] if trial.rate else None
    return replace(made, rating=SpeechRating(words, 0, 3.2), second=second)
