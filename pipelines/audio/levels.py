"""A mono mixdown without cancellation, and speech without an offset at a level that recognisers
know. Both are causal, so files and streams give the same result, however they are cut."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from models.audio import Pcm

MEMORY = 32_000.0  # samples after which a correlation of channels fades to 1 / e
OPPOSITE = -0.5  # correlation below which a channel is inverted

FRAME_SAMPLES = 512  # 32 ms
BLOCK_FRAMES = 1024
# Levels are RMS of these frames, at full scale 1. Measured with `benchmarks.stt.levels`: speech at
# -30 dB is recognised as well as louder speech.
TARGET = 10 ** (-30 / 20)  # level of the loudest frames; louder speech is left as it is
MOST_GAIN = 10 ** (48 / 20)  # more would only raise the steps of 16 bits
QUIET = 10 ** (-70 / 20)  # lowest level of the loudest frames without more word errors
QUIET_WARNING = "the audio is very quiet: words may be missing or wrong"
NOISE = 1e-5  # lowest level assumed for noise: the steps of 16 bits
OVER_NOISE = 4.0  # ratio to the noise from which a frame is a sound
NOISE_RISE = 10 ** (10 * 0.032 / 20)  # per frame: louder noise counts as noise after some seconds
FALL = 10 ** (-6 * 0.032 / 20)  # per frame: after a click, or as a speaker moves away
OFFSET_SHARE = 0.03  # weight of a new frame in the mean
SMALL_OFFSET = 5e-3  # smaller ones stay in loud speech: a period cut by a frame gives one, too
# Frames of sound before a stream is amplified: Whisper heard words in the noise of soft beginnings.
FIRST_SOUNDS = 10

Column = NDArray[np.float32]  # [n, 1]


class Mixdown:
    """Mixes the channels of a stream to one. Those in opposite phase are inverted, since their mean
    would be silence."""

    def __init__(self) -> None:
        self._products: NDArray[np.float64] | None = None  # [channels, channels]

    def mix(self, samples: NDArray[np.float32]) -> Pcm:
        """Mix float32 [channels, n] to float32 [n]."""
        channels, length = samples.shape
        if channels == 1 or not length:
            return np.asarray(samples[0], np.float32)
        centred = samples - samples.mean(axis=1, keepdims=True)
        products = (centred @ centred.T).astype(np.float64)
        if self._products is not None:
            products += np.exp(-length / MEMORY) * self._products
        self._products = products
        energies = products.diagonal()
        loudest = int(energies.argmax())
        limit = OPPOSITE * np.sqrt(energies * energies[loudest])
        signs = np.where(products[loudest] < limit, -1.0, 1.0)
        weights = (signs * signs[0] / channels).astype(np.float32)
        return np.asarray(weights @ samples, np.float32)


class Leveller:
    """Removes a constant offset from frames, and amplifies speech that is too quiet. The gain
    follows the loudest frames above the noise, so that noise alone is not amplified."""

    def __init__(self) -> None:
        self._offset: float | None = None
        self._noise = 1.0
        self._level = 0.0  # level of the loudest frames; 0 before the first sound
        self._sounds = 0  # frames

    @property
    def is_quiet(self) -> bool:
        """Whether the last sounds, or the noise if there were none, are below QUIET."""
        return max(self._level, self._noise) < QUIET

    def process(self, frames: NDArray[np.float32]) -> NDArray[np.float32]:
        """Level float32 [n, samples]; return the same array if nothing changes."""
        return _changed(frames, self.offsets(frames), self._gains(frames))

    def offsets(self, frames: NDArray[np.float32]) -> Column:
        offsets = np.zeros((len(frames), 1), np.float32)
        for index, mean in enumerate(frames.mean(axis=1).tolist()):
            before = mean if self._offset is None else self._offset
            self._offset = before + OFFSET_SHARE * (mean - before)
            offsets[index] = self._offset
        return offsets

    def _gains(self, frames: NDArray[np.float32]) -> Column:
        gains = np.ones((len(frames), 1), np.float32)
        for index, level in enumerate(frames.std(axis=1).tolist()):
            self._noise = max(NOISE, min(level, self._noise * NOISE_RISE))
            if level > OVER_NOISE * self._noise:
                self._level = max(level, self._level * FALL)
                self._sounds += 1
            if self._level > OVER_NOISE * self._noise and self._sounds >= FIRST_SOUNDS:
                gains[index] = _gain(self._level)
        return gains


def levelled(pcm: Pcm) -> tuple[Pcm, bool]:
    """Remove the offset of a whole signal, float32 [n] at 16 kHz, and amplify it by a single gain.
    Also returns whether the signal is below QUIET. If nothing changes, returns the same array:
    files are mapped, and a copy of an hour would be 230 MB."""
    levels = np.concatenate([np.zeros(1), *(frames.std(axis=1) for _, frames in _blocks(pcm))])
    audible = levels[levels > NOISE]
    sounds = audible[audible > OVER_NOISE * np.percentile(audible, 10)] if len(audible) else audible
    level = float(np.percentile(sounds, 90)) if len(sounds) else float(levels.max())
    gain = np.float32(_gain(level) if len(sounds) else 1.0)
    leveller, whole = Leveller(), pcm
    for at, frames in _blocks(pcm):
        if (changed := _changed(frames, leveller.offsets(frames), gain)) is not frames:
            whole = np.array(pcm) if whole is pcm else whole
            rest = whole[at : at + frames.size]
            rest[:] = changed.reshape(-1)[: len(rest)]
    return whole, level < QUIET


def _gain(level: float) -> float:
    return min(max(TARGET / level, 1.0), MOST_GAIN)


def _blocks(pcm: Pcm) -> Iterator[tuple[int, NDArray[np.float32]]]:
    """Yields the first sample of each block and its frames, the last of which is filled up."""
    step = BLOCK_FRAMES * FRAME_SAMPLES
    for at in range(0, len(pcm), step):
        block = pcm[at : at + step]
        whole = np.pad(block, (0, -len(block) % FRAME_SAMPLES), mode="edge")
        yield at, whole.reshape(-1, FRAME_SAMPLES)


def _changed(
    frames: NDArray[np.float32], offsets: Column, gains: Column | np.float32
) -> NDArray[np.float32]:
    if np.max(gains, initial=1.0) <= 1.0 and np.abs(offsets).max(initial=0.0) < SMALL_OFFSET:
        return frames
    return np.asarray(np.clip((frames - offsets) * gains, -1.0, 1.0), np.float32)
