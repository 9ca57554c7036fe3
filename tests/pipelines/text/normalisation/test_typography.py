"""What is drawn or typed for the eye, in texts of chats and web pages, is not read aloud."""

import re
from itertools import product

import pytest

from configs.schema.readings import READ_LANGUAGES
from pipelines.text.normalisation.normaliser import normalise
from pipelines.text.normalisation.number_words import words_for
from pipelines.text.segmentation import clean
from tests.cpu_time import check_cpu_units

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
    (
        "10<sup>6</sup> people on 5 km<sup>2</sup>",
        "ten to the power of six people on five square kilometers",
    ),
    ("the 2<sup>nd</sup> H<sub>2</sub>O, 10<sub>2</sub>", "the second H two O, ten two"),
    ("2<b>3, <i>Hello</i>world <b>H</b>ello", "two b three, Hello world Hello"),
    ('<p>"Hello," she said.</p>', '"Hello," she said.'),
    (r"One,\ntwo.\nthree.\nu", r"One, two. three. nu"),
    (
        "-1_000, $1_000 and 1_000 km",
        "minus one thousand, one thousand dollars and one thousand kilometers",
    ),
    ("=== Title ===", "Title"),
    ("0x" + "1" * 64, "zero X" + " one" * 64),
    ("1_000_000 and 12_345", "one million and twelve thousand three hundred and forty-five"),
]
FORMULAS = [
    (r"So $6{x}_{1} \leq {24}$ holds.", "So six x one less than or equal to twenty-four holds."),
    (r"$$\frac{1}{2}$$ is $x$.", "one half is x."),
    (r"An angle of \(43^\circ\)", "An angle of forty-three degrees"),
    (r"\frac{7}{10} of $6 \text{ km}$", "seven tenths of six km"),
    (r"$5 \cdot 3 = 15$", "five times three equals fifteen"),
    (r"The area is:\[x^2 \leq 5\]now", "The area is: x squared less than or equal to five now"),
    (r"$a\,b\!$ then $x\to y$", "a b then x to y"),
    (r"\alpha\to\beta", "alpha right arrow beta"),
    (r"\begin{align} a = 1 \end{align}", "a equals one"),
]
KEPT = [
    ("It costs $5 and $6, or $20-$30.", "five dollars"),
    ("It costs 5$-10$ now.", "five dollars to ten dollars now"),
    ("Tickets are 5$, 10$ or 15$.", "five dollars, ten dollars or fifteen dollars"),
    ("US$, A$ and C$", "US dollar, A dollar and C dollar"),
    ("restaurants from $$ to $$$.", "to $$$"),
    (r"Great\! See you\, friend", "Great! See you, friend"),
    (r"see docs\to\read", "docs to read"),
    ("a === b", "equals"),
    ("=== compares value and type.", "equals equals equals compares"),
    ("Use ===", "Use equals"),
    ("a ====> b", "equals"),
    (
        "1_0000 and 10_0000 yen, file 001_002",
        "one zero zero zero zero and ten zero zero zero zero yen, file zero zero one zero",
    ),
    ("the `<br>` tag", "the br tag"),
    ("Use <p>.", "Use p."),
    ('The "<b>" tag', "b"),
    ("if (a<b>c)", "a b c"),
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


@pytest.mark.parametrize("language", sorted(READ_LANGUAGES))
def test_dashes_of_every_kind_stand_between_spaces(language: str) -> None:
    for dash in ("--", " -- ", "-- ", "---", " - ", " – ", "—", " —", "―"):
        spoken = normalise(f"Ana{dash}Bob", language)
        assert re.fullmatch("Ana [—–] Bob", spoken), dash
    assert normalise("Ana, “--Bob--” --Carl--.", language) == "Ana, “Bob—” — Carl—."


@pytest.mark.parametrize("text", ["Run it with --help.", "a well-known Ana–Bob", "Mr. B---- left"])
def test_hyphens_options_and_omissions_are_no_dashes(text: str) -> None:
    assert "—" not in normalise(text, "en")


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
        formula = normalise(rf"$x \{macro} y$", language)
        spoken = re.findall(r"[^\W\d]+", formula)
        assert not {"leq", "geq", "neq", "cdot", "infty", "sqrt", "dollar"}.intersection(spoken)
        if macro in ("times", "cdot") and words_for(language).readings.signs:
            assert re.fullmatch(r"x ?\w.* ?y", formula), macro


@pytest.mark.parametrize(
    "unit",
    ["$", r"\frac{", r"\frac{a}", "$a", "$$a", "<b>", "</b>", "<a b=c ", r"\n", r".\n", ":a", "="]
    + [r"\[", r"\(", "0x", "1_000", "[x] ", r"ab\a", "=== a ", "=== \n", "<sup>1", "a<"]
    + ["a--", " --a", "a —", "10⁸ km", "1s. "],
)
def test_typography_is_read_in_linear_time(unit: str) -> None:
    text = (unit * 20_000)[:20_000]
    check_cpu_units(lambda: normalise(text, "en"), below=100)
