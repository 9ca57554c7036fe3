"""Language detection by script, then by common words, then by n-grams (lingua).

Each is used where the one before does not settle the language. Names, brands and loan words are no
evidence: a word counts only if it is common in a language, and a capitalised one only at the start
of a sentence.

Source: https://github.com/pemistahl/lingua-rs.

Measured on 2 cores: the small n-gram models take 14 MB and load in 0.1 s; the full ones of the
eight languages with Latin letters that the usual voices speak take 220 MB and 1 to 3 s, so each is
loaded, once a process, by the first text that needs it.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Set
from functools import lru_cache
from itertools import zip_longest

from lingua import Language, LanguageDetector, LanguageDetectorBuilder
from pydantic import TypeAdapter

from configs.load import load_yaml
from configs.schema.languages import Words
from models.scripts import SCRIPTS, letters_outside

SAMPLE_CHARACTERS = 1000  # enough to decide; keeps 5,000 characters as cheap as 1,000
FALLBACK = "en"

_LATIN: tuple[str, ...] = ()

_COMMON_WORDS = load_yaml(TypeAdapter(dict[str, Words]), "common_words")
RECOGNISED = frozenset({*_COMMON_WORDS, *(code for _, _, codes in SCRIPTS for code in codes)})
"""ISO 639-1 codes of languages that can be told from others, whether a voice speaks them or not."""
BY_NGRAMS = frozenset(language.iso_code_639_1.name.lower() for language in Language.all())
"""ISO 639-1 codes of the languages of the n-gram models."""
_LANGUAGES_OF: dict[str, tuple[str, ...]] = {
    word: tuple(code for code, words in _COMMON_WORDS.items() if word in words)
    for word in frozenset[str]().union(*_COMMON_WORDS.values())
}
_LETTERS = r"(?:[^\W\d_]|[\u0900-\u0963])++"  # Devanagari with its vowel signs
_WORD = re.compile(rf"{_LETTERS}(?:(?:'|-(?={_LETTERS}))(?:{_LETTERS})?)*+(?!/)")
_OPENERS = " \t\"'“‘«„([¿¡*_#>-–—"
_SENTENCE_ENDS = ("", *".!?:;…\n")
_NAME = re.compile(r"(?<=[\w&][ ,;'’-])[A-ZÀ-ÖØ-ÞĀ-Ž]\w*")  # within a sentence
_PARTICLES = frozenset(  # small words inside names
    "af al am and at av by da das de del della den der des di do dos du e el en for from i la las"
    " le les lo los nad of on pod sur ter the van vom von y zu zum zur".split()
)
_MOST = 0.75  # with a smaller share of common words, the text may be in a language without a table
_WORDS = 3  # fewer in lower case may be loan words
# Lead in words that a language needs over the fallback, and over the language of a conversation.
_LEAD, _CERTAIN_LEAD = 0.5, 1.5
_GREETING, _PART_OF_NAME = 0.5, 0.25  # weights of "Thanks" and "Los" before a name

# Endings and letters that only one of the languages of Devanagari has: of cases, plurals and verbs
# (R. Pandharipande, "Marathi"; Y. Kachru, "Hindi").
_DEVANAGARI = re.compile("[\u0900-\u097f]")
_FORMS = {
    "mr": re.compile(
        "ळ|.(?:च्या|[चल]ा|च[ीें]|[लनतस]ो?स|ां(?:नी|ना|त)|ून|ात|ाने|णार|णे|शी|वर|साठी|मध्ये|ल्या|लेले|ले|ली|तो|ते|ही|"
        "या|ील)$"
    ),
    "hi": re.compile("\u093c|ँ|.(?:ों|ें|े?ग[ाीे]|ेंगे|ना|कर|ाई|ियां|ाओ|ाते)$"),
}
_FORM = 0.5  # weight of such a form

PARAGRAPH_SAMPLE = 400  # characters; a paragraph is in one language
_LEAST_LETTERS = 20  # fewer do not show another language of the same script
_LETTERS_OF_SCRIPT = 12  # fewer Latin ones are a name or "OK" within another script
_LETTERS_A_WORD = 4
_KANA = 3  # fewer are ornamental
_CLEARLY = 0.9  # share for which the small models' answer replaces the expected language

_ENOUGH = 60  # letters; with fewer, the small models are sure that "Your code is" is German
_LEAST = 0.25  # share that a language needs to replace the usual one
_MARGIN = 3.0  # how many times likelier than the usual one it must be
_NO_EVIDENCE = re.compile(r"(?<!\S)\S*(?:\d|://|www\.|@)\S*|\b[A-Z]{2,}\b")


def detect_language(text: str, offered: Set[str], usual: str | None = None) -> str:
    """Detects the language of `text`, as an ISO 639-1 code of `offered`.

    When undecided it is `usual`, else English (or the first code offered, where English is not).
    Blocking: 0.1 ms a call once the models are loaded.
    """
    lead = _CERTAIN_LEAD if usual in offered else _LEAD
    fallback = FALLBACK if FALLBACK in offered or not offered else min(offered)
    if usual and usual in offered:
        fallback = usual
    sample = text[:SAMPLE_CHARACTERS]
    script = _script_languages(sample)
    if script is None:
        return fallback
    if script == _LATIN:
        return _by_words(sample, _latin_codes(frozenset(offered)), fallback, lead)
    candidates = tuple(code for code in script if code in offered)
    if not candidates:  # the letters that voices can read decide
        rest = letters_outside(frozenset(offered)).sub(" ", sample)
        return fallback if rest == sample else detect_language(rest, offered, usual)
    if "ja" in offered and _kana(sample):
        return "ja"
    if candidates[0] == "zh":
        return "zh"
    return _by_words(sample, candidates, fallback if fallback in candidates else "", lead)


def paragraph_language(text: str, offered: Set[str], expected: str) -> str:
    """Decides in which language a paragraph is spoken.

    `expected`, the language of the voice, stands unless the paragraph is clearly in another of
    `offered`, by its script or by enough letters. A word in a script other than Latin settles it:
    its language reads Latin words too, but English does not read its words.
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
    if any(script_languages(letter) == _expected_script(expected) for letter in sample):
        return expected
    if sum(map(str.isalpha, sample)) < _LETTERS_OF_SCRIPT:
        return expected
    likely = FALLBACK if FALLBACK in candidates else detect_language(sample, frozenset(candidates))
    return _clear_latin(sample, offered, likely)


