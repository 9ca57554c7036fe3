"""Scripts: the letters that languages are written in, from the CLDR."""

import re
from functools import lru_cache
from pathlib import Path

from pydantic import TypeAdapter

from configs.load import load_yaml

SCRIPTS = load_yaml(
    TypeAdapter(tuple[tuple[int, int, tuple[str, ...]], ...]),
    str(Path(__file__).with_name("scripts.yaml")),
)
LATIN = "A-Za-z\u00c0-\u024f\u1e00-\u1eff"
# Latin letters, numbers and signs, which all languages use.
ANYWHERE = (
    "\0-\u036f\u1d00-\u1eff\u2000-\u2bff\u2c60-\u2c7f\u3190-\u319f\u3200-\u33ff\ua700-\ua7ff"
    "\uab30-\uab6f\ufb00-\ufb06\uff21-\uff5a\U0001d400-\U0001ffff"
)
_GREEK = "[\u0370-\u03ff]"
_SIGN = rf"(?<!{_GREEK}){_GREEK}(?!{_GREEK})"  # a lone letter, as in "β-carotene"


def letters_of(languages: frozenset[str]) -> str:
    """Return the character ranges of the scripts of `languages`, for a character class; empty for
    the Latin script."""
    return "".join(
        f"{chr(first)}-{chr(last)}"
        for first, last, codes in SCRIPTS
        if not languages.isdisjoint(codes)
    )


@lru_cache(maxsize=256)
def letters_outside(languages: frozenset[str]) -> re.Pattern[str]:
    """Matches a letter that voices of `languages` do not read."""
    return re.compile(rf"(?![{ANYWHERE}{letters_of(languages)}]|{_SIGN})[^\W\d_]")
