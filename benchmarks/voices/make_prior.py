"""Makes `prior.npz`: synthesises random mixtures of the stock voices and embeds their audio.

`python -m benchmarks.voices.make_prior FOLDER --part 0 --of 2` speaks every second
mixture, and continues where it was stopped; `--join` writes the file from all parts. It
takes ten minutes of one core.
"""

import argparse
import io
import time
from pathlib import Path

import numpy as np

from configs.load import load_yaml
from configs.schema.models.tts import KokoroConfig
from configs.settings import weights_dir
from models.registry import SPEAKER, load
from models.tts.kokoro.engine import KokoroEngine
from models.weights.store import WeightStore
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
from pipelines.voices.fitting.trials import (
    FALLBACK_LANGUAGE,
    Outcome,
    Target,
    Trial,
    Trials,
    sentences_of,
)

ENCODER = "speaker/resemblyzer"
MIXTURES = 400
SEED = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--part", type=int, default=0)
    parser.add_argument("--of", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after so many")
    parser.add_argument("--join", action="store_true")
    arguments = parser.parse_args()
    store = WeightStore(weights_dir())
    space = stock_space(store)
    if arguments.join:
        PRIOR_FILE.write_bytes(write_prior(_joined(arguments.folder, space)))
    else:
        _speak(arguments, space, store)


def trials_of(space: StyleSpace) -> list[tuple[Trial, Vectors]]:
    """All styles that are spoken, each with its point."""
    texts = sentences_of(FALLBACK_LANGUAGE)[1].search
    made = []
    for index, name in enumerate(space.names):
        for turn in range(STOCK_SENTENCES):
            number = index * STOCK_SENTENCES + turn
            trial = Trial(number, texts[number % len(texts)], None, voice=name)
            made.append((trial, space.point(space.stock[index])))
    for number in range(len(made), len(made) + MIXTURES):
        draw = np.random.default_rng((SEED, number))
        style = _mixture(space, draw)
        if draw.random() < 0.7:
            style[HALF:] = _mixture(space, draw)[HALF:]
        text = texts[int(draw.integers(len(texts)))]
        made.append((Trial(number, text, style.astype(np.float32)), space.point(style)))
    return made


def _mixture(space: StyleSpace, draw: np.random.Generator) -> Vectors:
    """A style interpolated between stock voices, extrapolated beyond two, or drawn around them."""
    kind, voices = draw.random(), len(space.stock)
    if kind < 0.4:
        some = draw.choice(voices, int(draw.integers(2, 5)), replace=False)
        return np.asarray(draw.dirichlet(np.ones(len(some))) @ space.stock[some])
    if kind < 0.6:
        one, other = draw.choice(voices, 2, replace=False)
        share = draw.uniform(-0.6, 1.6)
        return np.asarray(share * space.stock[one] + (1 - share) * space.stock[other])
    apart = space.stock - space.mean
    size = draw.uniform(0.7, 1.5) / np.sqrt(voices - 1)
    return np.asarray(space.mean + size * draw.normal(size=voices) @ apart)


def _speak(arguments: argparse.Namespace, space: StyleSpace, store: WeightStore) -> None:
    began = time.monotonic()
    config = load_yaml(KokoroConfig, MODEL).model_copy(update={"threads": 1})
    zeros = np.zeros(SOUND_SIZE, np.float32)  # no speaker to compare with
    target = Target(zeros, zeros, zeros, FALLBACK_LANGUAGE, space.rows)
    trials = Trials(KokoroEngine(config, store), load(SPEAKER, ENCODER, store), target)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    path = arguments.folder / f"part-{arguments.part}.npy"
    rows = list(np.load(path)) if path.exists() else []
    mine = trials_of(space)[arguments.part :: arguments.of]
    for trial, _ in mine[len(rows) :]:
        if time.monotonic() - began > arguments.seconds:
            break
        rows.append(_row(trials.run(trial)))
    np.save(path, np.array(rows))


def _row(outcome: Outcome) -> Vectors:
    """The measurements of one style, as a row."""
    pitch = pitch_statistics(outcome.pitches)
    head = [outcome.number, outcome.duration_s, *pitch, outcome.rating.quality]
    return np.concatenate([head, outcome.embeddings[0], outcome.spectrum]).astype(np.float64)


def _joined(folder: Path, space: StyleSpace) -> MixturePrior:
    rows = np.concatenate([np.load(path) for path in sorted(folder.glob("part-*.npy"))])
    rows = rows[np.argsort(rows[:, 0])]
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
    """Rounds to a precision finer than the difference between two sentences of one style."""
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
