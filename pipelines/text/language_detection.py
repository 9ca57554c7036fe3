"""Language detection: by the script where it settles the language, else by n-grams (lingua).

Source: https://github.com/pemistahl/lingua-rs.

Measured on 2 cores: the small n-gram models take 14 MB and load in 0.1 s; the full ones take
200 MB and 1 to 3 s, so they are loaded by the first text that needs them.
"""

import re
from collections import Counter
from collections.abc import Set
from functools import lru_cache
from pathlib import Path

from lingua import Language, LanguageDetector, LanguageDetectorBuilder
from pydantic import TypeAdapter

from configs.load import load_yaml

SAMPLE_CHARACTERS = 1000  # enough to decide; keeps 5,000 characters as cheap as 1,000
FALLBACK = "en"

_SCRIPTS = load_yaml(
    TypeAdapter(tuple[tuple[int, int, tuple[str, ...]], ...]),
    str(Path(__file__).with_name("scripts.yaml")),
)
_LATIN: tuple[str, ...] = ()

PARAGRAPH_SAMPLE = 400  # characters; a paragraph is in one language
_LETTERS = 20  # fewer do not show another language of the same script
_LETTERS_OF_SCRIPT = 12  # fewer Latin ones are a name or "OK" within another script
_KANA = 3  # fewer are ornamental
_CLEARLY = 0.9  # share for which the small models' answer replaces the expected language

_SURE = 0.85  # from this share on the small models' answer is final, for enough letters
_ENOUGH = 60  # with fewer they are sure of "Your code is" in German
_LEAST = 0.25  # under this share no language is likelier than English
# A language must be so much likelier than the usual where the models agree, and where they do not.
_AGREED, _MARGIN = 2.0, 3.0
# Of 300 pieces of English pages with 2, 3, 4 and 6 words 29, 37, 19 and 19 were taken for another
# language without these rules, and 6, 9, 4 and 3 are with them; three words of 56 sentences in
# seven other languages were right in 48 cases, and are in 50.
_NO_EVIDENCE = re.compile(r"(?<!\S)\S*(?:\d|://|www\.|@)\S*|\b[A-Z]{2,}\b")


def detect_language(text: str, offered: Set[str]) -> str:
    """The ISO 639-1 code of `text`, one of `offered`; English when undecided (or the first
    code offered, where English is not). Blocking: 0.1 ms a call once the models are loaded.
    """
    fallback = FALLBACK if FALLBACK in offered or not offered else min(offered)
    sample = text[:SAMPLE_CHARACTERS]
    script = _script_languages(sample)
    if script is None:
        return fallback
    if script == _LATIN:
        return _by_ngrams(sample, _latin_codes(frozenset(offered)), fallback)
    candidates = tuple(code for code in script if code in offered)
    if not candidates:
        return fallback
    if "ja" in offered and _kana(sample):
        return "ja"
    if candidates[0] == "zh":
        return "zh"
    return _by_ngrams(sample, candidates, candidates[0])


def paragraph_language(text: str, offered: Set[str], expected: str) -> str:
    """The language that one paragraph is spoken in.

    `expected` is that of the voice: it stands unless the paragraph is clearly in another one of
    `offered`, by its script or by enough letters that leave no doubt. A word in another script
    than the Latin one settles it: its own language reads Latin words too, English not those.
    """
    sample = text[:PARAGRAPH_SAMPLE]
    script = _script_languages(sample)
    if script is None:
        return expected
    if expected in ("ja", "zh") and {"ja", "zh"} >= set(script):
        return _chinese_or_japanese(sample, offered, expected)
    if script == _expected_script(expected):
        return _clear_latin(sample, offered, expected) if script == _LATIN else expected
    candidates = _latin_codes(frozenset(offered)) if script == _LATIN else script
    if offered.isdisjoint(candidates) or expected in candidates:
        return expected
    if script != _LATIN:
        return detect_language(sample, offered)
    if any(_script_of(ord(letter)) == _expected_script(expected) for letter in sample):
        return expected
    if sum(map(str.isalpha, sample)) < _LETTERS_OF_SCRIPT:
        return expected
    likely = FALLBACK if FALLBACK in candidates else detect_language(sample, frozenset(candidates))
    return _clear_latin(sample, offered, likely)