def language_of_letters(text: str) -> str:
    """Detects the language of a text, as an ISO 639-1 code, among all languages of the script of
    its letters; empty for Latin letters and unknown scripts. Blocking."""
    script = _script_languages(text)
    return detect_language(text, frozenset(script), script[0]) if script else ""


def shares_script(language: str, other: str) -> bool:
    """Whether a voice of `other` reads the letters of `language`."""
    script = _expected_script(language)
    return script == _LATIN or other in script


@lru_cache(maxsize=256)
def runs_outside(languages: frozenset[str]) -> re.Pattern[str]:
    """Matches a run of letters that `languages` do not read.

    It includes marks after it, adjoining digits, and all up to a near end of the line if no other
    letter is between.
    """
    letter, between = letters_outside(languages).pattern, r"[\W\d_]*+"
    edges = rf"(?:^{between}|(?<!\d)\d*+)", rf"(?:{between}$|[^\w\s]*+)"
    return re.compile(rf"{edges[0]}{letter}(?:{between}{letter})*+{edges[1]}")


def _chinese_or_japanese(text: str, offered: Set[str], usual: str) -> str:
    """Decides by the kana: Chinese has almost none, every longer Japanese text has some."""
    kana = _kana(text)
    if usual == "zh":
        return "ja" if kana >= _KANA and "ja" in offered else usual
    long = sum(map(str.isalpha, text)) >= _LETTERS_OF_SCRIPT
    return "zh" if not kana and long and "zh" in offered else usual


def _clear_latin(text: str, offered: Set[str], usual: str) -> str:
    """Returns `usual`, unless the text without its names is clearly in another language."""
    plain = _NAME.sub("", text)
    if len(offered) < 2 or sum(map(str.isalpha, plain)) < _LEAST_LETTERS:
        return usual
    candidates = _latin_codes(frozenset(offered | {usual}))
    counts, has_words = _evidence(text), _COMMON_WORDS.keys() >= set(candidates)
    if has_words and counts[usual] == max(counts.values()):
        return usual
    likeliest, share, _ = _likeliest(text, candidates, usual, small=True)
    if likeliest == usual or likeliest not in offered or share < _CLEARLY:
        return usual
    if has_words:
        return likeliest if counts[likeliest] > counts[usual] else usual
    return likeliest if _likeliest(plain, candidates, usual, small=True)[0] == likeliest else usual


@lru_cache(maxsize=64)
def _expected_script(language: str) -> tuple[str, ...]:
    return next((codes for _, _, codes in SCRIPTS if language in codes), _LATIN)


def _script_languages(text: str) -> tuple[str, ...] | None:
    """Languages of the script with most letters; None without letters.

    Latin words among those of another script count as names and terms, unless as many of them are
    common words as there are words in the other script.
    """
    counts = Counter(script_languages(character) for character in text if character.isalpha())
    scripts = [script for script, _ in counts.most_common(2)]
    if len(scripts) > 1 and scripts[0] == _LATIN:
        other, common = scripts[1], _evidence(text)
        words = max((count for code, count in common.items() if code not in other), default=0.0)
        if words < counts[other] / _LETTERS_A_WORD:
            return other
    return scripts[0] if scripts else None


