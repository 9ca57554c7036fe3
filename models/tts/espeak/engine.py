"""espeak-ng's own voices: formant synthesis for languages that no other engine here reads well."""

from collections.abc import Generator

from configs.schema.models.tts import EspeakConfig
from models.audio import AudioChunk
from models.tts.base import SynthesisRequest, TTSCapabilities, TTSEngine, VoiceTable
from models.tts.espeak.library import espeak_library
from models.tts.trimming import whole_sentence
from models.weights.store import WeightStore


class EspeakEngine(TTSEngine):
    """Every voice of the configuration, from one copy of the library."""

    def __init__(self, config: EspeakConfig, weights: WeightStore) -> None:
        del weights  # its data comes with the library
        self._library = espeak_library()
        self._voices = VoiceTable(config.voices, config.engine)
        self.capabilities = TTSCapabilities(
            sample_rate=self._library.sample_rate,
            languages=self._voices.languages,
            native_speed=True,
        )
        self._library_voices = {voice.key: voice.espeak for voice in config.voices}

    def synthesize(self, request: SynthesisRequest) -> Generator[AudioChunk, None, None]:
        voice = self._voices.speaking(request.voice, request.language)
        pcm = self._library.speak(
            request.text,
            self._library_voices[voice.key],
            speed=request.speed,
            liveliness=1.0 / request.stability,
        )
        yield whole_sentence(pcm, self.capabilities.sample_rate, request)
