"""Whisper on the transformers library, features by torchaudio, decoded in batches. GPU profile."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import torch
from tokenizers import Tokenizer

from configs.schema.models.stt import TransformersWhisperConfig
from models.audio import Pcm
from models.stt.base import TranscriptionRequest
from models.stt.whisper.encoder_window import WINDOW_STATES, EncoderWindow
from models.stt.whisper.engine import WhisperEngine, WhisperVocabulary
from models.stt.whisper_transformers.network import TorchWhisper
from models.weights.store import WeightStore

States: TypeAlias = Any  # torch.Tensor [1500, width] on the model's device


class TransformersWhisperEngine(WhisperEngine):
    """The same guards as with CTranslate2; the window is always 30 s, which is fast on a GPU."""

    def __init__(self, config: TransformersWhisperConfig, weights: WeightStore) -> None:
        folder = weights.folder(config.artefact)
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        network = TorchWhisper(folder, tokenizer, config.device, config.dtype)
        whisper = WhisperVocabulary(folder, network)
        window = _WholeWindow(network)
        self._begin(config, whisper, window, max_concurrency=1, device=network.device)

    def __del__(self) -> None:
        # A swapped model is freed with the last request that refers to it.
        if hasattr(self, "_model"):  # false if loading failed
            self.close()

    def close(self) -> None:
        """Frees the memory, the GPU's too; running requests raise EngineLost."""
        self._model.close()

    def _encode(self, requests: Sequence[TranscriptionRequest]) -> list[States]:
        step = self._config.batch_size
        return [
            states
            for start in range(0, len(requests), step)
            for states in self._model.encode([r.pcm for r in requests[start : start + step]])
        ]

    def _view(self, states: Sequence[States]) -> Any:
        return torch.stack(list(states))


class _WholeWindow(EncoderWindow):
    """Always encodes 30 s, so there is nothing to fill."""

    def __init__(self, network: TorchWhisper) -> None:
        self._network = network

    def encode(self, pcm: Pcm, padding_s: float | None = None) -> States:
        """[1500, width]"""
        return self._network.encode([pcm])[0]

    def fill(self, states: States, length: int = WINDOW_STATES) -> States:
        return states
