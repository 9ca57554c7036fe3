"""Notation for the eye: lines that are drawn with signs, which are left out, and formulas in TeX as
plain signs, which `formulas` and the rules of `configs/readings/` say.

Dollars delimit a formula as in Pandoc's `tex_math_dollars`, and only around what cannot be an
amount.
"""

import re
from collections.abc import Mapping

_LINE = re.compile(
    r"(?<!\S)[=+&%/@$#~*_^|<>\\-]{4,}(?!\S)"
    r"|(?<![\s\S])[=+#~*/-]{3,}(?= )|(?<!\S)[=+#~*/-]{3,}(?![\s\S])"
)
_MATH = re.compile(
    r"\$\$([^$]{1,500})\$\$|\\\[([^$]{1,500}?)\\\]|\\\(([^$\n]{1,300}?)\\\)"
    r"|\$(?=[^\s$])([^$\n]{1,200})(?<=\S)\$(?!\w)"
)
_WORD = re.compile(r"[A-Za-z]{2}")
_BRACED = r" ?\{([^{}]{1,200})\}"
_FRACTION = re.compile(rf"\\[dt]?frac{_BRACED}{_BRACED}")
_TEXT = re.compile(rf"\\(?:text|math|operatorname)[a-z]{{0,5}}{_BRACED}")
_ENVIRONMENT = re.compile(r"\\(?:begin|end)\{[a-z*]{1,20}\}")
_DEGREE = re.compile(r"\^(?:\\circ(?![a-z])|\{\\circ\})")
_MACRO = re.compile(r"\\([A-Za-z]{2,20}(?![A-Za-z])|[,;:!])")
_PATH = re.compile(r"[A-Za-z]:\\")
_DEEPEST = 3  # fractions within fractions


def without_notation(text: str, signs: Mapping[str, str]) -> str:
    """Removes lines of signs and the delimiters of formulas, and replaces the macros of TeX by
    `signs`. Other macros stay, and are read by their name."""
    text = _LINE.sub("", text)
    if ("\\" not in text and text.count("$") < 2) or _PATH.search(text):
        return text
    text = _ENVIRONMENT.sub(" ", _MATH.sub(_inside, text))
    for _ in range(_DEEPEST):
        text = _FRACTION.sub(r" \1/\2 ", text)
    text = _TEXT.sub(r"\1", _DEGREE.sub("°", text))
    return _MACRO.sub(lambda macro: signs.get(macro[1], macro[0]), text)


def _inside(math: re.Match[str]) -> str:
    formula: str = math[math.lastindex or 0]
    is_amount = math[4] and (formula[0].isdigit() or _WORD.search(formula))
    return math[0] if is_amount and not re.search(r"[\\^_{}]", formula) else formula
