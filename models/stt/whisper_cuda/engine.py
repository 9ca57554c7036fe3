"""Whisper on CTranslate2 and a GPU, features by torchaudio, decoded in batches. GPU profile.

Not run on a GPU yet: the tests compute on a CPU. The network is in the replica's process, not in a
child process as for a CPU: a batch is soon done, so no call has to be ended early. Features and
states stay in the memory of the GPU.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import ctranslate2
import numpy as np
import torch

from configs.schema.models.stt import CudaWhisperConfig
from models.audio import Pcm
from models.errors import EngineError
from models.memory import LoadedNetwork
from models.runtimes.cublas import load_cublas
from models.stt.whisper.calls import CallAbandoned
from models.stt.whisper_cuda.log_mel import LogMel
from models.stt.whole_window import WholeWindowEngine
from models.weights.store import WeightStore

Tensor: TypeAlias = Any  # torch.Tensor; the CPU profile does not install the library
Results: TypeAlias = Any  # CTranslate2's results, with the fields of `models.stt.whisper.calls`


class CudaWhisperEngine(WholeWindowEngine):
    """Whisper on CTranslate2 and a GPU."""

    def __init__(self, config: CudaWhisperConfig, weights: WeightStore) -> None:
        folder = weights.folder(config.artefact)
        super().__init__(config, folder, CTranslateWhisper(folder, config))


class CTranslateWhisper(LoadedNetwork):
    """CTranslate2's Whisper on one device."""

    def __init__(self, folder: Path, config: CudaWhisperConfig) -> None:
        """Load the network. Raises EngineError."""
        self.device: str = config.device
        if self.device == "cuda":
            if not ctranslate2.get_cuda_device_count():
                raise EngineError("CTranslate2 finds no NVIDIA GPU with a driver for CUDA 12")
            load_cublas()
        try:
            self._network = ctranslate2.models.Whisper(
                str(folder), device=self.device, compute_type=config.compute_type
            )
        except (RuntimeError, ValueError) as error:
            raise EngineError(f"the model in {folder.name} cannot be loaded: {error}") from error
        self._features = LogMel(self._network.n_mels, self.device)
        self.is_multilingual: bool = self._network.is_multilingual

    def encode(self, sounds: Sequence[Pcm]) -> list[Tensor]:
        """Encodes signals, float32 [n] of at most 30 s, to [1500, width] each."""
        with torch.inference_mode():
            states = self._loaded().encode(self._shared(self._features(sounds)))
            if self.device == "cuda":
                return list(torch.as_tensor(states, device=self.device))
            return list(torch.from_numpy(np.array(states)))

    def stack(self, states: Sequence[Tensor]) -> Tensor:
        return torch.stack(list(states))

    def detect_language(self, states: Tensor) -> list[list[tuple[str, float]]]:
        """Ranks language tokens by probability, likeliest first, for states [n, 1500, width]."""
        rankings: list[list[tuple[str, float]]]
        rankings = self._loaded().detect_language(self._shared(states))
        return rankings

    def generate(
        self,
        states: Tensor,
        prompts: Sequence[Sequence[int]],
        *,
        is_wanted: Callable[[], bool],
        **options: Any,
    ) -> Results:
        """Decodes states [n, 1500, width] after prompts, all of one length. Raises CallAbandoned if
        `is_wanted` returns False before the call, which does not end early."""
        if not is_wanted():
            raise CallAbandoned
        return self._loaded().generate(self._shared(states), prompts, **options)

    def align(
        self,
        states: Tensor,
        start_sequence: Sequence[int],
        texts: Sequence[Sequence[int]],
        frames: int,
        *,
        median_filter_width: int,
    ) -> Results:
        """Aligns the tokens of texts by the decoder's attention to states [n, 1500, width]."""
        return self._loaded().align(
            self._shared(states),
            start_sequence,
            texts,
            frames,
            median_filter_width=median_filter_width,
        )

    def _shared(self, values: Tensor) -> Any:
        """Shares a tensor with CTranslate2, which computes in a stream of its own."""
        if self.device == "cuda":
            torch.cuda.synchronize()
            return ctranslate2.StorageView.from_array(values.contiguous())
        return ctranslate2.StorageView.from_array(values.contiguous().numpy())
