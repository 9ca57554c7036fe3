"""Embeds texts: chooses the model, and charges for the tokens."""

from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass

from models.base import ModelInfo
from models.embedding.base import (
    MOST_TOKEN_BYTES,
    MOST_TOKENS,
    EmbeddingInput,
    EmbeddingRequest,
    Embeddings,
)
from models.errors import EngineLost
from pipelines.billing.billing import Billing
from pipelines.billing.operation import Operation
from pipelines.errors import InvalidRequest, ModelNotFound
from pipelines.ports import EmbeddingModel, ModelList, named

MOST_REQUEST_TOKENS = 300_000  # tokens of all inputs together; OpenAI's limit


@dataclass(eq=False, repr=False)
class EmbeddingPipeline:
    """Embeddings by the models of a mapping, which may change."""

    _models: Mapping[str, EmbeddingModel]
    _billing: Billing
    _infos: Mapping[str, ModelInfo] | None = None  # source of `ModelList`: models that are down

    def __post_init__(self) -> None:
        self._list = ModelList(self._models, infos=self._infos)

    async def embed(
        self,
        inputs: tuple[EmbeddingInput, ...],
        model: str | None,
        workspace_id: int,
        operation: Operation,
        dimensions: int | None = None,
    ) -> tuple[Embeddings, ModelInfo]:
        """Returns the embeddings of all inputs, and the model of that id or alias; None: the first.
        `dimensions` is how many numbers to keep, scaled to length 1. Raises ModelNotFound,
        InvalidRequest, InsufficientCredit, DatabaseUnavailable or EngineError."""
        port, info = await self._choose(model)
        if dimensions is not None and dimensions > (info.dimensions or dimensions):
            raise InvalidRequest(f"dimensions: {info.id} has only {info.dimensions}")
        batches: list[Embeddings] = []
        tokens = 0
        most_tokens = min(sum(map(_most_tokens, inputs)), MOST_REQUEST_TOKENS)
        request = EmbeddingRequest(inputs, str(workspace_id))
        charge = await self._billing.hold(workspace_id, "embedding", most_tokens, operation)
        async with charge, aclosing(port.embed(request)) as answers:
            async for batch in answers:
                batches.append(batch)
                tokens = sum(embedded.tokens for embedded in batches)
                charge.progress(tokens, is_sent=False)
                if tokens > MOST_REQUEST_TOKENS:
                    message = f"input: all texts together have over {MOST_REQUEST_TOKENS} tokens"
                    raise InvalidRequest(message)
            await charge.capture(tokens)
        embeddings = Embeddings.joined(batches)
        return embeddings.shortened(dimensions) if dimensions else embeddings, info

    async def _choose(self, model: str | None) -> tuple[EmbeddingModel, ModelInfo]:
        listed = await self._list.by_port()
        entries = {entry.info.id: (port, entry) for port, entry in listed.items() if entry}
        infos = [entry.info for _, entry in entries.values()]
        info = next(iter(infos), None) if model is None else named(model, infos)
        if info is None:
            if None in listed.values():
                raise EngineLost("an embedding model is down, possibly the requested one")
            ids = ", ".join(sorted(entries)) or "none"
            raise ModelNotFound(f"no embedding model has that name; available: {ids}")
        port, entry = entries[info.id]
        if info.is_awaited:
            raise EngineLost(f"{info.id} cannot answer yet: its weights are being fetched")
        if entry.status == "unavailable":
            raise EngineLost(f"{info.id} is down")
        return self._models[port], info


def _most_tokens(item: EmbeddingInput) -> int:
    """Returns the most tokens that an input has: each has a byte at least."""
    size = len(item.encode()) if isinstance(item, str) else MOST_TOKEN_BYTES * len(item)
    return min(size, MOST_TOKENS)
