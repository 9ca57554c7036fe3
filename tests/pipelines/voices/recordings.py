"""Recordings of a synthetic speaker: good, noisy or clipped, and in several formats."""

import io
import wave
from functools import cache

import av
import numpy as np
from scipy.signal import fftconvolve

from configs.settings import weights_dir
from models.audio import AudioChunk, Pcm, float_to_pcm16, resample
from models.weights.store import WeightStore
from pipelines.audio.encode.encoder import OutputFormat, encode
from tests.models.sounds import speak

RATE = 16_000
TEXTS = (
    "The harbour was quiet that morning, and the boats lay still on the grey water.",
    "Nobody had expected the letter, so they read it twice, and then once more aloud.",
    "In the market they sold apples, old clocks, and small birds made of coloured glass.",
    "She counted the steps to the tower, as she had done every summer since she was nine.",
    "When the rain came at last, the whole village went outside to stand in it and laugh.",
    "He had promised to write, but the winter was long and the roads were closed for weeks.",
)


@cache
def _sentences() -> tuple[Pcm, ...]:
    return tuple(speak(text, WeightStore(weights_dir())) for text in TEXTS)


def recording(number: int, seconds: float, *, deep: bool = False) -> Pcm:
    """`seconds` of speech in a quiet room; the same speaker always, and another if `deep`."""
    random = np.random.default_rng(number)
    parts: list[Pcm] = []
    while sum(map(len, parts)) < 2 * seconds * RATE:
        parts.append(_sentences()[random.integers(len(TEXTS))])
        parts.append(np.zeros(int(random.uniform(0.2, 0.5) * RATE), np.float32))
    pcm = np.concatenate(parts)
    if deep:  # slowed down, like a tape that runs slowly
        pcm = resample(pcm, RATE, round(RATE * 1.35))
    pcm = pcm[: int(seconds * RATE)]
    room = 10 ** (-70 / 20) * random.standard_normal(len(pcm))
    return np.asarray(np.clip(pcm + room, -1, 1), np.float32)


def noisy(pcm: Pcm, snr_db: float) -> Pcm:
    """With white noise at this signal-to-noise ratio."""
    level = float(np.sqrt(np.square(pcm).mean())) * 10 ** (-snr_db / 20)
    noise = np.random.default_rng(1).standard_normal(len(pcm)) * level
    return np.asarray(np.clip(pcm + noise, -1, 1), np.float32)


def echoing(pcm: Pcm, decay_s: float) -> Pcm:
    """As in a room whose echo falls by 60 dB in so many seconds."""
    size = int(decay_s * RATE)
    echo = 0.05 * np.random.default_rng(1).standard_normal(size)
    echo *= 10.0 ** (-3 * np.arange(size) / size)
    echo[0] = 1
    return np.asarray(np.clip(0.5 * fftconvolve(pcm, echo)[: len(pcm)], -1, 1), np.float32)


def clipped(pcm: Pcm) -> Pcm:
    """With clipped peaks, as if recorded far too loud."""
    ceiling = 2.5 * float(np.sqrt(np.square(pcm).mean()))
    return np.asarray(np.clip(pcm, -ceiling, ceiling) / ceiling * 0.9, np.float32)


def called(pcm: Pcm) -> Pcm:
    """As a telephone call, which was then resampled."""
    return resample(resample(pcm, RATE, 8000), 8000, RATE)


def squeezed(pcm: Pcm, bits_per_s: int) -> bytes:
    """As AAC of so few bits that the encoder leaves out the treble."""
    target = io.BytesIO()
    with av.open(target, "w", format="adts") as container:
        stream = container.add_stream("aac", rate=RATE, layout="mono")
        stream.bit_rate = bits_per_s
        fifo = av.AudioFifo()
        frame = av.AudioFrame.from_ndarray(pcm.reshape(1, -1), "fltp", "mono")
        frame.sample_rate = RATE
        fifo.write(frame)
        for part in [*fifo.read_many(1024, partial=True), None]:
            container.mux(stream.encode(part))
    return target.getvalue()


def wav(*channels: Pcm) -> bytes:
    target = io.BytesIO()
    with wave.open(target, "wb") as file:
        file.setnchannels(len(channels))
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(float_to_pcm16(np.stack(channels, axis=1).ravel()))
    return target.getvalue()


def encoded(pcm: Pcm, output_format: OutputFormat) -> bytes:
    return encode(AudioChunk(pcm, RATE), output_format).data


@cache
def good_files() -> tuple[tuple[str, bytes], ...]:
    """Names and contents of valid samples of one voice: a little over two minutes in all."""
    return (
        ("one.wav", wav(recording(1, 42))),
        ("two.flac", encoded(recording(2, 42), "flac")),
        ("three.mp3", encoded(recording(3, 42), "mp3")),
    )
