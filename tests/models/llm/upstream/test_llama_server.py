"""The engine in front of llama.cpp's own server."""

import asyncio
import json
from collections.abc import Iterator

import pytest

from models.errors import ContextLengthExceeded, EngineLost, WeightsMissing
from models.llm import llama_cpp
from models.llm.base import GenerationRequest, SamplingOptions
from models.llm.upstream import UpstreamEngine
from models.weights.store import WeightStore
from tests.models.llm.llama_cpp.smollm import SMOLLM
from tests.models.llm.upstream.raw_upstream import KEY, ask, collect, engine_of, whole

pytestmark = pytest.mark.weights

WEATHER = {
    "type": "object",
    "properties": {"city": {"enum": ["Oslo", "Rome"]}},
    "required": ["city"],
}
FIELDS = ("temperature", "max_tokens", "stop", "seed", "response_format", "stream_options")


@pytest.fixture(scope="module")
def url(weights: WeightStore) -> Iterator[str]:
    """The address of llama-server in this process, with a known key."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("secrets.token_urlsafe", lambda _: KEY)
        config = SMOLLM.model_copy(update={"parallel": 2, "context_tokens": 512})
        try:
            path = weights.folder(config.weights) / "model.gguf"
        except WeightsMissing as error:
            pytest.skip(str(error))
        server = llama_cpp.start_server(config, str(path))
    yield f"{server.listening_address}/v1"
    del server


@pytest.fixture
def engine(url: str, weights: WeightStore) -> UpstreamEngine:
    return engine_of(url, weights, key_env="FAR_KEY", context_tokens=512, fields=FIELDS)


def said(text: str, max_tokens: int = 8, **options: object) -> GenerationRequest:
    return ask(text, sampling=SamplingOptions(0.0, max_tokens=max_tokens, seed=1), **options)


async def test_it_answers_in_pieces_with_its_own_count_of_tokens(engine: UpstreamEngine) -> None:
    deltas = await collect(engine, said("Say hello to the world."))
    assert len([delta for delta in deltas if delta.text]) > 3
    last = deltas[-1].usage
    assert last is not None and 0 < last.completion_tokens <= 8 and last.prompt_tokens > 5
    assert deltas[-1].finish_reason in ("stop", "length")


async def test_answers_at_once_are_those_of_each_alone(engine: UpstreamEngine) -> None:
    requests = [said(f"Repeat: {word}") for word in ("red", "blue", "green")]
    alone = [(await whole(engine, request)).text for request in requests]
    together = await asyncio.gather(*(whole(engine, request) for request in requests))
    assert [one.text.split()[:1] for one in together] == [text.split()[:1] for text in alone]


async def test_its_answer_obeys_a_schema(engine: UpstreamEngine) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "place", "schema": WEATHER}}
    answer = await whole(engine, said("Where is Norway's capital?", 40, response_format=form))
    assert json.loads(answer.text)["city"] in ("Oslo", "Rome")


async def test_its_refusals_are_ours(
    engine: UpstreamEngine, url: str, weights: WeightStore
) -> None:
    with pytest.raises(ContextLengthExceeded, match="512 tokens"):
        await collect(engine, said("word " * 900))
    with pytest.raises(EngineLost, match=r"denies access to this service \(401\)"):
        await collect(engine_of(url, weights), said("hi"))


async def test_a_closed_answer_frees_its_slot(engine: UpstreamEngine) -> None:
    for _ in range(4):  # of two slots
        answer = engine.generate(said("Tell a long story.", 400))
        await anext(answer)
        await answer.aclose()
    assert (await whole(engine, said("Say hello."))).text
