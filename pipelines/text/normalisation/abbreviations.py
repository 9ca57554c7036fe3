"""Expansion of abbreviations. No library has them; only unambiguous ones are listed."""

import re
from collections.abc import Mapping
from functools import lru_cache

_SPOKEN: Mapping[str, Mapping[str, str]] = {
    "en": {
        "Dr.": "Doctor", "Mr.": "Mister", "Mrs.": "Missis", "Ms.": "Miz", "Prof.": "Professor",
        "Jr.": "Junior", "Sr.": "Senior", "Capt.": "Captain", "Gen.": "General", "Gov.": "Governor",
        "Sen.": "Senator", "e.g.": "for example", "i.e.": "that is", "etc.": "et cetera",
        "vs.": "versus", "approx.": "approximately", "dept.": "department", "Ave.": "Avenue",
        "Blvd.": "Boulevard", "Inc.": "Incorporated", "Ltd.": "Limited", "Corp.": "Corporation",
        "a.m.": "A M", "p.m.": "P M",
    },
    "de": {
        "Dr.": "Doktor", "Prof.": "Professor", "z.B.": "zum Beispiel", "z. B.": "zum Beispiel",
        "d.h.": "das heißt", "d. h.": "das heißt", "u.a.": "unter anderem", "usw.": "und so weiter",
        "bzw.": "beziehungsweise", "ca.": "circa", "Nr.": "Nummer", "Str.": "Straße",
    },
    "fr": {
        "M.": "Monsieur", "Mme": "Madame", "Mlle": "Mademoiselle", "Dr": "Docteur",
        "etc.": "et cetera", "p. ex.": "par exemple", "c.-à-d.": "c'est-à-dire",
    },
    "es": {
        "Sr.": "Señor", "Sra.": "Señora", "Srta.": "Señorita", "Dr.": "Doctor", "Dra.": "Doctora",
        "Ud.": "usted", "Uds.": "ustedes", "p. ej.": "por ejemplo", "etc.": "etcétera",
    },
    "it": {
        "Sig.": "Signor", "Sig.ra": "Signora", "Dott.": "Dottor", "Prof.": "Professor",
        "ecc.": "eccetera", "es.": "esempio",
    },
    "nl": {
        "dhr.": "de heer", "mevr.": "mevrouw", "bijv.": "bijvoorbeeld", "enz.": "enzovoort",
        "d.w.z.": "dat wil zeggen", "o.a.": "onder andere", "ca.": "circa",
    },
    "pl": {
        "dr": "doktor", "prof.": "profesor", "np.": "na przykład", "itd.": "i tak dalej",
        "tzn.": "to znaczy", "ul.": "ulica", "ok.": "około",
    },
    "pt": {
        "Sr.": "Senhor", "Sra.": "Senhora", "Dr.": "Doutor", "Dra.": "Doutora",
        "etc.": "et cetera", "p. ex.": "por exemplo",
    },
}  # fmt: skip

_SAINT = re.compile(r"\bSt\. (?=[A-Z])")
_STREET = re.compile(r"(?<=[a-z] )St\.(?= |,|$)")
_NUMBER_SIGN = re.compile(r"\bNo\. ?(?=\d)")


def expand_abbreviations(text: str, language: str) -> str:
    """`text` with the abbreviations of its language in full. A full stop that also ends the
    sentence is kept."""
    if language == "en":
        # "Baker St. John's house" is read as a saint: a name follows more often than a sentence.
        text = _SAINT.sub("Saint ", text)
        text = _STREET.sub("Street", text)
        text = _NUMBER_SIGN.sub("number ", text)
    pattern = _pattern(language)
    if pattern is None:
        return text
    spoken = _SPOKEN[language]

    def expand(match: re.Match[str]) -> str:
        found = match[0]
        words = spoken.get(found) or spoken[found[0].lower() + found[1:]]
        at_end = found.endswith(".") and match.end() == len(match.string)
        return words + "." if at_end else words

    return pattern.sub(expand, text)


@lru_cache(maxsize=64)
def _pattern(language: str) -> re.Pattern[str] | None:
    known = _SPOKEN.get(language)
    if not known:
        return None
    forms = set(known) | {form[0].upper() + form[1:] for form in known if len(form) > 3}
    longest_first = sorted(forms, key=len, reverse=True)
    return re.compile(rf"(?<![\w.])(?:{'|'.join(map(re.escape, longest_first))})(?!\w)")
