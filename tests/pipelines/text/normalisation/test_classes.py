"""A reading of one class of forms changes these forms, and leaves texts that look like them.

Each table of `classes/` has lines with "changed" or "left", a language, a text and its spoken form.
The texts were written before the rule.
"""

from pathlib import Path

import pytest

from tests.pipelines.text.normalisation.score import speak

TABLES = sorted((Path(__file__).parent / "classes").glob("*.tsv"))


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.stem)
def test_a_class_is_read_and_its_lookalikes_are_left(table: Path) -> None:
    rows = [line.split("\t") for line in table.read_text(encoding="utf-8").splitlines()]
    readings = [(text, speak(text, language), spoken) for _, language, text, spoken in rows]
    assert not [reading for reading in readings if reading[1] != reading[2]]
    kinds = [kind for kind, *_ in rows]
    assert kinds.count("changed") + kinds.count("left") == len(rows)
