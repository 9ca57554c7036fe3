"""Makes the parts of a voice's report: histograms, spectra, the curve and audio samples."""

import base64
import io
from collections.abc import Sequence

import av
import numpy as np
from numpy.typing import NDArray

from models.audio import Pcm
from models.speaker.base import SPEAKER_SAMPLE_RATE
from models.speaker.mel import mel_centres_hz
from pipelines.voices.fitting.features import at_level
from pipelines.voices.fitting.search.style_space import Vectors
from pipelines.voices.report import Pitch, Samples, Spectrum

BINS_HZ = np.geomspace(60, 400, 39)  # 0.07 octaves each
BIT_RATE = 24_000
LOUDER_DB = 8.0  # than the level of embeddings
SILENT = 1e-9


def pitch_of(source: NDArray[np.float32], clone: NDArray[np.float32]) -> Pitch | None:
    """Of the pitches of frames, Hz; None where one of both has none."""
    if not len(source) or not len(clone):
        return None
    shares = []
    for pitches in (source, clone):
        counts = np.histogram(np.clip(pitches, BINS_HZ[0], BINS_HZ[-1]), BINS_HZ)[0]
        shares.append((counts / max(1, counts.sum())).round(4).tolist())
    return Pitch(
        hz_bins=BINS_HZ.round(1).tolist(),
        source=shares[0],
        clone=shares[1],
        source_hz=round(float(np.median(source)), 1),
        clone_hz=round(float(np.median(clone)), 1),
    )


def spectrum_of(source: Vectors, clone: Vectors) -> Spectrum:
    """Of mean powers in the mel bands, [40] each."""
    levels = []
    for powers in (source, clone):
        decibels = 10 * np.log10(powers + SILENT)
        levels.append((decibels - decibels.mean()).round(2).tolist())
    hz = mel_centres_hz().round(1).tolist()
    return Spectrum(hz=hz, source_db=levels[0], clone_db=levels[1])


def samples_of(sentence: str, source: Pcm, clone: Pcm) -> Samples:
    """Both at one level."""
    return Samples(sentence=sentence, source=_sound(source), clone=_sound(clone))


def best_so_far(curve: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    best, found = -1.0, []
    for count, value in curve:
        best = max(best, value)
        found.append((count, round(best, 4)))
    return found


def _sound(pcm: Pcm) -> str:
    loud = np.clip(at_level(pcm) * 10 ** (LOUDER_DB / 20), -1, 1)
    return base64.b64encode(_ogg_opus(np.asarray(loud * 32767, np.int16))).decode()


def _ogg_opus(samples: NDArray[np.int16]) -> bytes:
    """A file of mono samples at SPEAKER_SAMPLE_RATE."""
    target = io.BytesIO()
    with av.open(target, "w", format="ogg") as file:
        stream = file.add_stream("libopus", rate=SPEAKER_SAMPLE_RATE, layout="mono")
        stream.bit_rate = BIT_RATE
        frame = av.AudioFrame.from_ndarray(samples[None], format="s16", layout="mono")
        frame.sample_rate = SPEAKER_SAMPLE_RATE
        for packet in (*stream.encode(frame), *stream.encode(None)):
            file.mux(packet)
    return target.getvalue()
