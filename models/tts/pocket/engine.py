"""Pocket TTS: 100 million parameters, faster than real time on two cores. GPU profile. It speaks in
a voice of its own or that of a recording, without a transcript. The model is Kyutai's
(https://kyutai.org/blog/2026-01-13-pocket-tts); its languages are separate models of one form."""

from collections.abc import Iterator

from configs.schema.models.tts import PocketConfig
from models.audio import Pcm
from models.tts.base import SynthesisRequest
from models.tts.pocket.checkpoint import Voice
from models.tts.pocket.network import PocketModel
from models.tts.prompted import PromptedEngine, in_chunks
from models.weights.store import WeightStore


class PocketEngine(PromptedEngine):
    """Pocket TTS in one language, with voices of its own and those of packs."""

    def __init__(self, config: PocketConfig, weights: WeightStore) -> None:
        self._model = PocketModel(weights.folder(config.weights), config.device, config.threads)
        self._temperature = config.temperature
        folder = weights.folder(config.voice_weights)
        self._own = {
            voice.key: self._model.prepared(folder / f"{voice.key}.safetensors")
            for voice in config.voices
        }
        languages = tuple(sorted({voice.language for voice in config.voices}))
        super().__init__(self._model, languages, "recording", config.voices, config.engine)

    def _own_voice(self, request: SynthesisRequest) -> Voice:
        return self._own[self._voices[request.voice].key]

    def _pieces(self, voice: Voice, request: SynthesisRequest, seed: int) -> Iterator[Pcm]:
        frames = self._model.speak(
            voice, request.text, temperature=self._temperature / request.stability, seed=seed
        )
        yield from in_chunks(frames, self._model.decoder().sound)
