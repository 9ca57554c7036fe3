"""Counts letters."""

from collections.abc import Generator

import numpy as np

from configs.schema.base import ModelConfig
from models.embedding.base import (
    MOST_TOKENS,
    EmbeddingCapabilities,
    EmbeddingEngine,
    EmbeddingRequest,
    Embeddings,
)
from models.errors import ContextLengthExceeded, InvalidEngineRequest
from models.weights.store import WeightStore

BATCH = 100
DIMENSIONS = 32


class LettersConfig(ModelConfig):
    """Its languages."""

    engine: str
    languages: tuple[str, ...]


class LettersEngine(EmbeddingEngine):
    """Embeds a text as the counts of its letters; a word is a token, and so is a code point."""

    config = LettersConfig

    def __init__(self, config: LettersConfig, weights: WeightStore) -> None:
        self.capabilities = EmbeddingCapabilities(
            dimensions=DIMENSIONS, languages=config.languages, max_concurrency=4
        )

    def embed(self, request: EmbeddingRequest) -> Generator[Embeddings, None, None]:
        texts = []
        for item in request.inputs:
            if not isinstance(item, str) and max(item) > 0x10FFFF:
                raise InvalidEngineRequest(f"input: {max(item)} is not a token; send text")
            texts.append(item if isinstance(item, str) else "".join(map(chr, item)))
        for start in range(0, len(texts), BATCH):
            counts = np.ones((len(texts[start : start + BATCH]), DIMENSIONS), np.float32)
            tokens = 0
            for row, text in enumerate(texts[start : start + BATCH]):
                words = len(text.split())
                if words > MOST_TOKENS:
                    raise ContextLengthExceeded(f"input {start + row} takes {words} tokens")
                tokens += words
                for letter in text.casefold():
                    counts[row, ord(letter) % DIMENSIONS] += 1
            yield Embeddings(counts / np.linalg.norm(counts, axis=1, keepdims=True), tokens)
