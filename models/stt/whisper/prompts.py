"""Checks prompts, which Whisper reads before the speech, since callers may send any text. After a
prompt that repeats itself, the decoder continues the prompt instead of the speech."""

import re
from collections.abc import Sequence
from statistics import fmean

from models.stt.base import Word

RUN = 4  # tokens; repetitions of runs of this length are dropped
MAX_TOKENS = 160  # tokens of a prompt; more would take 1.3 times as long for a short recording
# Confidence, from the speech alone, below which a word of the prompt was not said; and mean below
# which the whole text was not. Measured: rare names that were said have at least 0.2, texts 0.6.
UNSAID_WORD = 0.12
UNSAID_TEXT = 0.02
NO_REPEAT = 6  # tokens in a row that may not occur twice after a prompt, so that loops end
SHORTEST = 4  # letters; shorter words occur in any text

_WORD = re.compile(r"\w+")


def reduced(tokens: Sequence[int], end: int) -> list[int]:
    """Returns the last text tokens of a prompt, in which each run of RUN tokens occurs once. Tokens
    with ids from `end` on are special tokens, which are dropped."""
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
    return kept[-MAX_TOKENS:]


def is_unsaid(words: Sequence[Word], prompt: str) -> bool:
    """Whether a text comes from its prompt, not from the speech; `words` have the confidence that
    the speech alone gives. This is so if the text is improbable as a whole, or if at least half of
    the words that it shares with the prompt are. A few improbable words occur in any speech."""
    if not words or fmean(word.confidence for word in words) < UNSAID_TEXT:
        return True
    read = {part for part in _WORD.findall(prompt.casefold()) if len(part) >= SHORTEST}
    shared = [
        word.confidence < UNSAID_WORD
        for word in words
        if not read.isdisjoint(_WORD.findall(word.word.casefold()))
    ]
    return sum(shared) * 2 >= max(1, len(shared))
