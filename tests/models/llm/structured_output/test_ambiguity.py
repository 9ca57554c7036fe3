"""Alternatives of `oneOf`: the comparison by sets decides as the comparison of all pairs does."""

from itertools import permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.llm.structured_output.ambiguity import Alternative, overlaps
from models.llm.structured_output.ast import WorkBudget
from tests.models.llm.structured_output.schemas import record

_VALUES = st.one_of(
    st.fixed_dictionaries({"const": st.integers(0, 3) | st.sampled_from(["a", None, {}])}),
    st.fixed_dictionaries({"enum": st.lists(st.integers(0, 5), min_size=1, max_size=3)}),
    st.sampled_from([{"type": "string"}, {"type": ["object", "null"]}, {}]),
)
_OBJECTS = st.builds(
    lambda properties, required: record(properties, *required),
    st.dictionaries(st.sampled_from("abc"), _VALUES, max_size=3),
    st.lists(st.sampled_from("abcd"), max_size=2),
)


@settings(max_examples=400)
@given(st.lists(st.lists(_VALUES | _OBJECTS, min_size=1, max_size=2), min_size=1, max_size=5))
def test_sets_decide_as_pairs_do(schemas: list[list[Any]]) -> None:
    parts = [[Alternative.of(schema) for schema in part] for part in schemas]
    apart = all(
        one.keeps_out_of(other)
        for mine, theirs in permutations(parts, 2)
        for one in mine
        for other in theirs
    )
    assert apart == (not any(overlaps(parts, WorkBudget())))


def test_listed_values_are_not_compared_in_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Alternative, "keeps_out_of", None)
    parts = [[Alternative.of({"const": f"value {at}"})] for at in range(200)]
    assert not any(overlaps(parts, WorkBudget()))
    assert any(overlaps([*parts, [Alternative.of({"const": "value 7"})]], WorkBudget()))
