"""Resemble's Perth watermark (https://github.com/resemble-ai/Perth), without its library.

Its networks change the spectrum below 2 kHz. The published code resamples to 32 kHz, where a frame
has 2048 samples; here, a frame has the same duration at any sample rate. In a stream each frame is
changed once, with a short look-ahead, so that there are no artefacts between pieces.
"""

from collections.abc import Iterator
from functools import cached_property

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from configs.schema.models.in_process import PerthConfig
from models.audio import Pcm
from models.runtimes.onnx import open_session
from models.watermark.base import Watermark
from models.weights.store import WeightStore

BINS = 128  # bins of the spectrum, from 0 Hz, that carry the watermark
WIDE = 7  # kernel of a wide layer, in frames
LAYERS = (1, WIDE, WIDE, WIDE, WIDE, WIDE, 1)  # kernels (frames), with leaky ReLU between layers
STRETCHES = {"slow": 1.25, "normal": 1.0, "fast": 0.75}  # stretch of the decoder's input, by branch
SPEEDS = tuple(STRETCHES)
FRAME_S, HOP_S = 0.064, 0.01
PUBLISHED_SAMPLES = 2048  # frame length of the published code, which scales magnitudes
QUIETEST_DB = -180.0  # level of a magnitude 0
RANGE_DB = 195.0  # range of levels between magnitudes 0 and 1
BEFORE = sum(frames // 2 for frames in LAYERS)  # previous frames that a change depends on
AFTER = 2  # look-ahead in frames; the network could use as many as BEFORE
MOST_S = 10.0  # longest piece processed at once, which takes 4 MB per second
STRETCH_S = 4.0  # length of a stretch for the detection
AUDIBLE = 1e-4  # minimum root mean square of a stretch that is not silent
SOUNDING = 0.05  # share of the loudest frame's sum: quieter frames are ignored

Spectra = NDArray[np.complex64]
Magnitudes = NDArray[np.float32]


class PerthWatermark(Watermark):
    """Perth watermark; the small encoder is loaded at once, the decoder at its first use."""

    def __init__(self, config: PerthConfig, weights: WeightStore) -> None:
        self._graphs = weights.converted(config.artefact)
        self._threads = config.threads
        self.encoder = open_session(self._graphs["encoder.onnx"], config.threads)

    def stream(self, sample_rate: int) -> "PerthStream":
        return PerthStream(self.encoder, sample_rate)

    def likelihoods(self, pcm: Pcm, sample_rate: int) -> Iterator[tuple[float, float, float]]:
        size = round(STRETCH_S * sample_rate)
        for start in range(0, max(1, len(pcm) - size // 2), size):
            # A short rest at the end joins the stretch before it.
            end = len(pcm) if len(pcm) - start < size + size // 2 else start + size
            part = pcm[start:end]
            if len(part) and float(np.sqrt(np.square(part).mean())) > AUDIBLE:
                likelihood = self._likelihood(part, sample_rate)
                yield start / sample_rate, end / sample_rate, likelihood

    def _likelihood(self, pcm: Pcm, sample_rate: int) -> float:
        frame = _SpectrumFrame(sample_rate)
        sides = np.zeros(frame.samples // 2, np.float32)
        spectra = frame.spectra(np.concatenate([sides, pcm, sides]))
        magnitudes = frame.magnitudes(spectra)
        sums = magnitudes.sum(axis=0)
        sounding = sums > SOUNDING * sums.max()
        below = magnitudes[:BINS]
        frames = below.shape[1]
        lengths = {speed: max(2, int(frames * ratio)) for speed, ratio in STRETCHES.items()}
        inputs = {speed: _stretched(below, length)[None] for speed, length in lengths.items()}
        weights, marks = [], []
        for (weighing, mark), length in zip(
            (rows[0] for rows in self._decoder.run(None, inputs)), lengths.values(), strict=True
        ):
            chosen = sounding[np.arange(length) * frames // length]
            weights.append(float(weighing[chosen].mean()))
            marks.append(float(mark[chosen].mean()))
        shares = np.exp(np.array(weights) - max(weights))
        return float(np.clip((shares * marks).sum() / shares.sum(), 0.0, 1.0))

    @cached_property
    def _decoder(self) -> onnxruntime.InferenceSession:
        return open_session(self._graphs["decoder.onnx"], self._threads)


class PerthStream:
    """Watermarking of one stream; keeps only the audio and magnitudes that later frames need."""

    def __init__(self, encoder: onnxruntime.InferenceSession, sample_rate: int) -> None:
        self._encoder = encoder
        self._frame = _SpectrumFrame(sample_rate)
        half = self._frame.samples // 2
        self._waiting: Pcm = np.zeros(half, np.float32)  # audio from the next frame on
        self._spectra: Spectra = np.zeros((self._frame.bins, 0), np.complex64)  # not yet changed
        self._before: Magnitudes = np.zeros((BINS, 0), np.float32)  # of already changed frames
        self._sum = np.zeros(self._frame.samples, np.float64)  # overlap-add of changed frames
        self._weight = np.zeros(self._frame.samples, np.float64)
        self._skipped = -half  # samples of silence before the audio
        self._unreturned = 0  # samples that came in and were not returned yet

    def process(self, pcm: Pcm) -> Pcm:
        self._unreturned += len(pcm)
        size = round(MOST_S / HOP_S) * self._frame.hop
        parts = [self._marked(pcm[at : at + size], AFTER) for at in range(0, len(pcm), size)]
        return np.concatenate([np.zeros(0, np.float32), *parts])

    def flush(self) -> Pcm:
        silence = np.zeros(self._frame.samples + self._frame.hop, np.float32)
        return self._marked(silence, 0)[: self._unreturned]

    def _marked(self, pcm: Pcm, after: int) -> Pcm:
        frame = self._frame
        self._waiting = np.concatenate([self._waiting, pcm])
        if len(self._waiting) >= frame.samples:
            fresh = frame.spectra(self._waiting)
            self._waiting = self._waiting[fresh.shape[1] * frame.hop :]
            self._spectra = np.concatenate([self._spectra, fresh], axis=1)
        count = self._spectra.shape[1] - after
        if count <= 0:
            return np.zeros(0, np.float32)
        magnitudes = frame.magnitudes(self._spectra)[:BINS]
        seen = np.concatenate([self._before, magnitudes], axis=1)
        (change,) = self._encoder.run(None, {"magnitudes": seen[None]})
        begin = self._before.shape[1]
        changed = self._spectra[:, :count].copy()
        changed[:BINS] *= 10 ** (change[0, :, begin : begin + count] * (RANGE_DB / 20))
        self._before = seen[:, max(0, begin + count - BEFORE) : begin + count]
        self._spectra = self._spectra[:, count:]
        return self._overlap_added(frame.waves(changed))

    def _overlap_added(self, waves: NDArray[np.float64]) -> Pcm:
        """Adds frames; returns the samples that no later frame overlaps."""
        frame, done = self._frame, len(waves) * self._frame.hop
        longer = np.zeros(done)
        total = np.concatenate([self._sum, longer])
        weight = np.concatenate([self._weight, longer])
        for number, wave in enumerate(waves):
            at = slice(number * frame.hop, number * frame.hop + frame.samples)
            total[at] += wave
            weight[at] += frame.window_power
        self._sum, self._weight = total[done:], weight[done:]
        given: Pcm = (total[:done] / np.maximum(weight[:done], 1e-8)).astype(np.float32)
        skipped = min(len(given), -self._skipped)
        self._skipped += skipped
        given = given[skipped:]
        self._unreturned -= len(given)
        return given


class _SpectrumFrame:
    """Short-time Fourier transform and its inverse, at one sample rate."""

    def __init__(self, sample_rate: int) -> None:
        self.samples = round(FRAME_S * sample_rate)
        self.hop = round(HOP_S * sample_rate)
        self.bins = self.samples // 2 + 1
        self._window = np.hanning(self.samples + 1)[:-1].astype(np.float32)
        self.window_power = np.square(self._window, dtype=np.float64)

    def spectra(self, pcm: Pcm) -> Spectra:
        """Transforms the complete frames of `pcm`, at least one, to [bins, frames]."""
        frames = np.lib.stride_tricks.sliding_window_view(pcm, self.samples)[:: self.hop]
        return np.fft.rfft(frames * self._window, axis=1).T.astype(np.complex64)

    def magnitudes(self, spectra: Spectra) -> Magnitudes:
        """Scales magnitudes for the networks, to about 0 to 1."""
        levels = np.abs(spectra) * np.float32(PUBLISHED_SAMPLES / self.samples)
        db = 20 * np.log10(np.maximum(levels, 10 ** (QUIETEST_DB / 20)))
        return np.asarray((db - QUIETEST_DB) / RANGE_DB, np.float32)

    def waves(self, spectra: Spectra) -> NDArray[np.float64]:
        """Transforms spectra back to windowed frames, [frames, samples]."""
        waves: NDArray[np.float64] = np.fft.irfft(spectra.T, self.samples, axis=1)
        return waves * self._window


def _stretched(values: Magnitudes, length: int) -> Magnitudes:
    """Stretches [bins, n] to [bins, length] by linear interpolation."""
    last = values.shape[1] - 1
    places = np.linspace(0, last, length)
    left = np.minimum(places.astype(int), max(0, last - 1))
    share = (places - left).astype(np.float32)
    right = np.minimum(left + 1, last)
    return np.asarray(values[:, left] * (1 - share) + values[:, right] * share, np.float32)
