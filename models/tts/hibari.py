"""Hibari: small English voices distilled from Kokoro, two orders faster than real time."""

from collections.abc import Generator, Sequence

import numpy as np
from hibari import SAMPLE_RATE, Hibari

from configs.tts_schema import HibariConfig
from models.audio import AudioChunk
from models.errors import UnsupportedLanguage
from models.info import VoiceInfo
from models.tts.base import SynthesisRequest
from models.tts.silence import trim
from models.tts.voices import voice_table
from models.weights.store import WeightStore

SEED = 0  # of the breath noise, so the same request sounds the same on every replica


class HibariEngine:
    """The voice inside the wheel; its reading rules need no GPL part."""

    sample_rate: int = SAMPLE_RATE
    native_speed = True

    def __init__(self, config: HibariConfig, weights: WeightStore) -> None:
        del weights  # they come with the library
        self._voices = voice_table(config.voices, config.engine)
        self._models = {key: Hibari(voice=key, threads=config.threads) for key in self._voices}
        for model in self._models.values():
            model("Ready.", seed=SEED)  # loads the dictionary, which would delay a first request

    def voices(self) -> Sequence[VoiceInfo]:
        return tuple(self._voices.values())

    def synthesize(self, request: SynthesisRequest) -> Generator[AudioChunk, None, None]:
        voice = self._voices[request.voice]
        if request.language != voice.language:
            raise UnsupportedLanguage(
                f"voice {voice.name!r} speaks {voice.language!r}, not {request.language!r}"
            )
        for pcm in self._models[voice.key].stream(request.text, request.speed, SEED):
            yield AudioChunk(np.clip(trim(pcm, self.sample_rate), -1.0, 1.0), self.sample_rate)
