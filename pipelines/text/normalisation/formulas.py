"""Signs of formulas in words: powers, ions, roots, comparisons, arrows, primes and coordinates.

They are said by the `signs`, `powers` and `per` of `configs/readings/`, before numbers are read. A
language without these words keeps its signs. One scan of the text; each form is bounded.
"""

import re
import unicodedata

from pipelines.text.normalisation.number_words import NumberWords

RAISED = "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿⁱ"
_PLAIN = str.maketrans("⁻−", "--")
_POWERS = str.maketrans("²³", "23")
_LETTERS_BEFORE = re.compile(r"[^\W\d_]{1,12}$")
# Letters of a symbol. After a longer word, a raised number is the mark of a footnote; after two or
# three letters too, unless a sign of a formula is beside them, as in "E = mc²".
_LONGEST_SYMBOL = 3
_FUNCTIONS = ("sin", "cos", "tan", "log", "ln")
_OPERATORS = "+-−=×·⋅*/÷^<>≤≥≈≠±()[]|√∫∑"
_YEAR_BEFORE = re.compile(r"(?<!\d)(?:1[4-9]|20)\d\d$")
_PRICED_BEFORE = re.compile(r"[\d$€£¥₩₹][ \u00a0\u202f]?/$")  # what a square meter costs
_TERM_BEFORE = re.compile(r"(?:^|[\s(=+×÷*])\d[\d.,]{0,12}$")
_RESULT_AFTER = re.compile(r"(\d[\d.,]{0,12})([ ]?)=[ ]?[-−]?[\d?]")
_LONGEST_TIGHT = 3  # digits of a difference without spaces; longer ones are codes or dates
_MEASURE_BEFORE = re.compile(r"(?:\d[ \u00a0\u202f]?|[^\W_][²³]?[ ·⋅])$")
# A unit that a power counts, as in "10⁸ km²", unless it is a word of some language
_UNIT_AFTER = re.compile(
    r"[ \u00a0\u202f]?(?!(?:a|ha|in|ma|mi)\b)([^\W\d_]{1,4})(?:/([^\W\d_]{1,3}))?"
    rf"([²³]|\^[23])?(?![\w'’^{RAISED}-])"
)
_LENGTHS = frozenset(("km", "m", "dm", "cm", "mm", "ft"))
_NUMBER_BEFORE = re.compile(r"\d[ \u00a0\u202f]?$")
_VARIABLE_BEFORE = re.compile(r"(?<![^\W_])(?!m)[A-Za-z][²³]")
_PER_BEFORE = re.compile(r"\b(?:per|pro|je|par|por|al|na) $")
# What follows the number of a verse or of a footnote: a space or a word, and not the symbol of an
# element, as in "¹⁴C" and "³He".
_ELEMENTS = "Al|Ar|Ba|Be|Ca|Cl|Co|Cr|Cs|Cu|Fe|Ga|Ge|Hg|Kr|Li|Mg|Mn|Mo|Na|Ne|Ni|Pb|Pd|Pt|Pu|Ra|Rb|Rn"
_ELEMENTS += "|Ru|Sb|Sc|Se|Si|Sn|Sr|Tc|Te|Th|Ti|Tl|Xe|Zn|Zr|(?<=[³⁴⁶])He|(?<=[⁰¹²³⁴-⁹]{3})In"
_LABELLED = re.compile(
    rf"\s|[“‘\"'«¿¡(]?(?:[^\W\d_]{{3}}|(?:[AIÀÉa-zà-ÿ]|(?!{_ELEMENTS})[^\W\d_]{{2}})(?=\s))"
)
_DIVIDED_BEFORE = re.compile(r"([^\W\d_]{1,6})/$")
_AMOUNT = r"[-−]?[$€£¥₩₹]?[.]?\d"
_NUMBER = r"\d{1,4}(?:[.,]\d{1,8})?"
_FORM = re.compile(
    rf"""
    (?P<tag></?[A-Za-z][\w-]{{0,15}}
      (?:\s{{1,9}}[\w-]{{1,40}}\s?=\s?(?:"[^"<>]{{0,200}}"|'[^'<>]{{0,200}}'|[\w-]{{1,60}})){{0,9}}\s?/?>)
  | (?P<degrees>(?<![\w.,]){_NUMBER})[ ]?°[ ]?
      (?:(?P<arc_minute>\d{{1,2}}(?:[.,]\d{{1,6}})?)[ ]?[′'’][ ]?
        (?:(?P<arc_second>\d{{1,2}}(?:[.,]\d{{1,6}})?)[ ]?(?:[″"”]|''))?)?
      (?:[ ]?(?P<direction>[NSEWOL])(?!\w))?
  | (?P<minute>(?<![\w.,]){_NUMBER})[ ]?′(?:[ ]?(?P<second>\d{{1,2}}(?:[.,]\d{{1,6}})?)[ ]?″)?(?!\w)
  | (?P<inch>(?<![\w.,]){_NUMBER})[ ]?″(?!\w)
  | (?<=\w)(?P<prime>′)(?!\w)
  | (?P<fraction>[⁰¹²³⁴-⁹]{{1,3}}⁄[₀-₉\d]{{1,3}})
  | (?P<raised>[{RAISED}]{{1,6}})
  | (?<=[\w)\]])\^(?:[({{](?P<within>[-−+]?\w{{1,3}}(?:[-−+]\w{{1,3}}){{0,2}})[)}}]
      |(?P<caret>[-−+]?\d{{1,3}}(?![\d_^])|[a-z](?![\w^])))
  | (?<=\d)[ ]?(?P<minus>−)[ ]?(?=\d)|(?<=\d)[ ]?(?P<hyphen>-)[ ]?(?=\d[\d.,]{{0,12}}[ ]?=)
  | (?:(?<=\b[A-Za-z][ ])|(?<=\d[A-Za-z][ ])|(?<=[\d)²³][ ]))(?P<term>-)
      (?=[ ](?:(?:\d[\d.,]{{0,12}}[A-Za-z]?|[A-Za-z])(?!\w)|[(√])[^.;:?!\n]{{0,60}}=)
  | (?<![<>=/-])(?P<compare>[<>]=?)
      (?:(?={_AMOUNT})|(?<![^\s(].)(?<=<)(?=[ ]\d)|(?<=[\w)%°][ ].)(?=[ ]{_AMOUNT})
      |(?<=[\w)%°][ ]..)(?=[ ]{_AMOUNT})
      |(?:(?<=\b[A-Za-z][ ].)|(?<=\b[A-Za-z][ ]..)|(?<=\d[ ].))(?=[ ][A-Za-z]\b)
      |(?<=\b[A-Za-z].)(?=[A-Za-z](?![\w>])))
  | (?<=[\d)])(?:(?P<dot>[·⋅])(?=[\d(])|[ ](?P<spaced_dot>⋅)[ ](?=[\d(])
      |[ ](?P<dot_of_power>·)[ ](?=10[{RAISED}^]))
  | (?<![\w/~])(?P<about>[~∼])(?=[ ]?[$€£¥₩₹]?\d)
  | (?P<sign>[×÷±≈≠≤≥√∞∑∫∈∆‰№←↑→↓↔⇒⇔−Α-Ωα-ω])
    """,
    re.VERBOSE,
)
_ANY = re.compile(
    rf"[{RAISED}°′″^−<>·⋅~∼×÷±≈≠≤≥√∞∑∫∈∆‰№←↑→↓↔⇒⇔Α-Ωα-ω]|[\w)] ?- ?[\w(][^.;:]{{0,60}}="
)
_BLANK = re.compile(r"\s*+")
_GREEK = re.compile(r"[\u0370-\u03ff]")


