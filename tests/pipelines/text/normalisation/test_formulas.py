"""Signs of formulas are said in each language, and none is dropped or left as it is written.

The readings of `formulas.tsv` follow DIN 1338 and Duden ("hoch"), the SI brochure, the DPD of the
RAE ("elevado a"), Treccani ("elevato a"), INMETRO's list of units, Onze Taal and PWN.
"""

import re
from pathlib import Path

import pytest

from pipelines.text.normalisation.normaliser import normalise
from tests.cpu_time import check_cpu_units
from tests.pipelines.text.normalisation.score import speak

TABLE = Path(__file__).with_name("formulas.tsv").read_text(encoding="utf-8").splitlines()
SIGN = re.compile(r"[^\w\s,.'-]|[⁰-₟²³¹]")
UNCHANGED = ["I <3 you", "a -> b", "don′t", "x>>y", "word_a", "<b>"]


@pytest.mark.parametrize("row", TABLE)
def test_a_formula_is_said(row: str) -> None:
    language, written, spoken = row.split("\t")
    assert speak(written, language) == spoken
    assert not SIGN.search(spoken)


@pytest.mark.parametrize("text", UNCHANGED)
def test_signs_that_are_no_formula_are_not_read_as_one(text: str) -> None:
    said = normalise(text, "de")
    assert not re.search(r"kleiner|größer|minus|hoch|Minute", said)


@pytest.mark.parametrize(
    "unit", ["⁻", "x²", " mc²", "5′", "a^", "< 5", "kg m⁻", "° ", "1-", "α", "→ "]
)
def test_formulas_take_linear_time(unit: str) -> None:
    text = (unit * 50_000)[:50_000]
    check_cpu_units(lambda: normalise(text, "de"), below=600)
