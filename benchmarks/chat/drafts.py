"""A small draft model beside a large one: tokens a second with and without it, and drafts taken.

    python -m benchmarks.chat.drafts --model llm/qwen2_5_coder_1_5b --draft qwen2-5-coder-0-5b-q4

Chat, code and JSON at temperature 0 and 0.7, one stream, each prompt with both in one run, since
the speed of a machine drifts.
"""

import argparse
import asyncio
import time
from statistics import median

from pydantic import TypeAdapter

from benchmarks.harness.report import hardware
from configs.load import load_yaml
from configs.schema.models.llm import ChatConfig, DraftConfig, LlamaCppConfig
from configs.settings import weights_dir
from models.llm.base import ChatMessage, GenerationRequest, SamplingOptions
from models.llm.llama_cpp import LlamaCppEngine
from models.weights.store import WeightStore

PROMPTS = {
    "chat": (
        "Explain to a child why the sky is blue.",
        "What should I pack for a week in Norway in October?",
        "Tell a short story about a lighthouse keeper and a whale.",
    ),
    "code": (
        "Write a Python function that merges two sorted lists.",
        "Write a class for a bank account in Python, with deposits and withdrawals.",
        "Write a function in JavaScript that debounces another.",
    ),
    "JSON": (
        "List five countries with capital, population and area.",
        "Describe a fictitious customer with address and three orders.",
        "Give the planets of the solar system with their diameters.",
    ),
}
TOKENS = 120
TEMPERATURES = (0.0, 0.7)


async def tokens_per_s(engine: LlamaCppEngine, prompt: str, kind: str, heat: float) -> float:
    """Of the answer, from its first text on."""
    request = GenerationRequest(
        (ChatMessage("user", prompt),),
        SamplingOptions(temperature=heat, max_tokens=TOKENS, seed=1),
        response_format={"type": "json_object"} if kind == "JSON" else None,
    )
    first_at = first_tokens = 0.0
    async for delta in engine.generate(request):
        if delta.usage is not None and not first_at:
            first_at = time.perf_counter()
            first_tokens = delta.usage.completion_tokens
    assert delta.usage is not None
    return (delta.usage.completion_tokens - first_tokens) / (time.perf_counter() - first_at)


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="llm/qwen2_5_coder_1_5b")
    parser.add_argument("--draft", default="qwen2-5-coder-0-5b-q4", help="weights of the draft")
    parser.add_argument("--most-tokens", type=int, default=3, help="drafted at once")
    given = parser.parse_args()
    config = load_yaml(TypeAdapter(ChatConfig), given.model)
    assert isinstance(config, LlamaCppConfig)
    config = config.model_copy(update={"parallel": 1})
    draft = DraftConfig(weights=given.draft, most_tokens=given.most_tokens)
    store = WeightStore(weights_dir())
    alone = LlamaCppEngine(config, store)
    drafting = LlamaCppEngine(config.model_copy(update={"draft": draft}), store)
    print(hardware())
    for heat in TEMPERATURES:
        for kind, prompts in PROMPTS.items():
            alone_speeds, drafting_speeds, ratios = [], [], []
            for prompt in prompts:
                alone_speed = await tokens_per_s(alone, prompt, kind, heat)
                drafting_speed = await tokens_per_s(drafting, prompt, kind, heat)
                alone_speeds.append(alone_speed)
                drafting_speeds.append(drafting_speed)
                ratios.append(drafting_speed / alone_speed)
            print(
                f"temperature {heat}, {kind}: {median(alone_speeds):.1f} tokens/s alone,"
                f" {median(drafting_speeds):.1f} with the draft, ratio {median(ratios):.2f}",
                flush=True,
            )


if __name__ == "__main__":
    asyncio.run(main())