def say_formulas(text: str, words: NumberWords) -> str:
    """Replaces the signs of formulas by words, where the language has them."""
    if not words.readings.signs or not _ANY.search(text):
        return text
    pieces: list[str] = []
    position = 0
    for form in _FORM.finditer(text):
        if form.start() < position:
            continue
        before = text[position : form.start()]
        if form["raised"] or form["caret"] or form["within"]:
            before, spoken = _say_raised(before, form, words)
        else:
            spoken = _say_form(form, words)
        pieces += (before, spoken)
        position = form.end()
        is_power = form.lastgroup in ("raised", "caret", "within") and before[-1:].isdecimal()
        if is_power and (after := _UNIT_AFTER.match(text, position)):
            if unit := _counted(after[1], after[2], (after[3] or "")[-1:], words):
                pieces.append(unit)
                position = after.end()
    pieces.append(text[position:])
    return "".join(pieces)


def _say_form(form: re.Match[str], words: NumberWords) -> str:
    if form["tag"]:
        return form[0]
    if form["fraction"]:
        digits = unicodedata.normalize("NFKC", form["fraction"]).replace("⁄", "/")
        return f" {digits}"
    if form["degrees"]:
        return _say_angle(form, words)
    is_english = words.language == "en"
    if minute := form["minute"]:
        second = form["second"]
        if is_english and second and re.fullmatch(r"[2-8]", minute) and float(second) < 12:
            return form[0]  # the height of a person, which has a rule of its own
        is_length = is_english and not second
        spoken = _count(minute, "length-foot" if is_length else "duration-minute", words)
        return f"{spoken} {_count(second, 'duration-second', words)} " if second else f"{spoken} "
    if inch := form["inch"]:
        return f"{_count(inch, 'length-inch', words)} "
    if form.lastgroup == "hyphen" and not _is_difference(form):
        return form[0]
    sign = form[form.lastgroup or 0]
    if sign in "−-":
        return f" {_minus(words)} " if _is_between(form) else form[0]
    if sign in "~∼":
        sign = "≈"
    if _GREEK.match(sign):
        return form[0] if _is_in_word(form) else _say_greek(form, words)
    sign = {"<=": "≤", ">=": "≥", "⋅": "·", "∆": "Δ", "⇒": "→"}.get(sign, sign)
    spoken = words.readings.signs.get(sign, "")
    if sign == "→" and not _is_between(form):
        spoken = words.readings.signs.get("⟶", "")
    return f" {spoken} " if spoken else form[0]


