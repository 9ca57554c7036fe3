"""Embeddings and legacy completions with OpenAI's official client, and LangChain's embeddings."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import openai
import pytest
from openai import OpenAI

from models.registry import EMBEDDING
from models.weights.store import WeightStore
from tests.api.local_server import Server, local_settings, serve_services
from tests.api.local_services import local_services
from tests.clients.openai_texts import DOCUMENTS, QUERY
from tests.clients.registry_clients import RegistryClients
from tests.local_ports import LocalEmbeddingModel
from tests.models.configured import described

MINILM = "svc/minilm-l6-v2"
# The name by which tiktoken caches a file: the SHA-1 of its address.
CACHED = "9b5ad71b2ce5302211f9c61530b329a4922fc6a4"
WEATHER, STADIUM = 0.6660, 0.1411  # cosines with the query, as the publisher documents them


@pytest.fixture(scope="module")
def minilm_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    port = LocalEmbeddingModel(*described(EMBEDDING, "all_minilm_l6_v2"))
    settings = local_settings(tmp_path_factory.mktemp("embeddings"))
    with serve_services(local_services(settings, embedders={"Embedding": port})) as running:
        yield running


@pytest.fixture
def client(minilm_server: Server) -> OpenAI:
    base_url = f"{minilm_server.url}/openai/v1"
    return OpenAI(base_url=base_url, api_key=minilm_server.key, max_retries=0)


@pytest.mark.weights
def test_the_client_embeds_texts_at_its_defaults(client: OpenAI) -> None:
    answer = client.embeddings.create(model="text-embedding-3-small", input=[*DOCUMENTS, QUERY])
    first, other, query = (np.array(item.embedding) for item in answer.data)
    assert [item.index for item in answer.data] == [0, 1, 2] and answer.object == "list"
    assert (answer.model, answer.usage.prompt_tokens) == (MINILM, 20)
    assert abs(first @ query - WEATHER) < 1e-4 and other @ query < first @ query - 0.3
    numbers = client.embeddings.create(
        model="text-embedding-3-large", input=QUERY, encoding_format="float", dimensions=64
    )
    short = np.array(numbers.data[0].embedding)
    assert len(short) == 64 and abs(np.linalg.norm(short) - 1) < 1e-6
    assert np.allclose(short, query[:64] / np.linalg.norm(query[:64]), atol=1e-6)


@pytest.mark.weights
def test_models_list_the_embedding_model_and_errors_are_the_clients(client: OpenAI) -> None:
    model = client.models.retrieve("text-embedding-ada-002")
    assert model.id == "text-embedding-ada-002" and model.model_extra is not None
    assert model.model_extra["kind"] == "embedding" and model.model_extra["dimensions"] == 384
    with pytest.raises(openai.BadRequestError, match="input 1 takes 9000 tokens"):
        client.embeddings.create(model=MINILM, input=["a", "word " * 9000])
    with pytest.raises(openai.BadRequestError, match="has only 384"):
        client.embeddings.create(model=MINILM, input="a", dimensions=1536)
    with pytest.raises(openai.NotFoundError, match="available: svc/minilm-l6-v2"):
        client.embeddings.create(model="text-embedding-9", input="a")
    with pytest.raises(openai.NotFoundError):
        client.moderations.create(input="a")


@pytest.mark.weights
def test_langchain_embeds_documents_at_its_defaults(
    registry_clients: RegistryClients, minilm_server: Server, weights: WeightStore, tmp_path: Path
) -> None:
    vocabulary = weights.folder("cl100k-base") / "cl100k_base.tiktoken"
    (tmp_path / CACHED).symlink_to(vocabulary.resolve())
    base_url = f"{minilm_server.url}/openai/v1"
    script = Path(__file__).with_name("openai_embeddings.py")
    seen = registry_clients.run(script, base_url, minilm_server.key, str(tmp_path))
    documents, query = np.array(seen["documents"]), np.array(seen["query"])
    assert np.allclose(documents, seen["texts"], atol=1e-5)  # ids are the text that they encode
    assert abs(documents[0] @ query - WEATHER) < 1e-4 and documents[1] @ query < 0.3
    assert seen["many"] == 200  # over 20,000 token ids in one request


def test_the_client_continues_texts(client: OpenAI) -> None:
    answer = client.completions.create(model="gpt-3.5-turbo-instruct", prompt=["one two", "three"])
    assert [(choice.index, choice.text) for choice in answer.choices] == [
        (0, "one two"),
        (1, "three"),
    ]
    assert answer.object == "text_completion" and answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None and answer.usage.total_tokens == 6
    stream = client.completions.create(model="svc/echo", prompt="a b c", max_tokens=2, stream=True)
    chunks = list(stream)
    assert "".join(chunk.choices[0].text for chunk in chunks) == "a b"
    assert chunks[-1].choices[0].finish_reason == "length" and chunks[-1].usage is not None
    with pytest.raises(openai.BadRequestError, match="echo: is not supported"):
        client.completions.create(model="svc/echo", prompt="a", echo=True)
    with pytest.raises(openai.BadRequestError, match="best_of"):
        client.completions.create(model="svc/echo", prompt="a", best_of=2)
