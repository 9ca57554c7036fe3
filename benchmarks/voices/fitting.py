"""Custom voices: similarity to the speaker, intelligibility, quality and fitting time.

`python -m benchmarks.voices.fitting FOLDER` takes a folder with one folder of recordings a speaker.
The last recordings of each are kept out of the fit; the voice is then judged with sentences that
the fit has never seen, next to the stock voices that are nearest to the speaker. Word errors and
DNSMOS are compared with those of stock voices of the language.

`--keep FOLDER --seconds 200` does a part of the work; the next call continues from FOLDER.
`--slow-fake-trials 0.5` times the driver with trials that only sleep so long, on 2 and 4 workers.
"""

import argparse
import multiprocessing
import pickle
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from benchmarks.hardware import hardware
from configs.load import load_yaml
from configs.schema.models.tts import KokoroConfig
from configs.schema.voices import CustomVoicesConfig
from configs.settings import weights_dir
from models.registry import SPEAKER, load
from models.speaker.base import EMBEDDING_SIZE, SpeakerEncoder
from models.speaker.mel import MEL_BANDS
from models.tts.kokoro.engine import KokoroEngine
from models.weights.store import WeightStore
from pipelines.voices.fitting.features import at_level, decode_all
from pipelines.voices.fitting.fit import Fit
from pipelines.voices.fitting.prior import MODEL, FittingPrior, load_fitting_prior
from pipelines.voices.fitting.selection import SelectionResult, selection_result
from pipelines.voices.fitting.trials import Outcome, Target, Trial, Trials, load_speech_raters
from pipelines.voices.report import FailedFit, FittedVoice

SUFFIXES = (".wav", ".flac", ".mp3")
ENCODER = "speaker/resemblyzer"
STOCK = ("af_heart", "am_michael", "bf_emma", "bm_george")  # as baselines of word errors and DNSMOS
NEAREST = 4  # stock voices compared: the nearest by their known embeddings
LANGUAGE = "en"
TEXTS = Path(__file__).parent.with_name("sentences.yaml")

Map = Callable[[Target, Sequence[Trial]], list[Outcome]]


@dataclass(frozen=True, slots=True)
class Row:
    """The result of one speaker."""

    speaker: str
    stock: tuple[str, float]  # the nearest, and its similarity
    clone: SelectionResult
    fitted: FittedVoice | FailedFit

    @property
    def similarity(self) -> float:
        return self.clone.held_out

    @property
    def gain(self) -> float:
        return self.similarity - self.stock[1]


_engines: list[Any] = []  # of this worker process


def main() -> None:
    arguments = _parse()
    print(hardware())
    prior = load_fitting_prior()
    encoder = load(SPEAKER, ENCODER, WeightStore(weights_dir()))
    if arguments.slow_fake_trials:
        _scaling(arguments, prior, encoder)
        return
    with tempfile.TemporaryDirectory() as forgotten:
        arguments.keep = arguments.keep or Path(forgotten)
        _measure(arguments, prior, encoder)


def _measure(arguments: argparse.Namespace, prior: FittingPrior, encoder: SpeakerEncoder) -> None:
    arguments.keep.mkdir(parents=True, exist_ok=True)
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(arguments.workers, spawn, _load) as pool:
        run = partial(_run, pool)
        done = [_speaker(one, arguments, prior, encoder, run) for one in _folders(arguments)]
        rows = [row for row in done if row is not None]
        if len(rows) < len(done):
            print("time is spent; call again to continue")
            return
        no_speaker = np.zeros(EMBEDDING_SIZE, np.float32)
        target = Target(no_speaker, no_speaker, LANGUAGE, prior.space.rows)
        stock = [_judge(target, run, Trial(0, "", None, voice=one)) for one in STOCK]
    _print(rows, stock)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--workers", type=int, default=2, help="processes of one thread")
    parser.add_argument("--speakers", nargs="*", help="names of folders; all by default")
    parser.add_argument("--kept-out", type=int, default=3, help="recordings of each speaker")
    parser.add_argument("--keep", type=Path, help="folder of results to continue from")
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after so many")
    parser.add_argument("--slow-fake-trials", type=float, metavar="SECONDS")
    arguments = parser.parse_args()
    arguments.until = time.monotonic() + arguments.seconds
    return arguments


def _folders(arguments: argparse.Namespace) -> list[Path]:
    folders = [one for one in sorted(arguments.folder.iterdir()) if one.is_dir()]
    return [one for one in folders if not arguments.speakers or one.name in arguments.speakers]


def _recordings(folder: Path) -> list[bytes]:
    return [one.read_bytes() for one in sorted(folder.iterdir()) if one.suffix in SUFFIXES]


def _load() -> None:
    """Initialises a worker process: loads its engines."""
    store = WeightStore(weights_dir())
    config = load_yaml(KokoroConfig, MODEL).model_copy(update={"threads": 1})
    _engines.extend((KokoroEngine(config, store), load(SPEAKER, ENCODER, store)))


def _try(target: Target, trial: Trial) -> Outcome:
    """Runs in a worker process."""
    engine, encoder = _engines
    return Trials(engine, encoder, target, _raters).run(trial)