def _say_greek(form: re.Match[str], words: NumberWords) -> str:
    before, after = _around(form)
    spoken = words.readings.signs.get(form[0], form[0])
    return " " * before.isalnum() + spoken + " " * after.isalnum()


def _around(form: re.Match[str]) -> tuple[str, str]:
    """Returns the characters before and after a form; empty at the ends of the text."""
    text = form.string
    return text[max(0, form.start() - 1) : form.start()], text[form.end() : form.end() + 1]


def _minus(words: NumberWords) -> str:
    return words.readings.signs.get("−") or words.minus.strip()


def _say_angle(form: re.Match[str], words: NumberWords) -> str:
    directions = words.readings.tables.get("direction", {})
    direction = form["direction"] or ""
    if not form["arc_minute"] and direction not in directions:
        return form[0]  # a temperature
    spoken = f"{form['degrees']}°"
    for unit in ("minute", "second"):
        if number := form[f"arc_{unit}"]:
            spoken += f" {_count(number, f'duration-{unit}', words)}"
    return f"{spoken} {directions.get(direction, direction)} "


def _counted(unit: str, divided: str | None, raised: str, words: NumberWords) -> str:
    """Reads a unit as after a large number; empty if the language lacks it."""
    raised = {"2": "²", "3": "³"}.get(raised, raised)
    of = words.units.get(f"{unit}/{divided}{raised}" if divided else f"{unit}{raised}")
    if of is None and divided and unit in words.units:
        per = divisor(divided, raised.translate(_POWERS) or "1", words)
        return f"{_counted(unit, None, '', words)} {per}" if per else ""
    return words.count("10", of).removeprefix(words.decimal("10")).strip() if of else ""


def _count(number: str, unit: str, words: NumberWords) -> str:
    return words.count(number.replace(",", "."), unit)


def _is_between(form: re.Match[str]) -> bool:
    """Whether there is a word or a number on both sides."""
    before = form.string[max(0, form.start() - 9) : form.start()].rstrip(" ")[-1:]
    after = form.string[form.end() : form.end() + 9].lstrip(" ")[:1]
    return (
        bool(before and after)
        and (before.isalnum() or before in ")]%°²³$€£")
        and (after.isalnum() or after in "([√∞$€£")
    )


def _is_difference(form: re.Match[str]) -> bool:
    """Whether a hyphen is a minus: both sides of it are numbers, and a result follows."""
    text = form.string
    left = _TERM_BEFORE.search(text, max(0, form.start() - 15), form.start())
    right = _RESULT_AFTER.match(text, form.end())
    if left is None or right is None:
        return False
    is_tight = form[0] == "-"
    longest = max(len(left[0].strip(" (=+×÷*")), len(right[1]))
    return not is_tight or longest <= _LONGEST_TIGHT


def _is_symbol(letters: str, form: re.Match[str]) -> bool:
    """Whether letters before a raised number are a symbol of a formula."""
    if len(letters) == 1 or letters in _FUNCTIONS:
        return True
    if len(letters) > _LONGEST_SYMBOL:
        return False
    text = form.string
    start = form.start() - len(letters)
    before = text[max(0, start - 4) : start].rstrip(" ")[-1:]
    after = text[form.end() : form.end() + 4].lstrip(" ")[:1]
    # Looks ahead first, to the next form at most; copies of the text would take quadratic time.
    is_alone = _BLANK.fullmatch(text, form.end()) and _BLANK.fullmatch(text, 0, start)
    return bool(is_alone) or any(mark and mark in _OPERATORS for mark in (before, after))


