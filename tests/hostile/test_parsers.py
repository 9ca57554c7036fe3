"""Each parser under inputs near valid ones, and under those that once made it fail.

`make fuzz-parsers` looks for more, guided by coverage.
"""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.errors import PipelineError
from tests.hostile.fuzz import parsers
from tests.hostile.fuzz.mutations import MOST_BYTES, mutated
from tests.hostile.fuzz.parsers import PARSERS, seeds

CRASHES = Path(parsers.__file__).parent / "crashes"
KEPT = sorted(path for path in CRASHES.glob("*/*") if path.is_file())


@pytest.mark.parametrize("name", PARSERS)
def test_valid_inputs_and_those_near_them_are_parsed_or_refused(name: str) -> None:
    for seed in seeds(name):
        assert len(seed) <= MOST_BYTES  # no longer one is changed as a whole
        PARSERS[name](seed)

    @settings(max_examples=60)
    @given(mutated(seeds(name)))
    def parse(data: bytes) -> None:
        PARSERS[name](data)

    parse()


@pytest.mark.parametrize("path", KEPT, ids=lambda path: f"{path.parent.name} {path.name[-12:]}")
def test_an_input_that_once_failed_is_parsed_or_refused(path: Path) -> None:
    PARSERS[path.parent.name](path.read_bytes())


def test_a_seed_reaches_each_limit_of_the_decoder() -> None:
    for message, data in parsers.beyond_limits():
        with pytest.raises(PipelineError, match=message):
            parsers.decode_within_limits(data)


@given(st.binary(max_size=300))
def test_the_fuzzer_of_schemas_makes_a_schema_of_any_bytes(data: bytes) -> None:
    assert isinstance(parsers._Growth(data).schema(6), dict | bool)
