"""Words of Whisper's alignment, and their times."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest

from models.stt.whisper.alignment import words_from

Times = list[tuple[float, float]]
TEXTS = [" one", " two", " three", " four"]


def words_at(times: Times, duration_s: float = 9.0) -> Times:
    alignment: list[Mapping[str, Any]] = [
        {"word": text, "start": start, "end": end, "probability": 0.9, "tokens": [0]}
        for text, (start, end) in zip(TEXTS, times, strict=False)
    ]
    words = words_from(alignment, duration_s, is_spaced=True)
    return [(word.start, word.end) for word in words]


@pytest.mark.parametrize(
    "times",
    [
        [(0, 1), (1, 1), (1, 2)],
        [(0, 1), (1, 1), (1, 1), (1, 2)],
        [(0, 0), (0, 1), (1, 2)],
        [(0, 0), (0, 0), (0, 1)],
        [(0, 1), (1, 2), (2, 2)],
        [(0, 1), (1.5, 1.5), (1.5, 2)],
        [(0, 1), (9.5, 9.9)],
        [(0, 1), (3, 3), (5, 6)],
        [(0, 0), (5, 6)],
        [(7, 8), (8, 12), (12, 13)],
    ],
)
def test_words_on_one_instant_share_the_time_of_a_neighbour(times: Times) -> None:
    spread = words_at(times)
    assert len(spread) == len(times)
    assert spread == sorted(spread)
    assert all(start < end for start, end in spread)
    assert all(before[1] <= after[0] for before, after in pairwise(spread))
    assert (spread[0][0], spread[-1][1]) == (times[0][0], min(times[-1][1], 9))


def test_words_with_a_length_keep_their_times() -> None:
    times = [(0.1, 0.5), (0.5, 0.9), (1.2, 1.3), (1.3, 2.0)]
    assert words_at(times) == times
