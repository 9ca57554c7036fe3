"""What is drawn or typed for the eye, in texts of chats and web pages, is not read aloud."""

import re
from itertools import product

import pytest

from configs.schema.readings import READ_LANGUAGES
from pipelines.text.normalisation.normaliser import normalise
from pipelines.text.normalisation.number_words import words_for
from pipelines.text.segmentation import clean
from tests.cpu_time import cpu_units

SIGNS = "=+&%/@$#~*_^|<>-\\"
INLINE = "b i em strong code kbd sub sup span a font"
BLOCKS = "p div ul ol li tr th td table h1 h6 blockquote"
HIDDEN = [
    (":smile: Hello :+1:", "Hello"),
    ("- [x] Done", "- Done"),
    ("[ ] Done", "Done"),
    (r"One.\nTwo\n\nThree\tFour\n", "One. Two, Three, Four"),
    (r"He said \"no\", it\'s late.", 'He said "no", it\'s late.'),
    ("0x1F, 0xFF and 3x4", "zero X one F, zero X F F and three by four"),
    ("1_000_000 and 12_345", "one million and twelve thousand three hundred and forty-five"),
]
FORMULAS = [
    (r"So $6{x}_{1} \leq {24}$ holds.", "So six x one less than or equal to twenty-four holds."),
    (r"$$\frac{1}{2}$$ is $x$.", "one half is x."),
    (r"An angle of \(43^\circ\)", "An angle of forty-three degrees"),
    (r"\frac{7}{10} of $6 \text{ km}$", "seven tenths of six km"),
    (r"\begin{align} a = 1 \end{align}", "a equals one"),
]
KEPT = [
    ("It costs $5 and $6, or $20-$30.", "five dollars"),
    ("a === b", "equals"),
    ("C++ or x++", "plus plus"),
    ("Use the <b> tag and the <br> tag.", "the b tag and the br tag"),
    ("if a < b and c > d", "a less than b and c greater than d"),
    ("Note: this: that", "Note: this: that"),
    ("At 10:30: go", "ten"),
    (r"C:\new\times\alpha", "backslash new backslash times"),
    ("array[x] = 5", "array x equals five"),
    ("snake_1_000_a", "snake"),
]


@pytest.mark.parametrize("language", sorted(READ_LANGUAGES))
def test_lines_and_frames_of_signs_are_silent(language: str) -> None:
    for sign, count in product(SIGNS, (4, 7, 60)):
        run = sign * count
        for text in (f"A {run} B", run, f"{run} A", f"A {run}"):
            assert re.findall(r"\w+", normalise(clean(text), language)) == re.findall("[AB]", text)


@pytest.mark.parametrize("tag", INLINE.split())
def test_inline_tags_are_silent(tag: str) -> None:
    text = f'Some <{tag}>bold</{tag}>, <{tag} class="x">plain</{tag}> text'
    assert normalise(text, "en") == "Some bold, plain text"


@pytest.mark.parametrize("tag", BLOCKS.split())
def test_tags_of_blocks_part_their_texts(tag: str) -> None:
    text = f"<{tag}>One</{tag}><{tag} id='x'>Two</{tag}>"
    assert re.fullmatch(r"One,? Two", normalise(text, "en"))
    assert normalise("One<br>two<br />three<hr/>four", "en") == "One, two, three, four"


@pytest.mark.parametrize(("text", "spoken"), HIDDEN + FORMULAS)
def test_notation_is_spoken_as_it_is_meant(text: str, spoken: str) -> None:
    assert normalise(clean(text), "en") == spoken


@pytest.mark.parametrize(("text", "spoken"), KEPT)
def test_what_only_looks_like_notation_is_read(text: str, spoken: str) -> None:
    assert spoken in normalise(clean(text), "en")


@pytest.mark.parametrize("language", sorted(READ_LANGUAGES))
def test_formulas_have_neither_dollars_nor_names_of_macros(language: str) -> None:
    for macro in words_for(language).readings.tables["tex"]:
        spoken = re.findall(r"[^\W\d]+", normalise(rf"$x \{macro} y$", language))
        assert not {"leq", "geq", "neq", "cdot", "infty", "sqrt", "dollar"}.intersection(spoken)


@pytest.mark.parametrize(
    "unit", ["$", r"\frac{", r"\frac{a}", "$a", "<b>", "</b>", r"\n", ":a", "="]
)
def test_typography_is_read_in_linear_time(unit: str) -> None:
    text = (unit * 20_000)[:20_000]
    assert cpu_units(lambda: normalise(text, "en")) < 100