@lru_cache(maxsize=4096)
def script_languages(letter: str) -> tuple[str, ...]:
    """Languages of the script of a letter."""
    for first, last, languages in SCRIPTS:
        if first <= ord(letter) <= last:
            return languages
    return _LATIN


def _kana(text: str) -> int:
    return sum("\u3040" <= character <= "\u30ff" for character in text)


@lru_cache(maxsize=16)
def _latin_codes(offered: frozenset[str]) -> tuple[str, ...]:
    latin = {language.iso_code_639_1.name.lower() for language in Language.all_with_latin_script()}
    return tuple(sorted(latin & offered))


def _evidence(text: str) -> defaultdict[str, float]:
    """Counts the common words of each language in a text; parts of names weigh little."""
    counts = defaultdict[str, float](float)
    text = (text if text.isupper() else _NO_EVIDENCE.sub(" ", text)).replace("’", "'")
    words = list(_WORD.finditer(text.lower() if text.isupper() else text))
    after_name = False
    for word, following in zip_longest(words, words[1:]):
        written, weight = word[0], 1.0
        is_before_name = following is not None and following[0][0].isupper()
        if written[0].isupper() and written not in _LANGUAGES_OF:
            written = written.lower()
            is_within = text[: word.start()].rstrip(_OPENERS)[-1:] not in _SENTENCE_ENDS
            after_name = is_within or written not in _LANGUAGES_OF
            if is_within:
                continue
            if is_before_name:
                weight = _GREETING if len(written) > 3 else _PART_OF_NAME
        elif after_name and (after_name := written in _PARTICLES):
            weight = _PART_OF_NAME
        languages = _LANGUAGES_OF.get(written, ())
        if not languages and "'" in written:
            elided, _, rest = written.partition("'")
            languages = _LANGUAGES_OF.get(elided + "'") or _LANGUAGES_OF.get(rest, ())
        for language in languages:
            counts[language] += weight
        if not languages and _DEVANAGARI.match(written):
            for language, forms in _FORMS.items():
                counts[language] += _FORM * (forms.search(written) is not None)
    return counts


def _by_words(text: str, candidates: tuple[str, ...], usual: str, lead: float) -> str:
    """Chooses the candidate with most common words; n-grams decide between equal ones.

    `usual` stands unless another one has `lead` more.
    """
    counts = _evidence(text)
    most = max((counts[code] for code in candidates), default=0.0)
    # The text may be in a candidate without a table, unless most of its words are common.
    if not _COMMON_WORDS.keys() >= set(candidates) and most < _MOST * len(_WORD.findall(text)):
        return _by_ngrams(text, candidates, usual or candidates[0])
    leading = tuple(code for code in candidates if counts[code] == most)
    if leading == (usual,) or most - counts[usual] >= lead:
        return _by_ngrams(text, leading, "")
    plain = _NAME.sub("", text)
    if len(set(_WORD.findall(plain)) - _PARTICLES) < _WORDS:
        return usual or candidates[0]
    return _by_ngrams(plain, tuple(sorted({*leading, usual} - {""})), usual)


def _by_ngrams(text: str, candidates: tuple[str, ...], usual: str) -> str:
    """Chooses the likeliest of `candidates`; `usual` where the evidence is thin."""
    if len(candidates) < 2:
        return candidates[0] if candidates else usual
    text = text if text.isupper() else _NO_EVIDENCE.sub(" ", text)
    letters = sum(map(str.isalpha, text))
    if text.isascii() and letters < 4:
        return usual or candidates[0]
    small = letters >= _ENOUGH
    best, share, usual_share = _likeliest(text, candidates, usual, small=small)
    return best if share >= max(_LEAST, _MARGIN * usual_share) else usual or best


def _likeliest(
    text: str, candidates: tuple[str, ...], usual: str, *, small: bool
) -> tuple[str, float, float]:
    """Returns the likeliest code, its share of the evidence, and that of the usual language."""
    shares = {
        value.language.iso_code_639_1.name.lower(): value.value
        for value in _detector(candidates, small).compute_language_confidence_values(text)
    }
    best = max((usual, *shares), key=lambda code: shares.get(code, 0.0))
    return best, shares.get(best, 0.0), shares.get(usual, 0.0)


@lru_cache(maxsize=256)
def _detector(candidates: tuple[str, ...], small: bool) -> LanguageDetector:
    by_code = {language.iso_code_639_1.name.lower(): language for language in Language.all()}
    languages = [by_code[code] for code in candidates if code in by_code]
    builder = LanguageDetectorBuilder.from_languages(*languages)
    return (builder.with_low_accuracy_mode() if small else builder).build()
