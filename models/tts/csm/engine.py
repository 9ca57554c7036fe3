"""CSM-1B by Sesame: voice cloning from a recording with its transcript. GPU profile.

https://github.com/SesameAILabs/csm, over the codec Mimi (Défossez et al., "Moshi", 2024). Of the
large cloning models of the transformers library, it alone takes a recording with its transcript and
any text, has a causal codec (so that speech can be streamed), and has weights under Apache-2.0.
Dia's codec is not causal, Higgs Audio is several times as large and has a licence of its own, and
VibeVoice takes no transcript.
"""

import math
from collections.abc import Iterator

from configs.schema.models.tts import CsmConfig
from models.audio import Pcm
from models.tts.base import SynthesisRequest
from models.tts.csm.network import CsmModel, Tensor
from models.tts.prompted import PromptedEngine, in_chunks
from models.weights.store import WeightStore

SLOWEST_S = 0.15  # per letter (slow speech: 0.1); a longer synthesis has run away and is cut off
LONGEST_PAUSE_S = 2.0


class CsmEngine(PromptedEngine):
    """CSM-1B, which has no voices of its own: each request brings a voice pack."""

    def __init__(self, config: CsmConfig, weights: WeightStore) -> None:
        folder = weights.folder(config.weights)
        self._model = CsmModel(folder, config.device, config.dtype, config.parallel)
        self._config = config
        super().__init__(
            self._model, config.languages, "transcribed recording", max_concurrency=config.parallel
        )

    def _pieces(self, voice: Tensor, request: SynthesisRequest, seed: int) -> Iterator[Pcm]:
        seconds = LONGEST_PAUSE_S + SLOWEST_S * len(request.text)
        frames = self._model.speak(
            voice,
            request.text,
            most_frames=math.ceil(seconds * self._model.frame_rate),
            temperature=self._config.temperature / math.sqrt(request.stability),  # 0.73 to 1.16
            top_k=self._config.top_k,
            seed=seed,
        )
        yield from in_chunks(frames, self._model.sound)
