"""Templates that refuse orders of roles, such as those of Mistral's and Gemma's models."""

from pathlib import Path

import pytest

from models.errors import InvalidEngineRequest, WeightsMissing
from models.llm.base import ChatMessage, GenerationDelta, GenerationRequest, SamplingOptions
from models.llm.llama_cpp import LlamaCppEngine
from models.weights.store import WeightStore
from tests.models.llm.llama_cpp.smollm import SMOLLM

pytestmark = pytest.mark.weights

ALTERNATES = """\
{%- set ns = namespace(turn=0) %}
{%- for message in messages %}
{%- if message.content == 'forbidden' %}{{ raise_exception('no such words') }}{% endif %}
{%- if message.role == 'system' and not loop.first %}
{{- raise_exception('System message must be at the beginning') }}{% endif %}
{%- if message.role != 'system' %}
{%- if (message.role == 'user') != (ns.turn % 2 == 0) %}
{{- raise_exception('Conversation roles must alternate') }}{% endif %}
{%- set ns.turn = ns.turn + 1 %}{% endif %}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""
SYSTEM, USER, ASSISTANT = (
    ChatMessage("system", "Be brief."),
    ChatMessage("user", "Name a colour."),
    ChatMessage("assistant", "Red."),
)


@pytest.fixture(scope="module")
def engine(weights: WeightStore, tmp_path_factory: pytest.TempPathFactory) -> LlamaCppEngine:
    template: Path = tmp_path_factory.mktemp("llm") / "strict.jinja"
    template.write_text(ALTERNATES)
    try:
        config = SMOLLM.model_copy(update={"chat_template": str(template)})
        return LlamaCppEngine(config, weights)
    except WeightsMissing as error:
        pytest.skip(str(error))


async def answer(engine: LlamaCppEngine, *messages: ChatMessage) -> GenerationDelta:
    request = GenerationRequest(messages, SamplingOptions(max_tokens=4, temperature=0.0))
    return GenerationDelta.joined([delta async for delta in engine.generate(request)])


@pytest.mark.parametrize(
    "messages",
    [
        (USER, USER),
        (ASSISTANT, USER),
        (SYSTEM,),
        (SYSTEM, ASSISTANT, USER),
        (SYSTEM, SYSTEM, USER),
        (SYSTEM, USER, SYSTEM, USER),
        (USER, ASSISTANT, ASSISTANT, USER, USER),
        (USER, ASSISTANT, SYSTEM),
    ],
    ids=lambda messages: " ".join(message.role for message in messages),
)
async def test_any_order_of_roles_is_answered_by_a_strict_template(
    engine: LlamaCppEngine, messages: tuple[ChatMessage, ...]
) -> None:
    whole = await answer(engine, *messages)
    assert whole.text and whole.usage is not None
    shorter = await answer(engine, USER)
    assert shorter.usage is not None
    if len(messages) > 2:  # nothing is left out
        assert whole.usage.prompt_tokens > shorter.usage.prompt_tokens


async def test_what_a_template_still_refuses_is_an_error_with_its_reason(
    engine: LlamaCppEngine,
) -> None:
    with pytest.raises(InvalidEngineRequest, match=r"refuses the messages: no such words$"):
        await answer(engine, ChatMessage("user", "forbidden"))
