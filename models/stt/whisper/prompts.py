"""Prompts: texts that Whisper reads before the speech, from callers who may send any."""

from collections.abc import Sequence

RUN = 4  # tokens in a row that are read once


def reduced(tokens: Sequence[int], end: int) -> list[int]:
    """The text tokens of a prompt, without what is in it before; marks have ids from `end` on.

    A prompt that repeats itself makes the decoder go on with it in place of the speech.
    """
    kept: list[int] = []
    read: set[tuple[int, ...]] = set()
    text = [token for token in tokens if token < end]
    for at, token in enumerate(text):
        run = tuple(text[max(0, at - RUN + 1) : at + 1])
        is_new = len(run) < RUN or run not in read
        read.add(run)
        if is_new:
            kept.append(token)
    return kept