def _chinese_or_japanese(text: str, offered: Set[str], usual: str) -> str:
    """By the kana: Chinese has almost none, and every longer Japanese text has some."""
    kana = _kana(text)
    if usual == "zh":
        return "ja" if kana >= _KANA and "ja" in offered else usual
    long = sum(map(str.isalpha, text)) >= _LETTERS_OF_SCRIPT
    return "zh" if not kana and long and "zh" in offered else usual


def _clear_latin(text: str, offered: Set[str], usual: str) -> str:
    """`usual`, unless the text without its names is clearly in another language."""
    # The words in lower case: names are no evidence of the language of a text.
    words = (word for word in text.split() if word.lstrip("\"'“‘«„([¿¡")[:1].islower())
    plain = " ".join(words)
    if len(offered) < 2 or sum(map(str.isalpha, plain)) < _LETTERS:
        return usual
    candidates = _latin_codes(frozenset(offered | {usual}))
    found, share, _ = _likeliest(text, candidates, usual, small=True)
    if found == usual or found not in offered or share < _CLEARLY:
        return usual
    return found if _likeliest(plain, candidates, usual, small=True)[0] == found else usual


@lru_cache(maxsize=64)
def _expected_script(language: str) -> tuple[str, ...]:
    return next((codes for _, _, codes in _SCRIPTS if language in codes), _LATIN)


def _script_languages(text: str) -> tuple[str, ...] | None:
    """The languages of the script with most letters; `_LATIN`, or None where there is none."""
    counts = Counter(_script_of(ord(character)) for character in text if character.isalpha())
    return counts.most_common(1)[0][0] if counts else None


@lru_cache(maxsize=4096)
def _script_of(code_point: int) -> tuple[str, ...]:
    for first, last, languages in _SCRIPTS:
        if first <= code_point <= last:
            return languages
    return _LATIN


def _kana(text: str) -> int:
    return sum("\u3040" <= character <= "\u30ff" for character in text)


@lru_cache(maxsize=16)
def _latin_codes(offered: frozenset[str]) -> tuple[str, ...]:
    latin = {language.iso_code_639_1.name.lower() for language in Language.all_with_latin_script()}
    return tuple(sorted(latin & offered))


def _by_ngrams(text: str, candidates: tuple[str, ...], usual: str) -> str:
    """The likeliest of `candidates`; `usual` where the evidence is thin."""
    if len(candidates) < 2:
        return candidates[0] if candidates else usual
    text = text if text.isupper() else _NO_EVIDENCE.sub(" ", text)
    letters = sum(map(str.isalpha, text))
    if text.isascii() and letters < 4:
        return usual
    quick, share, _ = _likeliest(text, candidates, usual, small=True)
    if share >= _SURE and letters >= _ENOUGH and (usual == FALLBACK or quick == usual):
        return quick
    best, share, usual_share = _likeliest(text, candidates, usual, small=False)
    if best == quick and usual == FALLBACK:
        return best if share >= _AGREED * usual_share else usual
    return best if share >= max(_LEAST, _MARGIN * usual_share) else usual


def _likeliest(
    text: str, candidates: tuple[str, ...], usual: str, *, small: bool
) -> tuple[str, float, float]:
    """The likeliest code, its share of the evidence, and that of the usual language."""
    shares = {
        value.language.iso_code_639_1.name.lower(): value.value
        for value in _detector(candidates, small).compute_language_confidence_values(text)
    }
    usual_share = shares.get(usual, 0.0)
    best = max(shares, key=lambda code: shares[code], default=usual)
    if shares.get(best, 0.0) <= usual_share:
        best = usual
    return best, shares.get(best, 0.0), usual_share


@lru_cache(maxsize=16)
def _detector(candidates: tuple[str, ...], small: bool) -> LanguageDetector:
    known = {language.iso_code_639_1.name.lower(): language for language in Language.all()}
    languages = [known[code] for code in candidates if code in known]
    builder = LanguageDetectorBuilder.from_languages(*languages)
    return (builder.with_low_accuracy_mode() if small else builder).build()
