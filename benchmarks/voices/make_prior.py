"""Make `prior.npz`: synthesise random mixtures of the stock voices and embed their audio.

`python -m benchmarks.voices.make_prior` takes ten minutes of one core. It keeps what it has
measured, so that an interrupted run goes on where it stopped.
"""

import io
from pathlib import Path

import numpy as np

from benchmarks.harness.report import begin, parser
from benchmarks.harness.speech import KEPT, store
from configs.load import load_yaml
from configs.schema.models.tts import KokoroConfig
from models.registry import SPEAKER, load
from models.tts.kokoro.engine import KokoroEngine
from pipelines.text.usual_language import FALLBACK_LANGUAGE
from pipelines.voices.fitting.features import SOUND_SIZE, pitch_statistics
from pipelines.voices.fitting.prior import (
    EMBEDDING_STEP,
    MODEL,
    PRIOR_FILE,
    SPECTRUM_STEP_DB,
    STOCK_SENTENCES,
    MixturePrior,
    stock_space,
)
from pipelines.voices.fitting.search.style_space import HALF, StyleSpace, Vectors
from pipelines.voices.fitting.trials import Outcome, Target, Trial, Trials, sentences_of

ENCODER = "speaker/resemblyzer"
MIXTURES = 400
SEED = 5
KEPT_EVERY = 20


def main() -> None:
    begin(parser(__doc__))
    space = stock_space(store())
    kept = KEPT / f"prior-{space.fingerprint}.npy"
    PRIOR_FILE.write_bytes(write_prior(prior_of(measured(kept, space), space)))


def trials_of(space: StyleSpace) -> list[tuple[Trial, Vectors]]:
    """All styles that are spoken, each with its point."""
    texts = sentences_of(FALLBACK_LANGUAGE)[1].search
    trials = []
    for index, name in enumerate(space.names):
        for turn in range(STOCK_SENTENCES):
            number = index * STOCK_SENTENCES + turn
            trial = Trial(number, texts[number % len(texts)], None, voice=name)
            trials.append((trial, space.point(space.stock[index])))
    for number in range(len(trials), len(trials) + MIXTURES):
        draw = np.random.default_rng((SEED, number))
        style = _mixture(space, draw)
        if draw.random() < 0.7:
            style[HALF:] = _mixture(space, draw)[HALF:]
        text = texts[int(draw.integers(len(texts)))]
        trials.append((Trial(number, text, style.astype(np.float32)), space.point(style)))
    return trials


def _mixture(space: StyleSpace, draw: np.random.Generator) -> Vectors:
    """A style interpolated between stock voices, extrapolated beyond two, or drawn around them."""
    kind = draw.random()
    voices = len(space.stock)
    if kind < 0.4:
        some = draw.choice(voices, int(draw.integers(2, 5)), replace=False)
        return np.asarray(draw.dirichlet(np.ones(len(some))) @ space.stock[some])
    if kind < 0.6:
        first, second = draw.choice(voices, 2, replace=False)
        share = draw.uniform(-0.6, 1.6)
        return np.asarray(share * space.stock[first] + (1 - share) * space.stock[second])
    apart = space.stock - space.mean
    size = draw.uniform(0.7, 1.5) / np.sqrt(voices - 1)
    return np.asarray(space.mean + size * draw.normal(size=voices) @ apart)


def measured(kept: Path, space: StyleSpace) -> Vectors:
    """The measurements of each style, a row each."""
    config = load_yaml(KokoroConfig, MODEL).model_copy(update={"threads": 1})
    zeros = np.zeros(SOUND_SIZE, np.float32)  # no speaker to compare with
    target = Target(zeros, zeros, zeros, FALLBACK_LANGUAGE, space.rows)
    trials = Trials(KokoroEngine(config, store()), load(SPEAKER, ENCODER, store()), target)
    kept.parent.mkdir(parents=True, exist_ok=True)
    rows = list(np.load(kept)) if kept.exists() else []
    for trial, _ in trials_of(space)[len(rows) :]:
        rows.append(_row(trials.run(trial)))
        if len(rows) % KEPT_EVERY == 0:
            np.save(kept, np.array(rows))
    return np.array(rows)


def _row(outcome: Outcome) -> Vectors:
    """The measurements of one style, as a row."""
    pitch = pitch_statistics(outcome.pitches)
    head = [outcome.number, outcome.duration_s, *pitch, outcome.rating.quality]
    return np.concatenate([head, outcome.embeddings[0], outcome.spectrum]).astype(np.float64)


def prior_of(rows: Vectors, space: StyleSpace) -> MixturePrior:
    """The prior of the styles whose speech is not empty."""
    rows = rows[rows[:, 1] > 0]
    trials = {trial.number: (trial, point) for trial, point in trials_of(space)}
    texts = sentences_of(FALLBACK_LANGUAGE)[1].search
    spoken = [trials[int(number)] for number in rows[:, 0]]
    stock = np.zeros((len(space.names), SOUND_SIZE))
    for (trial, _), row in zip(spoken, rows, strict=True):
        if trial.voice is not None:
            stock[space.names.index(trial.voice)] += row[5:-40]
    return MixturePrior(
        points=np.stack([point for _, point in spoken]),
        embeddings=rows[:, 5:-40],
        spectra=rows[:, -40:],
        pitches=rows[:, 2:4],
        qualities=rows[:, 4],
        sentences=np.array([texts.index(trial.text) for trial, _ in spoken]),
        stock=stock / np.linalg.norm(stock, axis=1, keepdims=True),
        fingerprint=space.fingerprint,
    )


def write_prior(prior: MixturePrior) -> bytes:
    """Serialises a prior. Sentences of one style differ by more than the rounding changes."""
    target = io.BytesIO()
    levels = -10 * np.log10(prior.spectra + 1e-10) / SPECTRUM_STEP_DB
    np.savez_compressed(
        target,
        points=prior.points.astype(np.float16),
        embeddings=np.clip(np.rint(prior.embeddings / EMBEDDING_STEP), 0, 255).astype(np.uint8),
        pitches=prior.pitches.astype(np.float16),
        qualities=prior.qualities.astype(np.float16),
        stock=prior.stock.astype(np.float16),
        spectra=np.clip(np.rint(levels), 0, 255).astype(np.uint8),
        sentences=prior.sentences.astype(np.int16),
        fingerprint=np.frombuffer(bytes.fromhex(prior.fingerprint), np.uint8),
    )
    return target.getvalue()


if __name__ == "__main__":
    main()
