"""Bytes near valid ones, for Hypothesis."""

from collections.abc import Sequence

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

MOST_BYTES = 4096


def mutated(seeds: Sequence[bytes]) -> SearchStrategy[bytes]:
    """Any bytes, or a seed with parts replaced, repeated, removed or joined to those of another."""
    base = st.sampled_from(list(seeds))
    change = st.tuples(st.floats(0, 1), st.floats(0, 1), st.binary(max_size=8), st.integers(1, 40))
    changed = st.builds(_changed, base, base, st.lists(change, max_size=8))
    return st.one_of(changed, st.binary(max_size=200))


def _changed(seed: bytes, other: bytes, changes: list[tuple[float, float, bytes, int]]) -> bytes:
    data = seed
    for first, second, new, times in changes:
        begin, end = sorted((round(first * len(data)), round(second * len(data))))
        replaced = new * times if len(new) % 3 else data[begin:end] * min(times, 4) or other
        data = (data[:begin] + replaced + data[end:])[:MOST_BYTES]
    return data
