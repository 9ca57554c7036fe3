"""What is known of all-MiniLM-L6-v2: the similarities that its publisher documents."""

import numpy as np
import pytest

from models.embedding.base import EmbeddingRequest, Embeddings
from models.errors import ContextLengthExceeded
from models.registry import EMBEDDING
from tests.models.configured import configured

pytestmark = pytest.mark.weights

# The example of https://www.sbert.net/docs/quickstart.html, with the cosines that it prints.
TEXTS = ("The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium.")
COSINES = [[1.0, 0.6660, 0.1046], [0.6660, 1.0, 0.1411], [0.1046, 0.1411, 1.0]]


def vectors(*inputs: str | tuple[int, ...]) -> np.ndarray:
    engine = configured(EMBEDDING, "all_minilm_l6_v2")
    return Embeddings.joined([*engine.embed(EmbeddingRequest(inputs))]).vectors


def test_similarities_are_those_that_the_publisher_documents() -> None:
    embedded = vectors(*TEXTS)
    assert np.abs(embedded @ embedded.T - COSINES).max() < 1e-4


def test_paraphrases_are_nearer_than_texts_with_the_same_words() -> None:
    query, paraphrase, other = vectors(
        "How do I reset my password?",
        "I forgot my login credentials, what can I do?",
        "How do I reset my router?",
    )
    unrelated = vectors("The recipe needs two eggs.")[0]
    assert query @ paraphrase > query @ unrelated + 0.3 and query @ other > query @ unrelated


def test_ids_of_cl100k_base_are_the_text_that_they_encode() -> None:
    text = "The weather is lovely today."
    ids = (791, 9282, 374, 17104, 3432, 13)  # of tiktoken
    assert np.allclose(vectors(text), vectors(ids), atol=1e-6)
    assert np.allclose(vectors("The"), vectors((791, 76460)), atol=1e-6)  # half of a character


def test_the_bytes_of_a_text_without_spaces_count_as_tokens() -> None:
    engine = configured(EMBEDDING, "all_minilm_l6_v2")
    (embedded,) = engine.embed(EmbeddingRequest(("a" * 1281,)))
    assert embedded.tokens == 11
    with pytest.raises(ContextLengthExceeded, match="takes 8193 tokens"):
        next(engine.embed(EmbeddingRequest(("a" * (1 << 20) + "a",))))


def test_a_long_text_is_near_to_each_of_its_subjects() -> None:
    whole, first, last = vectors(
        "The orchestra played a symphony. " * 60 + "The goalkeeper saved the penalty. " * 60,
        "The orchestra played a symphony.",
        "The goalkeeper saved the penalty.",
    )
    assert min(whole @ first, whole @ last) > first @ last + 0.3
