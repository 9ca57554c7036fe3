"""Whisper on the transformers library, features by torchaudio, decoded in batches. GPU profile."""

from tokenizers import Tokenizer

from configs.schema.models.stt import TransformersWhisperConfig
from models.stt.whisper_cuda.whole_window import WholeWindowEngine
from models.stt.whisper_transformers.network import TorchWhisper
from models.weights.store import WeightStore


class TransformersWhisperEngine(WholeWindowEngine):
    """Whisper on transformers."""

    def __init__(self, config: TransformersWhisperConfig, weights: WeightStore) -> None:
        folder = weights.folder(config.artefact)
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        network = TorchWhisper(folder, tokenizer, config.device, config.dtype)
        super().__init__(config, folder, network)
