"""Replicas of embedding models."""

import asyncio

import numpy as np
import pytest

from deployments.replicas import choice
from deployments.replicas.embedding import EmbeddingDeployment
from models.embedding.base import EmbeddingRequest, Embeddings
from models.errors import InvalidEngineRequest
from tests.engines import LETTERS


async def embed(replica: EmbeddingDeployment, *texts: str, owner: str = "") -> list[Embeddings]:
    return [batch async for batch in replica.embed(EmbeddingRequest(texts, owner))]


async def test_a_replica_embeds_in_batches_and_reports_its_load() -> None:
    replica = EmbeddingDeployment()
    await replica.reconfigure({"model": LETTERS})
    batches = await embed(replica, *["some text"] * 250)
    assert [len(batch.vectors) for batch in batches] == [100, 100, 50]
    assert np.allclose(np.linalg.norm(batches[0].vectors, axis=1), 1) and replica.load() == 0
    assert (await replica.describe()).dimensions == 32
    with pytest.raises(InvalidEngineRequest):
        _ = [batch async for batch in replica.embed(EmbeddingRequest(((10**9,),)))]


async def test_a_short_request_is_embedded_before_the_rest_of_a_long_one() -> None:
    replica = EmbeddingDeployment()
    await replica.reconfigure({"model": LETTERS})
    long = asyncio.create_task(embed(replica, *["some text " * 100] * 2048, owner="long"))
    await asyncio.sleep(0.01)
    await embed(replica, "short", owner="short")
    assert not long.done()
    assert len(await long) == 21


async def test_a_replica_without_weights_waits_for_what_it_wants(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(choice, "is_here", lambda model: False)
    replica = EmbeddingDeployment()
    await replica.reconfigure({"model": "auto", "wanted": "embedding/all_minilm_l6_v2"})
    assert await replica.record_autoscaling_stats() == {"load": 0.0}
    await replica.reconfigure({"model": LETTERS})
    assert len(await embed(replica, "a text")) == 1
