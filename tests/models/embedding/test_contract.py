"""The contract of every embedding engine, with each configuration of `configs/embedding`."""

import numpy as np
import pytest

from models.embedding.base import EmbeddingEngine, EmbeddingRequest, Embeddings
from models.errors import ContextLengthExceeded, InvalidEngineRequest
from models.registry import EMBEDDING
from tests.models.configured import configurations, configured


@pytest.fixture(params=configurations(EMBEDDING))
def engine(request: pytest.FixtureRequest) -> EmbeddingEngine:
    return configured(EMBEDDING, request.param)


def embed(engine: EmbeddingEngine, *inputs: str | tuple[int, ...]) -> Embeddings:
    return Embeddings.joined([*engine.embed(EmbeddingRequest(inputs))])


def test_embeddings_have_length_1_and_do_not_depend_on_their_neighbours(
    engine: EmbeddingEngine,
) -> None:
    texts = ("A short text.", "x", "日本語", "word " * 700, " ", *map(str, range(120)))
    together = embed(engine, *texts)
    alone = np.concatenate([embed(engine, text).vectors for text in texts])
    assert together.vectors.shape == (125, engine.capabilities.dimensions)
    assert together.vectors.dtype == np.float32
    assert np.allclose(np.linalg.norm(together.vectors, axis=1), 1, atol=1e-5)
    assert np.allclose(together.vectors, alone, atol=1e-5)
    assert together.tokens == sum(embed(engine, text).tokens for text in texts)


def test_inputs_beyond_the_context_and_unknown_tokens_are_refused(engine: EmbeddingEngine) -> None:
    with pytest.raises(ContextLengthExceeded, match="input 1 takes"):
        embed(engine, "first", "word " * (engine.capabilities.context_tokens + 1))
    with pytest.raises(InvalidEngineRequest, match="is not a token"):
        embed(engine, (72, 10**9))
