"""Removes steady noise from a microphone: the noise suppressor and gain control of WebRTC. It takes
0.1 to 0.4 % of a core for each stream."""

from webrtc_noise_gain import AudioProcessor

from models.audio import Pcm, float_to_pcm16, pcm16_to_float
from models.stt.base import STT_SAMPLE_RATE

BLOCK = STT_SAMPLE_RATE // 100  # samples of the 10 ms that WebRTC takes at a time


class NoiseReducer:
    """State of one stream of mono audio at 16 kHz."""

    def __init__(self, *, is_far: bool) -> None:
        """If the microphone `is_far`, noise is suppressed more, and speech amplified."""
        self._processor = AudioProcessor(*((3, 3) if is_far else (0, 2)))  # gain (dBFS), reduction
        self._rest = b""

    def reduce(self, pcm: Pcm) -> Pcm:
        """Reduce the noise of float32 [n] within ±1; up to 10 ms are held back."""
        data = self._rest + float_to_pcm16(pcm)
        step = BLOCK * 2
        whole = len(data) - len(data) % step
        self._rest = data[whole:]
        reduced = b"".join(
            self._processor.Process10ms(data[at : at + step]).audio for at in range(0, whole, step)
        )
        return pcm16_to_float(reduced)
