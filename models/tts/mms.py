"""MMS's voices: VITS of the transformers library, one network per language. GPU profile.

MMS: Pratap et al., "Scaling Speech Technology to 1,000+ Languages" (2023); VITS: Kim et al.,
"Conditional Variational Autoencoder with Adversarial Learning for End-to-End TTS" (2021).
"""

import threading
from collections.abc import Generator
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from transformers import AutoTokenizer, VitsModel

from configs.schema.models.tts import MmsConfig
from models.audio import AudioChunk, Pcm
from models.errors import EngineError, EngineLost, WeightsCorrupt
from models.memory import give_back
from models.tts.base import SynthesisRequest, TTSCapabilities, TTSEngine, VoiceTable
from models.tts.trimming import whole_sentence
from models.weights.store import WeightStore

Tensor: TypeAlias = torch.Tensor

MOST_SYMBOLS = 1000  # per run; memory grows with the square


class MmsEngine(TTSEngine):
    """MMS networks on one device, one per language, with letters as input."""

    def __init__(self, config: MmsConfig, weights: WeightStore) -> None:
        """Load the networks. Raises EngineError."""
        self._voices = VoiceTable(config.voices, config.engine)
        self._networks: dict[str, _Network] | None = {
            voice.key: _Network(weights.folder(voice.weights), config) for voice in config.voices
        }
        rates = {network.sample_rate for network in self._networks.values()}
        if len(rates) != 1:
            raise WeightsCorrupt(f"the voices differ in sample rate: {sorted(rates)}")
        self.capabilities = TTSCapabilities(
            sample_rate=rates.pop(),
            languages=self._voices.languages,
            native_speed=True,
            device=next(network.device for network in self._networks.values()),
        )

    def __del__(self) -> None:
        # A swapped model is freed with the last request that refers to it.
        if hasattr(self, "_networks"):  # false if loading failed
            self.close()

    def close(self) -> None:
        """Frees the memory, the GPU's too; later requests raise EngineLost."""
        self._networks = None
        give_back()  # the library's modules refer to each other

    def synthesize(self, request: SynthesisRequest) -> Generator[AudioChunk, None, None]:
        voice = self._voices.speaking(request.voice, request.language)
        if self._networks is None:
            raise EngineLost("the model was unloaded")
        network = self._networks[voice.key]
        symbols = network.symbols(request.text)
        if not symbols:
            return
        pieces = [
            network.speak(symbols[at : at + MOST_SYMBOLS], request.speed, request.stability)
            for at in range(0, len(symbols), MOST_SYMBOLS)
        ]
        yield whole_sentence(np.concatenate(pieces), self.capabilities.sample_rate, request)


class _Network:
    """The network of one language."""

    def __init__(self, folder: Path, config: MmsConfig) -> None:
        try:
            self._model: Any = VitsModel.from_pretrained(
                folder, device_map=config.device, local_files_only=True
            ).eval()
            self._tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        except (OSError, ValueError, ImportError, RuntimeError) as error:
            raise EngineError(f"the voice in {folder.name} cannot be loaded: {error}") from error
        if self._tokenizer.is_uroman or self._tokenizer.phonemize:
            raise EngineError(f"the voice in {folder.name} needs a package that is not installed")
        self.sample_rate: int = self._model.config.sampling_rate
        self.device: str = self._model.device.type
        self._lock = threading.Lock()  # the options of a request are attributes of the network

    def symbols(self, text: str) -> list[int]:
        """Return the token ids of the text; empty if nothing in it can be spoken."""
        vocabulary = self._tokenizer.get_vocab()
        letters = (letter for letter in text.lower() if letter.isalnum())
        if not any(letter in vocabulary for letter in letters):
            return []
        ids: list[int] = self._tokenizer(text)["input_ids"]
        return ids

    def speak(self, symbols: list[int], speed: float, stability: float) -> Pcm:
        """Synthesises float32 [n]."""
        model = self._model
        given = torch.tensor([symbols], device=model.device)
        with self._lock, torch.inference_mode():
            settings = model.config
            model.speaking_rate = settings.speaking_rate * speed
            model.noise_scale = settings.noise_scale / stability
            model.noise_scale_duration = settings.noise_scale_duration / stability
            pcm: Pcm = model(input_ids=given).waveform[0].float().cpu().numpy()
        return pcm
