"""Language models on the transformers library with continuous batching. GPU profile."""

import secrets

from configs.schema.models.llm import TransformersChatConfig
from models.llm.token_engine import SEEDS, PromptWriter, TokenEngine, TokenRequest, TokenStream
from models.llm.transformers.batch import StreamBatch
from models.llm.transformers.sampler import TokenSampler
from models.weights.store import WeightStore


class TransformersEngine(TokenEngine):
    """Chat engine of one model with its streams."""

    def __init__(self, config: TransformersChatConfig, weights: WeightStore) -> None:
        folder = weights.folder(config.weights)
        source = {} if config.gguf_file is None else {"gguf_file": config.gguf_file}
        writer = PromptWriter(folder, config, source)
        self._batch = StreamBatch(folder, config, writer.tokenizer)
        super().__init__(config, writer, self._batch.size, self._batch.ends)

    def __del__(self) -> None:
        # A swapped model is freed with the last request that refers to it.
        if hasattr(self, "_batch"):  # false if loading failed
            self.close()

    def close(self) -> None:
        self._batch.close()

    def _submit(self, request: TokenRequest) -> TokenStream:
        seed = request.sampling.seed
        seed = secrets.randbelow(SEEDS) if seed is None else seed
        matcher = request.constraint and request.constraint.matcher
        sampler = TokenSampler(request.sampling, seed, matcher)
        return self._batch.submit(request.prompt, request.most_tokens, sampler, request.owner)
