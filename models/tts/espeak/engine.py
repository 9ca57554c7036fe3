"""espeak-ng's own voices: formant synthesis for languages that no other engine here reads well."""

from collections.abc import Generator, Sequence

from configs.schema.models.tts import EspeakConfig
from models.audio import AudioChunk
from models.info import VoiceInfo
from models.tts.base import SynthesisRequest
from models.tts.espeak.library import espeak_library
from models.tts.trimming import trim
from models.tts.voice_table import one_language_voice, voice_table
from models.tts.word_times import spread
from models.weights.store import WeightStore


class EspeakEngine:
    """Every voice of the configuration, from one copy of the library."""

    native_speed = True
    lanes = 1

    def __init__(self, config: EspeakConfig, weights: WeightStore) -> None:
        del weights  # its data comes with the library
        self._library = espeak_library()
        self.sample_rate = self._library.sample_rate
        self._voices = voice_table(config.voices, config.engine)
        self._library_voices = {voice.key: voice.espeak for voice in config.voices}

    def voices(self) -> Sequence[VoiceInfo]:
        return tuple(self._voices.values())

    def synthesize(self, request: SynthesisRequest) -> Generator[AudioChunk, None, None]:
        voice = one_language_voice(self._voices, request)
        pcm = self._library.speak(
            request.text,
            self._library_voices[voice.key],
            speed=request.speed,
            liveliness=1.0 / request.stability,
        )
        pcm = trim(pcm, self.sample_rate)
        seconds = len(pcm) / self.sample_rate
        words = spread(request.text, seconds) if request.timings else ()
        yield AudioChunk(pcm, self.sample_rate, tuple(words))
