"""Custom voices: similarity to the speaker, intelligibility, quality and processor time.

`python -m benchmarks.voices.fitting FOLDER` takes a folder with one folder of recordings a speaker.
The last recordings of each are kept out of the fit; the voice is then judged with sentences that
the fit has never seen, next to the nearest stock voice and to the recordings of the fit. Speech is
judged as `POST /tts-synthesize` delivers it by default: enhanced, as MP3, and decoded again.

`--recorded 40` fits to 40 seconds, repeated to fill the two minutes that `POST /voices` asks for.
`--keep FOLDER` keeps the work, so that an interrupted run goes on where it stopped.
"""

import argparse
import io
import multiprocessing
import pickle
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import av
import numpy as np
import yaml

from benchmarks.harness.recordings import audio_files, speaker_folders
from benchmarks.harness.report import begin, parser
from benchmarks.harness.speech import SENTENCES_FILE, store, whole_speech
from configs.load import load_yaml
from configs.schema.models.tts import KokoroConfig
from configs.schema.voices import CustomVoicesConfig
from models.audio import AudioChunk, Pcm, resample
from models.registry import SPEAKER, load
from models.speaker.base import SPEAKER_SAMPLE_RATE, Embeddings, SpeakerEncoder, mean_embedding
from models.tts.base import PackRef, SynthesisRequest
from models.tts.kokoro.engine import KokoroEngine
from models.tts.voice_pack import pack_digest
from pipelines.audio.effects import HighPass, enhance
from pipelines.audio.encode.encoder import encode, wav_header
from pipelines.voices.fitting.features import at_level, decode_all
from pipelines.voices.fitting.fit import Fit
from pipelines.voices.fitting.prior import MODEL, FittingPrior, load_fitting_prior
from pipelines.voices.fitting.trials import (
    Outcome,
    SpeechRating,
    Target,
    Trial,
    Trials,
    load_second_encoder,
    load_speech_raters,
    mean_rating,
)
from pipelines.voices.report import FailedFit, FittedVoice

ENCODER = "speaker/resemblyzer"
LANGUAGE = "en"
LENGTH_S, FILE_S = 120.0, 30.0  # of repeated recordings, in all and of each file


@dataclass(frozen=True, slots=True)
class Heard:
    """One sentence as it is delivered."""

    views: Embeddings  # [3, 256]: at one level, as delivered, by the second encoder
    rating: SpeechRating


@dataclass(frozen=True, slots=True)
class Score:
    """Cosines with recordings that were kept out of the fit, and ratings."""

    level: float
    delivered: float
    second: float
    error_rate: float | None = None
    quality: float | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """The result of one speaker."""

    speaker: str
    stock: tuple[str, Score]  # the nearest
    native: tuple[str, Score]  # the nearest of the language, which the selection compares with
    own: Score  # of the recordings of the fit
    clone: Score | None  # None: the fit failed
    fitted: FittedVoice | FailedFit
    cpu_s: float  # of all processes of the fit


_engines: list[Any] = []  # of this worker process


def main() -> None:
    arguments = _parse()
    prior = load_fitting_prior()
    encoder = load(SPEAKER, ENCODER, store())
    with tempfile.TemporaryDirectory() as forgotten:
        arguments.keep = arguments.keep or Path(forgotten)
        _measure(arguments, prior, encoder)


def _measure(arguments: argparse.Namespace, prior: FittingPrior, encoder: SpeakerEncoder) -> None:
    arguments.keep.mkdir(parents=True, exist_ok=True)
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(arguments.workers, spawn, _load) as pool:
        folders = speaker_folders(arguments.folder, arguments.speakers)
        _print([_speaker(folder, arguments, prior, encoder, pool) for folder in folders])


