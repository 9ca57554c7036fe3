"""Enhancement of a stream: as `effects.enhance`, but without waiting for the end."""

from models.audio import AudioChunk, Pcm
from pipelines.audio.effects import TARGET_LUFS, HighPass, LoudnessNormaliser
from pipelines.tts.voice_selection import AvailableVoice

_MOST_REMEMBERED_S = 60.0


class VoiceLevels:
    """The loudness of each voice, measured over its speech."""

    def __init__(self) -> None:
        self._heard: dict[tuple[str, str], tuple[float, float]] = {}  # LUFS, and seconds of it

    def of(self, voice: AvailableVoice) -> float | None:
        """LUFS; None for a voice that has not spoken yet."""
        heard = self._heard.get(_name(voice))
        return None if heard is None else heard[0]

    def learn(self, voice: AvailableVoice, lufs: float, duration_s: float) -> None:
        """Adds a measurement over `duration_s` > 0."""
        before_lufs, before_s = self._heard.get(_name(voice), (0.0, 0.0))
        total_s = before_s + duration_s
        level = (before_lufs * before_s + lufs * duration_s) / total_s
        self._heard[_name(voice)] = (level, min(total_s, _MOST_REMEMBERED_S))


class StreamEnhancer:
    """High-pass, loudness and true-peak limit of one stream; blocking, 2 ms for 0.5 s."""

    def __init__(self, levels: VoiceLevels, voice: AvailableVoice) -> None:
        self._levels = levels
        self._voice = voice
        self._normaliser = LoudnessNormaliser(TARGET_LUFS, levels.of(voice))
        self._high_pass: HighPass | None = None

    def process(self, chunk: AudioChunk) -> Pcm:
        """About as many samples as come in: the last 9 ms are held back."""
        if self._high_pass is None:
            self._high_pass = HighPass(chunk.sample_rate)
        return self._normaliser.process(self._high_pass.process(chunk.pcm), chunk.sample_rate)

    def finish(self) -> Pcm:
        """What was held back. Later streams of the voice start at the level of this one."""
        if (lufs := self._normaliser.measured_lufs) is not None:
            self._levels.learn(self._voice, lufs, self._normaliser.measured_s)
        return self._normaliser.flush()


def _name(voice: AvailableVoice) -> tuple[str, str]:
    return voice.model.id, voice.voice.key
