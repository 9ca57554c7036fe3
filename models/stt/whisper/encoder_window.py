"""A Whisper encoder whose window is as long as the speech, instead of 30 s.

Whisper was trained on windows of 30 s filled with silence, by which its decoder detects the end of
the speech: without it, a text is often repeated. Encoding costs most of the time, so only the
speech and a short padding are encoded, and cached encoder states of silence are appended. These
hardly depend on the speech, so they are computed once, from speech-like sounds, when the weights
are loaded. Very short speech gets more padding, which improves the recognition of single words. All
encodings are filled to one length, so that requests of different lengths share a batch.
"""

import logging
from io import BytesIO
from pathlib import Path

import numpy as np
from faster_whisper.feature_extractor import FeatureExtractor
from numpy.typing import NDArray

from models.audio import Pcm
from models.stt.base import STT_SAMPLE_RATE
from models.stt.whisper.processes import WhisperProcesses
from models.weights.store import write_whole

logger = logging.getLogger(__name__)

WINDOW_S = 30
WINDOW_FRAMES = 100 * WINDOW_S  # mel frames of 10 ms
WINDOW_STATES = WINDOW_FRAMES // 2  # the encoder halves the rate
STATES_PER_S = WINDOW_STATES // WINDOW_S
CALIBRATION_S = (1.5, 3.0, 6.0, 10.0, 14.0)  # durations of the sounds before the silence

States = NDArray[np.float32]  # [n, width]


class EncoderWindow:
    """Encodes only the speech, and fills the window with cached states of silence."""

    def __init__(
        self, model: WhisperProcesses, padding_s: float, min_s: float, cache: Path
    ) -> None:
        """Encodes at least `padding_s` of silence after the speech, and `min_s` in total. `cache`
        is the file that keeps the states of silence between starts."""
        self._model = model
        self._extract = FeatureExtractor(feature_size=model.n_mels)
        self._padding = int(padding_s * STT_SAMPLE_RATE)
        self._min_samples = int(min_s * STT_SAMPLE_RATE)
        self._silence = self._load_silence(cache)

    def encode(self, pcm: Pcm, padding_s: float | None = None) -> States:
        """Encodes float32 [n], at most 30 s, and `padding_s` of silence to float32 [m, width].
        None: the constructor's padding. WINDOW_S encodes all 30 s, as in Whisper's training, which
        takes many times longer."""
        padding = max(self._padding, self._min_samples - len(pcm))
        if padding_s is not None:
            room = WINDOW_S * STT_SAMPLE_RATE - len(pcm)
            padding = min(room, int(padding_s * STT_SAMPLE_RATE))
        features = self._extract(pcm, padding=max(padding, 2 * self._extract.hop_length))
        frames = min(features.shape[1] & ~1, WINDOW_FRAMES)  # [mels, frames], an even number
        batch = np.ascontiguousarray(features[None, :, :frames], dtype=np.float32)
        return np.asarray(self._model.encode(batch)[0])

    def fill(self, states: States, length: int = WINDOW_STATES) -> States:
        """Appends states of silence, for a decoder input of [length, width]."""
        return np.concatenate([states, self._silence[len(states) : length]])

    def _load_silence(self, cache: Path) -> States:
        try:
            silence: States = np.load(cache, allow_pickle=False)
            if silence.dtype == np.float32 and len(silence) == WINDOW_STATES:
                return silence
        except (OSError, ValueError, EOFError):
            pass  # not cached yet, or incomplete
        silence = self._compute_silence()
        try:
            content = BytesIO()
            np.save(content, silence)
            write_whole(cache, content.getvalue())
        except OSError as error:
            logger.warning("silence_not_cached", extra={"error": str(error)})
        return silence

    def _compute_silence(self) -> States:
        """Computes the mean state of silence at each position after the shortest sound."""
        total: States | None = None
        count = np.zeros((WINDOW_STATES, 1), np.float32)
        rng = np.random.default_rng(0)
        for seconds in CALIBRATION_S:
            states = self.encode(_speech_like_sound(seconds, rng), WINDOW_S)
            total = np.zeros_like(states) if total is None else total
            first = int(seconds * 50) + 25  # half a second after the sound
            total[first:] += states[first:]
            count[first:] += 1
        assert total is not None
        silence: States = np.asarray(total / np.maximum(count, 1), np.float32)
        first = int(np.argmax(count[:, 0] > 0))
        silence[:first] = silence[first]
        return silence


def _speech_like_sound(seconds: float, rng: np.random.Generator) -> Pcm:
    """Synthesises vowels of 150 ms with random formants and a moving pitch."""
    from scipy.signal import lfilter  # imported in 0.7 s, and needed only at the first start

    time_s = np.arange(int(seconds * STT_SAMPLE_RATE)) / STT_SAMPLE_RATE
    pitch_hz = rng.uniform(100, 220) * (1 + 0.15 * np.sin(2 * np.pi * 0.6 * time_s))
    phase = 2 * np.pi * np.cumsum(pitch_hz) / STT_SAMPLE_RATE
    source = sum(np.sin(k * phase) / k for k in range(1, 30))
    source = source + 0.1 * rng.standard_normal(len(time_s))
    sound = np.zeros(len(time_s))
    step = int(0.15 * STT_SAMPLE_RATE)
    for start in range(0, len(source), step):
        vowel = source[start : start + step]
        for low_hz, high_hz, width_hz in ((300, 800, 80), (900, 2300, 120), (2400, 3200, 160)):
            radius = np.exp(-np.pi * width_hz / STT_SAMPLE_RATE)
            angle = 2 * np.pi * rng.uniform(low_hz, high_hz) / STT_SAMPLE_RATE
            vowel = lfilter([1 - radius], [1, -2 * radius * np.cos(angle), radius**2], vowel)
        sound[start : start + step] = vowel * np.hanning(len(vowel))
    return np.asarray(sound * (0.3 / np.abs(sound).max()), np.float32)
