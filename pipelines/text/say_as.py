"""Reads the content of SSML's `say-as`."""

import re
from datetime import date

from babel.dates import format_skeleton

from pipelines.text.normalisation.number_words import words_for


def say_as(written: str, kind: str, form: str, language: str) -> str:
    """Reads `written` as the given kind; returns it unchanged if it cannot be read so.

    `form` is the order of a date, such as `mdy`. Dates, times, amounts and units in a usual
    notation are recognised by normalisation, as everywhere.
    """
    words, numbers = words_for(language), re.findall(r"\d+", written)
    if kind in ("characters", "spell-out", "verbatim"):
        letters = (words.mark(char) or char.upper() for char in written if not char.isspace())
        # The narrow space keeps letters after "Chapter" from being read as a Roman numeral.
        return "\u202f" + ", ".join(letters)
    if kind in ("digits", "telephone"):
        return words.telephone(written)
    if kind in ("cardinal", "number", "ordinal") and re.fullmatch("[IVXLCDM]+", written):
        numbers = [written := words.read(written, "roman")]
    if kind in ("cardinal", "number") and [written.strip()] == numbers:
        return words.integer(numbers[0])
    if kind == "ordinal" and len(numbers) == 1 and len(numbers[0]) <= 9:
        return words.ordinal(int(numbers[0]))
    if kind == "date" and len(numbers) == len(form) and max(map(len, numbers), default=9) <= 4:
        parts = dict(zip(form.lower(), map(int, numbers), strict=True))
        if (year := parts.get("y")) is not None and year < 100:
            year += 2000 if year < 70 else 1900
        if {"d", "m"} <= parts.keys():
            return words.date(parts["d"], parts["m"], year) or written
        if year and 1 <= parts.get("m", 0) <= 12:
            return format_skeleton("yMMMM", date(year, parts["m"], 1), locale=words.locale)
        if year and len(parts) == 1:
            return words.year(year)
    return written
