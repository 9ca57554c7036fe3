"""A small draft model beside a large one: tokens a second with and without it, and drafts accepted.

    python -m benchmarks.chat.drafts --model llm/qwen2_5_coder_1_5b --draft qwen2-5-coder-0-5b-q4

Chat, code and JSON at temperature 0 and 0.7, with one stream. Each prompt is answered with and
without the draft model in one run, since the speed of a machine drifts.
"""

import argparse
import asyncio
from statistics import median

from benchmarks.harness.chat import llama_config, llama_engine, question, timed
from benchmarks.harness.report import begin, parser
from configs.schema.models.llm import DraftConfig
from models.llm.llama_cpp import LlamaCppEngine

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


async def tokens_per_s(engine: LlamaCppEngine, prompt: str, kind: str, temperature: float) -> float:
    """Tokens a second of the answer, from its first text on."""
    form = {"type": "json_object"} if kind == "JSON" else None
    request = question(prompt, TOKENS, temperature, response_format=form)
    return (await timed(engine.generate, request)).tokens_per_s


async def measure(arguments: argparse.Namespace) -> None:
    config = llama_config(arguments.model)
    draft = DraftConfig(weights=arguments.draft, most_tokens=arguments.most_tokens)
    alone = llama_engine(config, parallel=1)
    drafting = llama_engine(config, parallel=1, draft=draft)
    for temperature in TEMPERATURES:
        for kind, prompts in PROMPTS.items():
            pairs = [
                (
                    await tokens_per_s(alone, prompt, kind, temperature),
                    await tokens_per_s(drafting, prompt, kind, temperature),
                )
                for prompt in prompts
            ]
            alone_per_s = median(speed for speed, _ in pairs)
            drafting_per_s = median(speed for _, speed in pairs)
            ratio = median(speed / alone_speed for alone_speed, speed in pairs)
            print(
                f"temperature {temperature}, {kind}: {alone_per_s:.1f} tokens/s alone,"
                f" {drafting_per_s:.1f} with the draft, ratio {ratio:.2f}",
                flush=True,
            )


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--model", default="llm/qwen2_5_coder_1_5b")
    options.add_argument("--draft", default="qwen2-5-coder-0-5b-q4", help="weights of the draft")
    options.add_argument("--most-tokens", type=int, default=3, help="drafted at once")
    asyncio.run(measure(begin(options)))


if __name__ == "__main__":
    main()