def _parse() -> argparse.Namespace:
    options = parser(__doc__)
    options.add_argument("folder", type=Path)
    options.add_argument("--workers", type=int, default=2, help="processes of one thread")
    options.add_argument("--speakers", nargs="*", help="names of folders; all by default")
    options.add_argument("--kept-out", type=int, default=3, help="recordings of each speaker")
    options.add_argument("--recorded", type=float, help="seconds for the fit; all by default")
    options.add_argument("--keep", type=Path, help="folder of results to continue from")
    return begin(options)


def _load() -> None:
    """Initialises a worker process: loads its engines."""
    config = load_yaml(KokoroConfig, MODEL).model_copy(update={"threads": 1})
    _engines.extend((KokoroEngine(config, store()), load(SPEAKER, ENCODER, store())))


def _try(target: Target, trial: Trial) -> tuple[Outcome, float]:
    """Runs in a worker process. Returns also the processor seconds that the trial took."""
    engine, encoder = _engines
    began = time.process_time()
    outcome = Trials(engine, encoder, target, _raters, _second).run(trial)
    return outcome, time.process_time() - began


_raters, _second = cache(load_speech_raters), cache(load_second_encoder)


def _hear(text: str, voice: str | None, pack: bytes | None) -> Heard:
    """Runs in a worker process."""
    engine, encoder = _engines
    reference = None if pack is None else PackRef(pack_digest(pack), pack)
    request = SynthesisRequest(text, voice or engine.voices()[0].key, LANGUAGE, pack=reference)
    pcm = as_delivered(whole_speech(engine, request), engine.capabilities.sample_rate)
    return Heard(_views(pcm, encoder), _raters().rate(text, LANGUAGE, pcm))


def as_delivered(pcm: Pcm, sample_rate: int) -> Pcm:
    """Speech of an engine as `POST /tts-synthesize` sends it by default, decoded to 16 kHz."""
    steady = HighPass(sample_rate).process(pcm)
    loud = np.concatenate(list(enhance(lambda: iter([steady]), sample_rate)))
    mp3 = io.BytesIO(encode(AudioChunk(loud, sample_rate), "mp3").data)
    with av.open(mp3, "r") as file:
        decoded = np.concatenate([frame.to_ndarray()[0] for frame in file.decode(audio=0)])
    return resample(decoded.astype(np.float32), sample_rate, SPEAKER_SAMPLE_RATE)


def _views(pcm: Pcm, encoder: SpeakerEncoder) -> Embeddings:
    return np.stack([encoder.embed(at_level(pcm)), encoder.embed(pcm), _second().embed(pcm)])


def _speaker(
    folder: Path,
    arguments: argparse.Namespace,
    prior: FittingPrior,
    encoder: SpeakerEncoder,
    pool: Executor,
) -> Row:
    """Fit one speaker, or load the kept result."""
    kept = arguments.keep / f"{folder.name}.row"
    state = arguments.keep / f"{folder.name}.state"
    if kept.exists():
        return pickle.loads(kept.read_bytes())  # type: ignore[no-any-return]
    signals = decode_all([path.read_bytes() for path in audio_files(folder)])
    used = signals[: -arguments.kept_out]
    others = signals[-arguments.kept_out :]
    if arguments.recorded:
        used = _repeated(used, arguments.recorded)
    config = load_yaml(CustomVoicesConfig, "custom_voices").fit
    content = [_wav(pcm) for pcm in used]
    checkpoint, cpu_s = pickle.loads(state.read_bytes()) if state.exists() else (None, 0.0)
    began = time.process_time()
    fit = Fit.begin(
        content, LANGUAGE, "neutral", config, encoder, checkpoint=checkpoint, prior=prior
    )
    while trials := fit.next_trials():
        outcomes = list(pool.map(partial(_try, fit.target), trials))
        fit.observe([outcome for outcome, _ in outcomes])
        cpu_s += sum(trial_s for _, trial_s in outcomes) + time.process_time() - began
        began = time.process_time()
        state.write_bytes(pickle.dumps((fit.checkpoint(), cpu_s)))
    fitted = fit.result()
    held_out = np.stack([_views(pcm, encoder) for pcm in others])
    values = prior.mixtures.stock @ fit.target.held_out
    names = [prior.space.names[int(index)] for index in np.argsort(-values)]
    native = next(name for name in names if name[0] in "ab")
    stock = {name: _judge(pool, held_out, name, None) for name in {names[0], native}}
    clone = None
    if isinstance(fitted, FittedVoice):
        clone = _judge(pool, held_out, None, fitted.pack)
    row = Row(
        speaker=folder.name,
        stock=(names[0], stock[names[0]]),
        native=(native, stock[native]),
        own=_score([Heard(_views(pcm, encoder), SpeechRating()) for pcm in used], held_out),
        clone=clone,
        fitted=fitted,
        cpu_s=cpu_s,
    )
    kept.write_bytes(pickle.dumps(row))
    return row


