"""Prompts: texts that Whisper reads before the speech, from callers who may send any.

A decoder that reads a text which repeats itself goes on with it, in place of the speech.
"""

import re
from collections.abc import Sequence
from statistics import fmean

from models.stt.base import Word

RUN = 4  # tokens; a longer repetition is read once
MOST_TOKENS = 160  # of a prompt: more take 1.3 of the time of a short recording
# The probability from the speech alone below which a word of the prompt was not said, and the mean
# below which no text was. Measured: rare names that were said have 0.2 and more, texts 0.6.
UNSAID_WORD, UNSAID_TEXT = 0.12, 0.02
NO_REPEAT = 6  # tokens in a row that a text after a prompt has only once: loops end then
SHORTEST = 4  # letters; shorter words are in any text

_WORD = re.compile(r"\w+")


def reduced(tokens: Sequence[int], end: int) -> list[int]:
    """The last text tokens of a prompt, each run of them once; marks have ids from `end` on."""
    text: list[int] = []
    for token in tokens:
        if token < end:
            text.append(token)
        for size in range(1, RUN):
            if text[-size:] == text[-2 * size : -size]:
                del text[-size:]
    runs: set[tuple[int, ...]] = set()
    kept: list[int] = []
    for at, token in enumerate(text, 1):
        run = tuple(text[max(0, at - RUN) : at])
        if len(run) < RUN or run not in runs:
            kept.append(token)
        runs.add(run)
    return kept[-MOST_TOKENS:]


def is_unsaid(words: Sequence[Word], prompt: str) -> bool:
    """Whether a text comes from its prompt; `words` have their probabilities without it.

    At least half of the words that both have are improbable then; a few are in any speech.
    """
    if not words or fmean(word.confidence for word in words) < UNSAID_TEXT:
        return True
    read = {part for part in _WORD.findall(prompt.casefold()) if len(part) >= SHORTEST}
    shared = [
        word.confidence < UNSAID_WORD
        for word in words
        if not read.isdisjoint(_WORD.findall(word.word.casefold()))
    ]
    return sum(shared) * 2 >= max(1, len(shared))
