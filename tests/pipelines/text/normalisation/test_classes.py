"""A reading of one class of forms changes these forms, and leaves texts that look like them.

Each table of `classes/` has lines with "changed" or "left", a language, a text and its spoken form,
and in `reports.tsv` the class, which came from public reports. The texts were written before the
rules, and the spoken forms of those that are left before the rules too; `reviewed.tsv` has texts
that the first rules broke.
"""

from collections import Counter
from pathlib import Path

import pytest

from tests.pipelines.text.normalisation.score import speak

TABLES = sorted((Path(__file__).parent / "classes").glob("*.tsv"))


def _rows(table: Path) -> list[list[str]]:
    return [line.split("\t") for line in table.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.stem)
def test_a_class_is_read_and_its_lookalikes_are_left(table: Path) -> None:
    readings = [(text, speak(text, language), said) for _, language, text, said, *_ in _rows(table)]
    assert not [reading for reading in readings if reading[1] != reading[2]]


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.stem)
def test_each_class_has_enough_lookalikes(table: Path) -> None:
    rows = _rows(table)
    lookalikes = Counter("".join(classes) for kind, _, _, _, *classes in rows if kind == "left")
    assert lookalikes.keys() == {"".join(classes) for _, _, _, _, *classes in rows}
    assert min(lookalikes.values()) >= 15
