"""Notation for the eye: lines that are drawn with signs, which are left out, and formulas in TeX as
plain signs, which `formulas` and the rules of `configs/readings/` say.

Dollars delimit a formula as in Pandoc's `tex_math_dollars`, and only around what cannot be an
amount.
"""

import re
from collections.abc import Mapping

_LINE = re.compile(
    r"(?<!\S)(?:([<>])\1{3,}|[=+&%/@$#~*_^|\\-]{4,})(?!\S)"
    r"|(?<![^\n])[=+&%/@$#~*_^|<>\\-]{4,}(?![^\n])"
)
_FRAME = re.compile(r"(?<![^\n])([=+#~*/-]{3,}+)( [^\n]{1,300}?) \1(?![^\n])")
_MATH = re.compile(
    r"\$\$([^$]{1,500})\$\$(?!\$)|\\\[([^$]{1,500}?)\\\]|\\\(([^$\n]{1,300}?)\\\)"
    r"|(?<![\w$])\$(?=[^\s$])([^$\n]{1,200})(?<=\S)\$(?!\w)"
)
_WORD = re.compile(r"[A-Za-z]{2}")
_BRACED = r" ?\{([^{}]{1,200})\}"
_FRACTION = re.compile(rf"\\[dt]?frac{_BRACED}{_BRACED}")
_TEXT = re.compile(rf"\\(?:text|math|operatorname)[a-z]{{0,5}}{_BRACED}")
_ENVIRONMENT = re.compile(r"\\(?:begin|end)\{[a-z*]{1,20}\}")
_DEGREE = re.compile(r"\^(?:\\circ(?![a-z])|\{\\circ\})")
_MACRO = re.compile(r"\\([A-Za-z]{2,20}(?![A-Za-z])|[,;:!])")
# The macros of a text, but not the folders of a path such as `docs\to\read`
_MACRO_IN_TEXT = re.compile(
    r"(?<![\w\\.-])[A-Za-z]{2}[\w.-]*+(?:\\[\w.-]++)+|\\([A-Za-z]{2,20})(?![A-Za-z])"
)
_PATH = re.compile(r"(?<![^\W_])[A-Za-z]:\\(?![\[(])")
_ITALIC = re.compile(r"(?<![^\s(\"'“‘«\[—–-])_(?=[^\s_])([^_\n]{1,300})(?<=[^\s_])_(?!\w)")
_GROUPED = re.compile(r"(?<![\w.])[1-9]\d{0,2}(?:_\d{3}){1,5}(?!\w|[.,]\d)")
_RAISED = re.compile(r"<sup>([-−+]?\d{1,3})</sup>")
TO_RAISED = str.maketrans("0123456789+-−", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁻")
# A heart ends a sentence, or stands between people and what they love; elsewhere "<3" is "less than
# 3", such as after "be", a colon or a number, and before a unit or decimals.
_HEART = re.compile(
    r"(?<!\S)(?<!^[^\WI] )(?<!\s[^\WI] )(?<!\bis )(?<!\bof )(?<!\bto )(?<!\bbe )"
    r"(?<!\bist )(?<!liegt )(?<!der )(?<!than )(?<![\d:] )<3(?=\s*$|[.!?](?!\d)| <3)"
    r"|(?:(?<=\b[Ii] )|(?<=\b[Ww]e )|(?<=\b[Yy]ou )|(?<=hanks )|(?<=\b[Ii]ch )|(?<=\b[Jj]e ))"
    r"<3(?=,(?!\d)| (?:you|u|it|this|her|him|them|dich|euch)\b)"
    r"|(?:(?<=\bI )|(?<=\b[Ww]e )|(?<=\bJe ))<3(?= [A-Z])"
)
_NUMERO = re.compile(r"(?<!\w)[Nn][°º]\.? ?(?=\d)")
# But not in a code for the network, such as "*100*1#"
_TYPED_TIMES = re.compile(r"(?<=\d)(?<![*#]\d)(?<![*#]\d\d)(?<![*#]\d{3}) ?\* ?(?=\d)")
_DEEPEST = 3  # fractions within fractions


def without_notation(text: str, signs: Mapping[str, str], *, times: bool) -> str:
    """Removes lines of signs, hearts and the delimiters of formulas, and replaces the macros of TeX
    by `signs`. Other macros stay, and are read by their name. Raised numbers of HTML become raised
    digits, numbers of programs lose the marks between their groups, and signs typed as
    others get their own character: "№" for "N°" and, with `times`, "×" for "*"."""
    text = _FRAME.sub(r"\2", _LINE.sub("", text))
    if "<3" in text:
        text = _HEART.sub("", text)
    if "°" in text or "º" in text:
        text = _NUMERO.sub("№", text)
    if times and "*" in text:
        text = _TYPED_TIMES.sub("×", text)
    if "_" in text:
        text = _GROUPED.sub(lambda number: number[0].replace("_", ""), text)
        text = _ITALIC.sub(r"\1", text)  # so that rules find the forms in it
    if "<sup>" in text:
        text = _RAISED.sub(lambda raised: raised[1].translate(TO_RAISED), text)
    if ("\\" not in text and text.count("$") < 2) or _PATH.search(text):
        return text

    def sign(macro: re.Match[str]) -> str:
        return signs.get(macro[1], macro[0])

    def inside(math: re.Match[str]) -> str:
        formula: str = math[math.lastindex or 0]
        has_words = _WORD.search(formula)
        is_amount = math[4] and (formula[0].isdigit() or has_words)
        is_amount = is_amount or (math[1] and has_words and "=" not in formula)
        if is_amount and not re.search(r"[\\^_{}]", formula):
            return math[0]
        formula = _MACRO.sub(sign, formula)
        return f" {formula} " if math[1] or math[2] else formula

    text = _ENVIRONMENT.sub(" ", _MATH.sub(inside, text))
    for _ in range(_DEEPEST):
        text = _FRACTION.sub(r" \1/\2 ", text)
    text = _TEXT.sub(r"\1", _DEGREE.sub("°", text))
    return _MACRO_IN_TEXT.sub(sign, text)
