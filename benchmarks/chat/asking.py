"""Asks a chat engine of this process as clients of the service would, and keeps the answers."""

import argparse
import asyncio
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

from api.native.chat.schemas import ChatCompletionBody
from configs.settings import weights_dir
from deployments.replicas.choice import chosen
from models.base import ModelInfo
from models.llm.base import ChatEngine, GenerationDelta, GenerationRequest
from models.registry import CHAT, load_model
from models.weights.store import WeightStore

SHOWN_EVERY = 10

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Answer:
    text: str
    calls: list[dict[str, str]]  # `name`, and `arguments` as JSON
    was_cut: bool
    tokens: int


def drawn(items: Iterable[Item], number: int, name: Callable[[Item], str]) -> list[Item]:
    """Returns the `number` items with the smallest hashes of their names: the same in each run."""
    return sorted(items, key=lambda item: sha256(name(item).encode()).digest())[:number]


def to_request(fields: Mapping[str, Any]) -> GenerationRequest:
    """Returns what the service asks its engine for when a client sends these fields."""
    body = ChatCompletionBody.model_validate(fields)
    return body.generation([message.to_message() for message in body.messages or ()])


def parser(description: str) -> argparse.ArgumentParser:
    """Returns a parser with the options of every test of answers."""
    options = argparse.ArgumentParser(description=description)
    options.add_argument("--model", default=chosen(), help="by default that of the service")
    options.add_argument(
        "--rows", type=Path, help="file of answers; a later run asks only what is missing"
    )
    options.add_argument("--show", action="store_true", help="print what is wrong")
    return options


def ask_all(
    options: argparse.Namespace, requests: Mapping[str, GenerationRequest]
) -> dict[str, Answer]:
    """Returns an answer for each request. Those that `--rows` has already are not asked again."""
    answers = _kept(options.rows)
    missing = {name: request for name, request in requests.items() if name not in answers}
    if missing:
        engine, info = _load(options.model)
        print(f"{info.id}: {len(missing)} of {len(requests)} to ask", flush=True)
        asyncio.run(_ask(engine, missing, answers, options.rows))
    return {name: answers[name] for name in requests}


def _load(model: str) -> tuple[ChatEngine, ModelInfo]:
    return load_model(CHAT, model, WeightStore(weights_dir()))


def _kept(rows: Path | None) -> dict[str, Answer]:
    if rows is None or not rows.exists():
        return {}
    lines = map(json.loads, rows.read_text().splitlines())
    return {line.pop("name"): Answer(**line) for line in lines}


async def _ask(
    engine: ChatEngine,
    requests: Mapping[str, GenerationRequest],
    answers: dict[str, Answer],
    rows: Path | None,
) -> None:
    slots = asyncio.Semaphore(engine.capabilities.max_concurrency)

    async def ask(name: str, request: GenerationRequest) -> None:
        async with slots:
            pieces = [delta async for delta in engine.generate(request)]
        answers[name] = answer = _to_answer(GenerationDelta.joined(pieces))
        if rows is not None:
            with rows.open("a") as file:
                file.write(json.dumps({"name": name, **asdict(answer)}) + "\n")
        if len(answers) % SHOWN_EVERY == 0:
            print(f"  {len(answers)} answers", flush=True)

    await asyncio.gather(*(ask(name, request) for name, request in requests.items()))


def _to_answer(whole: GenerationDelta) -> Answer:
    calls = [
        {"name": call["function"]["name"], "arguments": call["function"]["arguments"]}
        for call in whole.calls()
    ]
    assert whole.usage is not None
    was_cut = whole.finish_reason == "length"
    return Answer(whole.text, calls, was_cut, whole.usage.completion_tokens)
