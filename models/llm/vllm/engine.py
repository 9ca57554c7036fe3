"""Language models on vLLM. GPU profile."""

from configs.schema.models.llm import VllmChatConfig
from models.llm.token_engine import PromptWriter, TokenEngine, TokenRequest, TokenStream
from models.llm.vllm.batch import VllmBatch
from models.weights.store import WeightStore


class VllmEngine(TokenEngine):
    """Chat engine of one model, which computes in processes of vLLM."""

    def __init__(self, config: VllmChatConfig, weights: WeightStore) -> None:
        folder = weights.folder(config.weights)
        writer = PromptWriter(folder, config)
        self._batch = VllmBatch(folder, config)
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
            self._batch.stop()  # without waiting, since this may be the event loop

    def close(self) -> None:
        self._batch.stop()
        self._batch.join()

    def check_device(self) -> None:
        self._batch.check_device()

    def _submit(self, request: TokenRequest) -> TokenStream:
        return self._batch.submit(request)
