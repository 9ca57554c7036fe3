"""Everyday questions to a chat model: right answers, those that repeat themselves, and lengths.

    .venv/bin/python -m benchmarks.chat.everyday                     # with its configuration
    .venv/bin/python -m benchmarks.chat.everyday --temperature 0.7 --top-p 0.8

Half of the questions of `questions.yaml` may be used for choices (`tuned`); the rest is held out.
"""

import argparse
import asyncio
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import yaml

from configs.settings import weights_dir
from models.llm.base import ChatEngine, ChatMessage, GenerationRequest, SamplingOptions
from models.registry import CHAT, load_model
from models.weights.store import WeightStore

QUESTIONS = Path(__file__).with_name("questions.yaml")
MOST_TOKENS = 400
TIMES, WORDS = 3, 8  # the same words so often are a repetition


@dataclass(frozen=True, slots=True)
class Answer:
    text: str
    is_right: bool | None  # None: the question has no certain answer
    was_cut: bool
    tokens: int

    @property
    def repeats(self) -> bool:
        words = re.findall(r"\w+", self.text.lower())
        runs = Counter(tuple(words[at : at + WORDS]) for at in range(len(words) - WORDS + 1))
        return any(count >= TIMES for count in runs.values())


async def ask(engine: ChatEngine, question: dict[str, str], options: SamplingOptions) -> Answer:
    request = GenerationRequest((ChatMessage("user", question["ask"]),), options)
    deltas = [delta async for delta in engine.generate(request)]
    text, usage = "".join(delta.text for delta in deltas), deltas[-1].usage
    assert usage is not None
    pattern = question.get("answer")
    flags = re.S | (0 if pattern is None or pattern.isupper() else re.I)
    right = None if pattern is None else re.search(pattern, text, flags) is not None
    return Answer(text, right, deltas[-1].finish_reason == "length", usage.completion_tokens)


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="llm/smollm2")
    parser.add_argument("--temperature", type=float)
    parser.add_argument("--top-p", type=float)
    parser.add_argument("--show", action="store_true", help="print the answers")
    given = parser.parse_args()
    engine, info = load_model(CHAT, given.model, WeightStore(weights_dir()))
    options = SamplingOptions(given.temperature, given.top_p, max_tokens=MOST_TOKENS, seed=0)
    questions = yaml.safe_load(QUESTIONS.read_text())
    slots = asyncio.Semaphore(engine.capabilities.max_concurrency)

    async def answered(question: dict[str, str]) -> Answer:
        async with slots:
            return await ask(engine, question, options)

    answers = await asyncio.gather(*map(answered, questions))
    print(f"{info.id}, of {len(answers) // 2} questions each")
    for name, first in (("tuned", 0), ("held out", 1)):
        half = answers[first::2]
        judged = [one.is_right for one in half if one.is_right is not None]
        print(
            f"{name:9} right {sum(judged)} of {len(judged)}, repeat themselves"
            f" {sum(one.repeats for one in half)}, cut {sum(one.was_cut for one in half)},"
            f" tokens {sum(one.tokens for one in half) / len(half):.0f}"
        )
    if given.show:
        for question, answer in zip(questions, answers, strict=True):
            print(f"\n{question['ask']} {answer.is_right}\n{answer.text}")


if __name__ == "__main__":
    asyncio.run(main())
