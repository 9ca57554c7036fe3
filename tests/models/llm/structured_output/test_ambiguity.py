"""Alternatives of `oneOf`: the comparison by sets decides as the comparison of all pairs does."""

from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.llm.structured_output.ambiguity import Alternative, exclude_each_other
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
    pairs = all(
        one.excludes(other)
        for mine, theirs in combinations(parts, 2)
        for one in mine
        for other in theirs
    )
    assert exclude_each_other(parts, WorkBudget()) == pairs


def test_listed_values_are_not_compared_in_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Alternative, "excludes", None)
    parts = [[Alternative.of({"const": f"value {at}"})] for at in range(200)]
    assert exclude_each_other(parts, WorkBudget())
    assert not exclude_each_other([*parts, [Alternative.of({"const": "value 7"})]], WorkBudget())
