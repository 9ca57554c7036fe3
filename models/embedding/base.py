"""Interface of embedding models: vectors of texts, close together for texts of like meaning."""

from abc import ABC, abstractmethod
from base64 import b64encode
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from models.base import Engine

EmbeddingInput: TypeAlias = str | tuple[int, ...]  # text, or ids of its tokens in cl100k_base
MOST_TOKENS = 8192  # most tokens of one input; OpenAI's limit
MOST_TOKEN_BYTES = 128  # most bytes of a token of cl100k_base


@dataclass(frozen=True, slots=True)
class EmbeddingRequest:
    """Inputs to embed. Sent between processes."""

    inputs: tuple[EmbeddingInput, ...]
    owner: str = ""  # the tenant


@dataclass(frozen=True, slots=True)
class Embeddings:
    """The embeddings of consecutive inputs. Sent between processes."""

    vectors: NDArray[np.float32]  # [k, dimensions], of length 1
    tokens: int  # number of the inputs' tokens

    def shortened(self, dimensions: int) -> "Embeddings":
        """Returns the first numbers of each vector, scaled to length 1."""
        first = self.vectors[:, :dimensions]
        lengths = np.maximum(np.linalg.norm(first, axis=1, keepdims=True), 1e-9)
        return Embeddings(first / lengths, self.tokens)

    def to_numbers(self) -> list[list[float]]:
        """Converts the vectors for JSON, with 8 decimals: half the digits of a float64."""
        numbers: list[list[float]] = np.round(self.vectors.astype(np.float64), 8).tolist()
        return numbers

    def to_base64(self) -> list[str]:
        """Converts each vector to base64 of little-endian float32 numbers."""
        return [b64encode(vector.tobytes()).decode() for vector in self.vectors.astype("<f4")]

    @staticmethod
    def joined(batches: Sequence["Embeddings"]) -> "Embeddings":
        """Joins the embeddings of consecutive inputs."""
        vectors = np.concatenate([batch.vectors for batch in batches])
        return Embeddings(vectors, sum(batch.tokens for batch in batches))


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingCapabilities:
    """The capabilities of an embedding engine."""

    dimensions: int
    languages: tuple[str, ...]  # ISO 639-1 codes that the model was trained for
    context_tokens: int = MOST_TOKENS  # most tokens of one input
    max_concurrency: int = 1  # batches computed at the same time


class EmbeddingEngine(Engine, ABC):
    """Embedding model. Thread-safe; its calls block."""

    capabilities: EmbeddingCapabilities

    @abstractmethod
    def embed(self, request: EmbeddingRequest) -> Generator[Embeddings, None, None]:
        """Yields the embeddings of all inputs in order, in batches. Raises ContextLengthExceeded
        for an input over `context_tokens`, or InvalidEngineRequest for an id that is no token."""
