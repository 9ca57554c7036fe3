"""Clean English sentences full of protected spans that a correction must not change."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

WORDS = Path(__file__).with_name("clean.yaml")


@dataclass(frozen=True)
class CleanSentence:
    text: str
    protected: tuple[str, ...]  # spans that the output must have as often as the text


def clean_sentences(count: int, seed: int = 6) -> Iterator[CleanSentence]:
    """`count` sentences: each template in turn, filled at random from `seed`."""
    words = yaml.safe_load(WORDS.read_text("utf-8"))
    templates = words["templates"]
    choose = random.Random(seed)
    for index in range(count):
        spans: list[str] = []
        text = ""
        for position, part in enumerate(templates[index % len(templates)].split("{")):
            if position:
                slot, _, rest = part.partition("}")
                spans.append(choose.choice(words["slots"][slot]))
                part = spans[-1] + rest
            text += part
        yield CleanSentence(text, tuple(spans))
