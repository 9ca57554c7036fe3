"""The models of `configs/default_chat.yaml` above the smallest: everyday questions."""

import pytest

from configs.load import load_yaml
from configs.schema.serve import DefaultChatConfig
from models.llm.base import ChatEngine, ChatMessage, GenerationRequest, SamplingOptions
from models.registry import CHAT
from tests.models.configured import configurations, configured

DEFAULTS = {
    one.model.removeprefix("llm/") for one in load_yaml(DefaultChatConfig, "default_chat").models
}
SMALLEST = "smollm2"
QUESTIONS = {
    "What is the capital of France?": "Paris",
    "What is 2 plus 3? Answer with the number.": "5",
    "What is the opposite of hot? Answer with one word.": "old",
}


@pytest.fixture(
    scope="module",
    params=[one for one in configurations(CHAT) if one.values[0] in DEFAULTS],
)
def engine(request: pytest.FixtureRequest) -> ChatEngine:
    return configured(CHAT, request.param)


async def answer(engine: ChatEngine, text: str) -> str:
    sampling = SamplingOptions(temperature=0, max_tokens=60)
    request = GenerationRequest((ChatMessage("user", text),), sampling)
    return "".join([delta.text async for delta in engine.generate(request)])


@pytest.mark.parametrize(("question", "key"), QUESTIONS.items())
async def test_an_everyday_question_is_answered(
    engine: ChatEngine, question: str, key: str
) -> None:
    assert key in await answer(engine, question)
