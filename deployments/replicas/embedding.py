"""The deployment of embedding models."""

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial

from deployments.replicas.model import ModelDeployment
from deployments.replicas.rehearsal import rehearse_embedding
from models.embedding.base import EmbeddingEngine, EmbeddingRequest, Embeddings
from models.fairness.scheduling import DeadlineScheduler
from models.registry import EMBEDDING
from pipelines.tasks import iterate_in_thread
from telemetry import metrics
from telemetry.tracing import Attributes, CallHeaders

MAX_CONCURRENCY = 4
FULL = 8  # requests that count as the load of one replica


class EmbeddingDeployment(ModelDeployment[EmbeddingEngine]):
    """One embedding engine; tenants take turns, a batch at a time."""

    def __init__(self) -> None:
        super().__init__(EMBEDDING, rehearse_embedding)
        self._scheduler = DeadlineScheduler(
            MAX_CONCURRENCY,
            "embedding",
            lambda: min(engine.capabilities.max_concurrency for engine in self.engines()),
        )
        self._running = 0  # number of running requests

    async def embed(
        self, request: EmbeddingRequest, caller: CallHeaders | None = None
    ) -> AsyncGenerator[Embeddings, None]:
        """Embed inputs for the request of `caller`, as a stream of batches. Raises EngineError."""
        attributes: Attributes = {"antiphon.inputs": len(request.inputs)}
        batches = self.serve(caller, "embeddings", attributes, partial(self._embed, request))
        async with aclosing(batches):
            async for batch in batches:
                yield batch

    async def _embed(
        self, request: EmbeddingRequest, engine: EmbeddingEngine
    ) -> AsyncGenerator[Embeddings, None]:
        executor = self._scheduler.executor(owner=request.owner)
        self._running += 1
        began = time.perf_counter()
        try:
            async with aclosing(iterate_in_thread(engine.embed(request), executor)) as batches:
                async for batch in batches:
                    metrics.embedding_tokens.inc(batch.tokens)
                    yield batch
            metrics.embedding_seconds.observe(time.perf_counter() - began)
        finally:
            self._running -= 1
            executor.leave()

    def load(self) -> float:
        return self._running / FULL
