"""Language codes and names: ISO 639, Whisper's codes, and the names of the CLDR (by Babel); and the
grades of languages and voices, by the character error rate of a recogniser."""

from dataclasses import dataclass
from typing import Literal

from babel import Locale, UnknownLocaleError
from babel.core import get_global

from configs.schema.languages import language_words
from models.base import Accent

# Codes of Whisper that have another code in the CLDR.
_CLDR_CODES = {"jw": "jv", "no": "nb", "tl": "fil"}
_ENGINE_CODES = {cldr: code for code, cldr in _CLDR_CODES.items()}
# English names that are more usual than those of the CLDR.
_USUAL_NAMES = {"bn": "Bengali"}
# Codes of Whisper that ISO 639 withdrew.
_ISO_CODES = {"jw": "jv"}
_ENGLISH_ACCENTS: dict[str, Accent] = {"gb": "British", "uk": "British", "us": "American"}


Grade = Literal["good", "fair", "weak"]
GOOD, FAIR = 20.0, 50.0  # highest error rate of each grade, in percent


@dataclass(frozen=True, slots=True)
class LanguageNames:
    code: str  # ISO 639-1; 639-3 where there is no shorter one
    name: str  # English
    native_name: str  # name in the language's own script


def name_language(code: str) -> LanguageNames:
    """Returns the names of a language; the code itself where the CLDR has none."""
    cldr = _CLDR_CODES.get(code, code)
    names = Locale("en").languages
    name = _USUAL_NAMES.get(code) or names.get(code) or names.get(cldr) or code
    native = language_words(code).native_name
    if native is None:
        try:
            native = Locale.parse(cldr).get_language_name(cldr)
        except (UnknownLocaleError, ValueError):
            native = None
    return LanguageNames(iso_code(code), name, native or name)


def iso_code(code: str) -> str:
    """Returns the ISO code that callers get for an engine's code."""
    return _ISO_CODES.get(code, code)


def engine_codes(code: str) -> tuple[str, ...]:
    """Lists engines' codes of the language that a caller names, such as en for en-US and eng."""
    code = code.strip().lower().replace("_", "-")
    language = code.partition("-")[0]
    # Codes of three letters that have a shorter one, and codes that ISO 639 replaced.
    short = get_global("language_aliases").get(language, language).partition("_")[0]
    engine_code = _ENGINE_CODES.get(language)
    others = (_ENGINE_CODES.get(short), _CLDR_CODES.get(short))
    candidates = (code, language, engine_code, short, *others)
    return tuple(dict.fromkeys(name for name in candidates if name is not None))


def accent_of(code: str) -> Accent | None:
    """Returns the accent that the region of a code names; None without a region."""
    language, _, region = code.strip().lower().replace("_", "-").partition("-")
    if "en" not in engine_codes(language):
        return None
    return _ENGLISH_ACCENTS.get(region.rpartition("-")[2])


def is_language(code: str) -> bool:
    """Whether `code` is a language code of any known kind."""
    names = Locale("en").languages
    return any(candidate in names for candidate in engine_codes(code))


def grade_of(character_errors: float | None) -> Grade | None:
    """Returns the grade of an error rate in percent; None for a rate that was not measured."""
    if character_errors is None:
        return None
    return "good" if character_errors <= GOOD else "fair" if character_errors <= FAIR else "weak"
