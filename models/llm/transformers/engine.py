"""Language models on the transformers library with continuous batching. GPU profile."""

from configs.schema.models.llm import TransformersChatConfig
from models.llm.token_engine import PromptWriter, TokenEngine, TokenRequest, TokenStream
from models.llm.transformers.batch import StreamBatch
from models.weights.store import WeightStore


class TransformersEngine(TokenEngine):
    """Chat engine of one model with its streams."""

    def __init__(self, config: TransformersChatConfig, weights: WeightStore) -> None:
        folder = weights.folder(config.weights)
        writer = PromptWriter(folder, config, gguf_file=config.gguf_file)
        self._batch = StreamBatch(folder, config, writer.tokenizer)
        super().__init__(
            config,
            writer,
            logits=self._batch.size,
            ends=self._batch.ends,
            device=self._batch.device,
        )

    def __del__(self) -> None:
        # A swapped model is freed with the last request that refers to it.
        if hasattr(self, "_batch"):  # false if loading failed
            self.close()

    def close(self) -> None:
        self._batch.close()

    def _submit(self, request: TokenRequest) -> TokenStream:
        return self._batch.submit(request)
