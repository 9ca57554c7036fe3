"""Language models on vLLM. GPU profile."""

from configs.schema.models.llm import VllmChatConfig
from models.llm.token_engine import PromptWriter, TokenEngine
from models.llm.vllm.batch import VllmBatch
from models.weights.store import WeightStore


class VllmEngine(TokenEngine):
    """Chat engine of one model, which computes in processes of vLLM."""

    _batch: VllmBatch

    def __init__(self, config: VllmChatConfig, weights: WeightStore) -> None:
        folder = weights.folder(config.weights)
        super().__init__(config, PromptWriter(folder, config), VllmBatch(folder, config))

    def __del__(self) -> None:
        # A swapped model is freed with the last request that refers to it.
        if hasattr(self, "_batch"):  # false if loading failed
            self._batch.stop()  # without waiting, since this may be the event loop

    def check_device(self) -> None:
        self._batch.check_device()