def _repeated(signals: Sequence[Pcm], recorded_s: float) -> list[Pcm]:
    """Files of FILE_S, LENGTH_S in all, from the first seconds of the signals."""
    joined = np.concatenate(signals)[: round(recorded_s * SPEAKER_SAMPLE_RATE)]
    return np.split(
        np.resize(joined, round(LENGTH_S * SPEAKER_SAMPLE_RATE)), round(LENGTH_S / FILE_S)
    )


def _wav(pcm: Pcm) -> bytes:
    data = np.asarray(np.clip(pcm, -1, 1) * 32767, np.int16).tobytes()
    return wav_header(SPEAKER_SAMPLE_RATE, len(data)) + data


def _judge(pool: Executor, held_out: Embeddings, voice: str | None, pack: bytes | None) -> Score:
    """Scores a voice on sentences that no fit has seen."""
    texts = yaml.safe_load(SENTENCES_FILE.read_text())[LANGUAGE]
    return _score(list(pool.map(_hear, texts, [voice] * len(texts), [pack] * len(texts))), held_out)


def _score(sentences: Sequence[Heard], held_out: Embeddings) -> Score:
    """`held_out` is [recordings, 3, 256]."""
    level, delivered, second = (
        float(
            mean_embedding(np.stack([sentence.views[view] for sentence in sentences]))
            @ mean_embedding(held)
        )
        for view, held in enumerate(held_out.swapaxes(0, 1))
    )
    return Score(
        level, delivered, second, *mean_rating([sentence.rating for sentence in sentences])
    )


def _print(rows: Sequence[Row]) -> None:
    print("cosines: as delivered / at one level / by the second encoder")
    for row in rows:
        report = row.fitted.report
        assert report is not None, "the recordings had speech"
        print(f"{row.speaker}: {report.evaluations} evaluations, {row.cpu_s:.0f} s of processors")
        _print_score("the recordings themselves", row.own)
        _print_score(f"stock {row.stock[0]}", row.stock[1])
        _print_score(f"stock {row.native[0]}", row.native[1])
        if row.clone is None:
            print(f"  failed: {getattr(row.fitted, 'reason', '')}")
        else:
            _print_score("custom voice", row.clone)
    for title, scores in (
        ("stock", [row.stock[1] for row in rows]),
        ("custom voices", [row.clone for row in rows if row.clone is not None]),
    ):
        values = [[getattr(score, name) or 0.0 for name in Score.__slots__] for score in scores]
        _print_score(f"mean of {title}", Score(*np.mean(values, axis=0).tolist()))


def _print_score(title: str, score: Score) -> None:
    rated = ""
    if score.quality is not None:
        rated = f"  WER {score.error_rate or 0:.1%}  DNSMOS {score.quality:.2f}"
    cosines = f"{score.delivered:.3f} / {score.level:.3f} / {score.second:.3f}"
    print(f"  {title:27} {cosines}{rated}")


if __name__ == "__main__":
    main()
