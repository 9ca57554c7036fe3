"""SSML's `say-as`: how the content of one is read."""

import re

from pipelines.text.normalisation.number_words import words_for


def say_as(written: str, kind: str, form: str, language: str) -> str:
    """`written` as a word of that kind; what cannot be read in that way stays.

    `form` is the order of a date, as `mdy`. Dates, times, amounts and units in a usual notation are
    recognised by normalisation, as everywhere.
    """
    words, numbers = words_for(language), re.findall(r"\d+", written)
    if kind in ("characters", "spell-out", "verbatim"):
        return ", ".join(letter.upper() for letter in written if not letter.isspace())
    if kind in ("digits", "telephone"):
        plus = f"{words.mark('+')} " if written.startswith("+") else ""
        return plus + ", ".join(map(words.digits, numbers))
    if kind in ("cardinal", "number") and [written.strip()] == numbers:
        return words.integer(numbers[0])
    if kind == "ordinal" and len(numbers) == 1 and len(numbers[0]) <= 9:
        return words.ordinal(int(numbers[0]))
    if kind == "date" and {"d", "m"} <= set(form) and len(numbers) == len(form):
        parts = dict(zip(form, map(int, numbers), strict=True))
        year = parts.get("y")
        century = 2000 if year is not None and year < 100 else 0
        return words.date(parts["d"], parts["m"], year and year + century) or written
    return written
