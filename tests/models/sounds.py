"""Audio without speech, and synthetic speech."""

from functools import cache
from pathlib import Path

import numpy as np
from scipy.signal import lfilter

from models.audio import Pcm, resample
from models.base import ModelInfo
from models.registry import TTS, load_model
from models.stt.base import STT_SAMPLE_RATE
from models.tts.base import SynthesisRequest, TTSEngine
from models.weights.store import WeightStore


def wordless(seconds: float) -> dict[str, Pcm]:
    """Signals without speech by name, at STT_SAMPLE_RATE: they provoke hallucinations."""
    n = int(seconds * STT_SAMPLE_RATE)
    rng = np.random.default_rng(1)
    t = np.arange(n) / STT_SAMPLE_RATE
    white = rng.standard_normal(n)
    spectrum = np.fft.rfft(white)
    spectrum[1:] /= np.sqrt(np.arange(1, len(spectrum)))
    pink = np.fft.irfft(spectrum, n)
    clicks = np.zeros(n)
    clicks[rng.integers(0, n, int(4 * seconds))] = 0.9
    notes = rng.choice([262, 294, 330, 392, 440, 523], int(4 * seconds) + 1)
    note_t = np.arange(STT_SAMPLE_RATE // 4) / STT_SAMPLE_RATE
    melody = np.concatenate(
        [np.sin(2 * np.pi * hz * note_t) * np.hanning(len(note_t)) for hz in notes]
    )[:n]
    sounds = {
        "silence": np.zeros(n),
        "white noise": 0.1 * white,
        "quiet white noise": 0.002 * white,
        "pink noise": 0.5 * pink / np.abs(pink).max(),
        "hum": 0.2 * np.sin(2 * np.pi * 50 * t) + 0.05 * np.sin(2 * np.pi * 150 * t),
        "clicks": clicks,
        "melody": 0.4 * melody,
        "chord": 0.1 * sum(np.sin(2 * np.pi * hz * t) for hz in (220, 277, 330)),
    }
    return {name: np.clip(sound, -1, 1).astype(np.float32) for name, sound in sounds.items()}


def sung(
    seconds: float, pitch_hz: float, formants: tuple[tuple[int, int], ...] = ((730, 80), (1090, 90))
) -> Pcm:
    """A held vowel with a little vibrato, by default "ah"; without formants a bare note."""
    time_s = np.arange(int(seconds * STT_SAMPLE_RATE)) / STT_SAMPLE_RATE
    phase = 2 * np.pi * pitch_hz * time_s + 0.5 * np.sin(2 * np.pi * 5 * time_s)
    overtones = np.arange(1, 30 if formants else 2)[:, np.newaxis]
    sound = (np.sin(overtones * phase) / overtones).sum(axis=0)
    for hz, width_hz in formants:
        radius = np.exp(-np.pi * width_hz / STT_SAMPLE_RATE)
        angle = 2 * np.pi * hz / STT_SAMPLE_RATE
        sound = lfilter([1 - radius], [1, -2 * radius * np.cos(angle), radius**2], sound)
    return np.asarray(sound * (0.3 / np.abs(sound).max()), np.float32)


def speak(text: str, weights: WeightStore, language: str = "en", config: str = "tts/hibari") -> Pcm:
    """Speech at STT_SAMPLE_RATE, by default of the engine whose weights are always installed."""
    return _spoken(text, weights.root, language, config).copy()


@cache
def _spoken(text: str, root: Path, language: str, config: str) -> Pcm:
    engine, info = _loaded(config, root)
    voice = next(voice.key for voice in info.voices if voice.language == language)
    request = SynthesisRequest(text=text, voice=voice, language=language)
    chunks = list(engine.synthesize(request))
    pcm = np.concatenate([chunk.pcm for chunk in chunks])
    return resample(pcm, engine.capabilities.sample_rate, STT_SAMPLE_RATE)


@cache
def _loaded(config: str, root: Path) -> tuple[TTSEngine, ModelInfo]:
    return load_model(TTS, config, WeightStore(root))