_raters = cache(load_speech_raters)


def _run(pool: Executor, target: Target, trials: Sequence[Trial]) -> list[Outcome]:
    return list(pool.map(partial(_try, target), trials))


def _speaker(
    folder: Path,
    arguments: argparse.Namespace,
    prior: FittingPrior,
    encoder: SpeakerEncoder,
    run: Map,
) -> Row | None:
    """Fits one speaker, or loads the kept result; None when the time is spent."""
    kept, state = (arguments.keep / f"{folder.name}.{kind}" for kind in ("row", "state"))
    if kept.exists():
        return pickle.loads(kept.read_bytes())  # type: ignore[no-any-return]
    if time.monotonic() > arguments.until:
        return None
    recordings = _recordings(folder)
    used, others = recordings[: -arguments.kept_out], recordings[-arguments.kept_out :]
    config = load_yaml(CustomVoicesConfig, "custom_voices").fit
    checkpoint = state.read_bytes() if state.exists() else None
    fit = Fit.begin(used, LANGUAGE, "neutral", config, encoder, checkpoint=checkpoint, prior=prior)
    while trials := fit.next_trials():
        spoken = trials[0]  # in the end with the finished voice
        fit.observe(run(fit.target, trials))
        state.write_bytes(fit.checkpoint())
        if time.monotonic() > arguments.until and fit.progress < 1:
            return None
    held_out = encoder.embed_signals(at_level(pcm) for pcm in decode_all(others))
    target = replace(fit.target, held_out=held_out)
    fitted = fit.result()
    near = np.argsort(-(prior.mixtures.stock @ held_out))[:NEAREST]
    names = [prior.space.names[index] for index in near]
    stock = [_judge(target, run, Trial(0, "", None, voice=name), rate=False) for name in names]
    best = max(zip(names, stock, strict=True), key=lambda pair: pair[1].held_out)
    clone = _judge(target, run, spoken)
    row = Row(folder.name, (best[0], best[1].held_out), clone, fitted)
    kept.write_bytes(pickle.dumps(row))
    return row


def _judge(target: Target, run: Map, like: Trial, *, rate: bool = True) -> SelectionResult:
    """Scores a voice on sentences that no fit has seen."""
    texts = yaml.safe_load(TEXTS.read_text())[LANGUAGE]
    trials = [
        replace(like, number=number, text=text, rate=rate) for number, text in enumerate(texts)
    ]
    return selection_result(run(target, trials), target)


def _print(rows: Sequence[Row], stock: Sequence[SelectionResult]) -> None:
    print("speaker  nearest stock          clone   gain    WER  DNSMOS  seconds  evaluations")
    for row in rows:
        report = row.fitted.report
        assert report is not None, "the recordings had speech"
        print(
            f"{row.speaker:8} {row.stock[1]:.3f} {row.stock[0]:16} {row.similarity:.3f} "
            f"{row.gain:+.3f} {row.clone.error_rate or 0:6.1%}  {row.clone.quality or 0:.2f}   "
            f"{report.seconds:7.0f}  {report.evaluations:5}"
            + (f"  {row.fitted.reason}" if isinstance(row.fitted, FailedFit) else "")
        )
    wrong = np.mean([row.clone.error_rate or 0 for row in rows])
    rated = np.mean([row.clone.quality or 0 for row in rows])
    print(
        f"mean     {np.mean([row.stock[1] for row in rows]):.3f} {'':16} "
        f"{np.mean([row.similarity for row in rows]):.3f} "
        f"{np.mean([row.gain for row in rows]):+.3f} {wrong:6.1%}  {rated:.2f}"
    )
    wrong = np.mean([one.error_rate or 0 for one in stock])
    rated = np.mean([one.quality or 0 for one in stock])
    print(f"stock voices: WER {wrong:.1%}, DNSMOS {rated:.2f}")


def _scaling(arguments: argparse.Namespace, prior: FittingPrior, encoder: SpeakerEncoder) -> None:
    """Times a fit whose trials only sleep."""
    recordings = _recordings(_folders(arguments)[0])
    config = load_yaml(CustomVoicesConfig, "custom_voices").fit
    for workers in (2, 4):
        fit = Fit.begin(recordings, LANGUAGE, "neutral", config, encoder, prior=prior)
        began = time.perf_counter()
        with ThreadPoolExecutor(workers) as pool:
            while trials := fit.next_trials():
                fit.observe(list(pool.map(partial(_sleep, arguments.slow_fake_trials), trials)))
        print(f"{workers} workers: {time.perf_counter() - began:.1f} s")


def _sleep(seconds: float, trial: Trial) -> Outcome:
    time.sleep(seconds)
    draw = np.random.default_rng(trial.number)
    heard = np.abs(draw.normal(size=(max(1, len(trial.filters)), EMBEDDING_SIZE)))
    heard /= np.linalg.norm(heard, axis=1, keepdims=True)
    spectrum = np.full(MEL_BANDS, 1 / MEL_BANDS, np.float32)
    pitches = np.full(10, 120, np.float32)
    return Outcome(trial.number, heard.astype(np.float32), spectrum, pitches, 2.0, 24_000)


if __name__ == "__main__":
    main()
