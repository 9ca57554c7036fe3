"""The languages that are understood, under the names that people give them."""

from dataclasses import dataclass

from babel import Locale, UnknownLocaleError

# Codes of Whisper that CLDR knows under another one.
_CLDR_CODES = {"jw": "jv", "no": "nb", "tl": "fil"}
_ENGINE_CODES = {cldr: code for code, cldr in _CLDR_CODES.items()}
# Codes of Whisper that ISO 639 withdrew.
_ISO_CODES = {"jw": "jv"}
# What CLDR does not name in the language itself, or not at all.
_NATIVE_NAMES = {
    "ba": "Башҡортса",
    "haw": "ʻŌlelo Hawaiʻi",
    "ht": "Kreyòl ayisyen",
    "la": "Latina",
    "mi": "Māori",
    "no": "norsk",
    "oc": "Occitan",
    "sa": "संस्कृतम्",
    "sn": "chiShona",
    "su": "Basa Sunda",
    "tk": "Türkmençe",
    "tl": "Tagalog",
    "yi": "ייִדיש",
}


@dataclass(frozen=True, slots=True)
class LanguageNames:
    code: str  # ISO 639-1; 639-3 where there is no shorter one
    name: str  # English
    native_name: str  # in the language's own script


def name_language(code: str) -> LanguageNames:
    """Both names of a language; the code itself where nobody knows better."""
    cldr = _CLDR_CODES.get(code, code)
    name = Locale("en").languages.get(code) or Locale("en").languages.get(cldr) or code
    native = _NATIVE_NAMES.get(code)
    if native is None:
        try:
            native = Locale.parse(cldr).get_language_name(cldr)
        except (UnknownLocaleError, ValueError):
            native = None
    return LanguageNames(iso_code(code), name, native or name)


def iso_code(code: str) -> str:
    """What callers are told for the code of an engine."""
    return _ISO_CODES.get(code, code)


def engine_codes(code: str) -> tuple[str, ...]:
    """What an engine may call the language that a caller names, such as en for en-US."""
    code = code.strip().lower().replace("_", "-")
    language = code.partition("-")[0]
    return code, language, _ENGINE_CODES.get(language, language)
