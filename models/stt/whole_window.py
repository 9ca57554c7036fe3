"""Whisper on a GPU: always the whole window of 30 s, encoded in batches."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

from configs.schema.models.stt import WholeWindowConfig
from models.audio import Pcm
from models.stt.base import TranscriptionRequest
from models.stt.whisper.encoder_window import WINDOW_STATES, EncoderWindow
from models.stt.whisper.engine import WhisperEngine, WhisperVocabulary

States: TypeAlias = Any  # torch.Tensor [1500, width] on the model's device


class WholeWindowEngine(WhisperEngine):
    """Whisper with the guards of WhisperEngine and a fixed window of 30 s."""

    def __init__(self, config: WholeWindowConfig, folder: Path, network: Any) -> None:
        """Create the engine. `network` has the methods of `WhisperProcesses`, but encodes signals,
        `stack`s their states for its other methods, and names its device."""
        whisper = WhisperVocabulary(folder, network)
        window = _WholeWindow(network)
        self._begin(config, whisper, window, max_concurrency=1, device=network.device)

    def __del__(self) -> None:
        # A swapped model is freed with the last request that refers to it.
        if hasattr(self, "_model"):  # false if loading failed
            self.close()

    def close(self) -> None:
        self._model.close()

    def _encode(self, requests: Sequence[TranscriptionRequest]) -> list[States]:
        step = self._config.batch_size
        return [
            states
            for start in range(0, len(requests), step)
            for states in self._model.encode([r.pcm for r in requests[start : start + step]])
        ]

    def _view(self, states: Sequence[States]) -> Any:
        return self._model.stack(states)


class _WholeWindow(EncoderWindow):
    """Encoder window of a fixed 30 s, so there is nothing to fill."""

    def __init__(self, network: Any) -> None:
        self._network = network

    def encode(self, pcm: Pcm, padding_s: float | None = None) -> States:
        """Encodes a signal to [1500, width]."""
        return self._network.encode([pcm])[0]

    def fill(self, states: States, length: int = WINDOW_STATES) -> States:
        return states
