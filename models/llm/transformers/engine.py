"""Language models on the transformers library with continuous batching. GPU profile."""

from configs.schema.models.llm import TransformersChatConfig
from models.llm.token_engine import PromptWriter, TokenEngine
from models.llm.transformers.batch import StreamBatch
from models.weights.store import WeightStore


class TransformersEngine(TokenEngine):
    """Chat engine of one model on transformers."""

    _batch: StreamBatch

    def __init__(self, config: TransformersChatConfig, weights: WeightStore) -> None:
        folder = weights.folder(config.weights)
        writer = PromptWriter(folder, config, gguf_file=config.gguf_file)
        super().__init__(config, writer, StreamBatch(folder, config, writer.tokenizer))

    def __del__(self) -> None:
        # A swapped model is freed with the last request that refers to it.
        if hasattr(self, "_batch"):  # false if loading failed
            self.close()