def _is_in_word(form: re.Match[str]) -> bool:
    """Whether a letter of Greek is a part of a word, or of a unit such as "kΩ"."""
    around = _around(form)
    if any(map(_GREEK.match, around)):
        return True
    after_number = re.search(r"\d ?$", form.string[max(0, form.start() - 2) : form.start()])
    return form[0] in "μΩ" and (any(map(str.isalpha, around)) or after_number is not None)


def divisor(unit: str, exponent: str, words: NumberWords) -> str:
    """Reads a unit with a negative exponent, such as "per second squared" or "per square meter"."""
    form = words.readings.per.get(exponent, "")
    raised = {"2": "²", "3": "³"}.get(exponent, "")
    if raised and f"{unit}{raised}" in words.units:
        unit += raised
        form = words.readings.per.get("1", "")
    name = words.read(unit, "unit")
    return form.format(unit=name, lower=name.lower())


def _say_raised(before: str, form: re.Match[str], words: NumberWords) -> tuple[str, str]:
    """Returns the text before a raised number and the words for the number.

    After a letter or a number it is a power, or the charge of an ion; after a unit and with a minus
    it is a divisor. After a longer word or a mark it is a footnote, which is left out.
    """
    raised = unicodedata.normalize("NFKC", form["raised"] or form["caret"] or form["within"])
    raised = raised.translate(_PLAIN)
    readings = words.readings
    letters = _LETTERS_BEFORE.search(before)
    base = form.string[max(0, form.start() - 1) : form.start()]
    if not base or base.isspace() or base in "(\"'“‘«[":  # an isotope, or the label of a footnote
        return before, "" if _LABELLED.match(form.string, form.end()) else f"{raised} "
    if raised[-1] in "+-":  # the charge of an ion
        sign = _minus(words) if raised[-1] == "-" else words.mark("+")
        return before, f" {raised[:-1]} {sign} ".replace("  ", " ")
    if letters and words.unit(letters[0]) and form["raised"]:
        start = letters.start()
        raised_unit = letters[0] + form[0]
        if _PRICED_BEFORE.search(before, 0, start) and raised_unit in words.units:
            if spoken := divisor(letters[0], raised, words):
                return before[:start].rstrip("/"), f" {spoken} "
            return before, form[0]
        divided = _DIVIDED_BEFORE.search(before, 0, start)
        if divided and f"{divided[1]}/{letters[0]}{form[0]}" in words.units:
            return before, form[0]
        at = form.start() - len(letters[0])
        is_measure = divided or _MEASURE_BEFORE.search(form.string, max(0, at - 4), at)
        if is_measure and (raised.startswith("-") or (divided and raised in "23")):
            if spoken := divisor(letters[0], raised.lstrip("-"), words):
                return before[:start].rstrip("/·⋅ "), f" {spoken} "
        elif is_measure and raised_unit in words.units and _NUMBER_BEFORE.search(before, 0, start):
            return before, form[0]
        elif (is_measure or not at) and letters[0] in _LENGTHS and raised_unit in words.units:
            if _VARIABLE_BEFORE.search(form.string, max(0, at - 8), at):  # as in "x² and m³"
                return before, form[0]
            unit = _counted(letters[0], None, form[0], words)
            is_one = _PER_BEFORE.search(before, 0, start)
            return before[:start], words.read(raised_unit, "unit") if is_one else unit
    if form["raised"] and _is_footnote(before, base, raised, letters and letters[0], form):
        return before, ""
    exponent = raised.lstrip("+-")
    if exponent.isdecimal():
        exponent = words.integer(exponent)
    else:
        exponent = exponent.replace("+", f" {words.mark('+')} ").replace("-", f" {_minus(words)} ")
    if raised.startswith("-"):
        exponent = f"{_minus(words)} {exponent}"
    power = readings.powers.get(raised) or readings.powers.get("n", "{n}")
    return before, f" {power.format(n=exponent)} "


def _is_footnote(
    before: str, base: str, raised: str, letters: str | None, form: re.Match[str]
) -> bool:
    """Whether a raised number is the mark of a footnote, not a power of `base`."""
    if raised.startswith("-"):
        return False
    if not (base.isalnum() or base in ")]"):
        return True
    if letters:
        return not _is_symbol(letters, form) or (raised == "1" and len(letters) > 1)
    return raised == "1" or _YEAR_BEFORE.search(before) is not None
