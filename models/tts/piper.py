"""VITS voices in Piper's format on ONNX Runtime, with phonemes of espeak-ng. VITS: Kim et al.,
"Conditional Variational Autoencoder with Adversarial Learning for End-to-End Text-to-Speech"
(2021); Piper: https://github.com/rhasspy/piper."""

import json
import unicodedata
from collections.abc import Generator
from functools import partial

import numpy as np

from configs.schema.models.tts import VitsConfig
from models.audio import AudioChunk
from models.errors import WeightsCorrupt
from models.runtimes.onnx import open_session, run
from models.tts.base import SynthesisRequest, TTSCapabilities, TTSEngine, VoiceTable
from models.tts.espeak_ng import espeak_library, stress_before_vowels
from models.tts.trimming import whole_sentence
from models.weights.store import WeightStore

PAD = "_"
START = "^"
END = "$"


class VitsEngine(TTSEngine):
    """VITS voices: one graph each, all with the same sample rate."""

    def __init__(self, config: VitsConfig, weights: WeightStore) -> None:
        self._voices = VoiceTable(config.voices, config.engine)
        self._models = {}
        rates = set()
        for voice in config.voices:
            folder = weights.folder(voice.weights)
            settings = json.loads((folder / "model.onnx.json").read_text(encoding="utf-8"))
            rates.add(settings["audio"]["sample_rate"])
            session = open_session(folder / "model.onnx", config.threads)
            self._models[voice.key] = session, settings
        if len(rates) != 1:
            raise WeightsCorrupt(f"the voices differ in sample rate: {sorted(rates)}")
        self.capabilities = TTSCapabilities(
            sample_rate=rates.pop(),
            languages=self._voices.languages,
            native_speed=True,
            phonemes=True,
        )
        for voice in config.voices:  # the first run allocates memory
            list(self.synthesize(SynthesisRequest("Ready.", voice.key, voice.language)))

    def synthesize(self, request: SynthesisRequest) -> Generator[AudioChunk, None, None]:
        voice = self._voices.speaking(request.voice, request.language)
        session, settings = self._models[voice.key]
        ids = phoneme_ids(self.phonemes(request), settings["phoneme_id_map"])
        if not ids:
            return
        scales = settings["inference"]
        pcm = run(
            session,
            {
                "input": np.array([ids], np.int64),
                "input_lengths": np.array([len(ids)], np.int64),
                "scales": np.array(
                    [
                        scales["noise_scale"] / request.stability,  # variation of the audio
                        scales["length_scale"] / request.speed,  # 1 / tempo
                        scales["noise_w"] / request.stability,  # variation of the rhythm
                    ],
                    np.float32,
                ),
            },
            request.interruption,
        )[0].reshape(-1)  # float32 [n]
        yield whole_sentence(pcm, self.capabilities.sample_rate, request)

    def phonemes(self, request: SynthesisRequest) -> str:
        _, settings = self._models[self._voices[request.voice].key]
        read = partial(espeak_library().phonemes, voice=settings["espeak"]["voice"])
        return request.symbols(read, stress_before_vowels)


def phoneme_ids(phonemes: str, table: dict[str, list[int]]) -> list[int]:
    """Converts phonemes to ids, padded as in training; empty when nothing can be spoken."""
    spoken = [
        id_
        for symbol in unicodedata.normalize("NFD", phonemes)
        for id_ in (*table.get(symbol, ()), *(table[PAD] if symbol in table else ()))
    ]
    if not any(symbol.isalpha() for symbol in phonemes):
        return []
    return [*table[START], *table[PAD], *spoken, *table[END]]
