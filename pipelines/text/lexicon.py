"""Pronunciations of words: where they are in a text, and dictionaries of them as documents.

X-SAMPA: J. C. Wells, "Computer-coding the IPA" (1995). PLS: Pronunciation Lexicon Specification
1.0, https://www.w3.org/TR/pronunciation-lexicon/.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, Literal, Self
from xml.etree import ElementTree

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from configs.load import load_yaml
from pipelines.errors import InvalidRequest
from pipelines.text.markup import tokens_of

# Words, and each other sign by itself: also each letter of a script without spaces.
_TOKEN = re.compile(
    "(?:[^\\W\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]"
    "|[\u0300-\u036f\u0900-\u0dff])+|\\S"
)
_LANGUAGE, _CASE = "{urn:antiphon}language", "{urn:antiphon}case-sensitive"
_LANG = "{http://www.w3.org/XML/1998/namespace}lang"
_ALPHABETS = {"ipa": {"": ""}} | load_yaml(
    TypeAdapter(dict[str, dict[str, str]]), "phonetic_alphabets"
)
_SIGNS = {
    name: re.compile("|".join(map(re.escape, sorted(signs, key=len, reverse=True))))
    for name, signs in _ALPHABETS.items()
}
_STRESS = re.compile(r"([A-Z]+)([012])")  # of ARPABET, behind its vowel


def to_ipa(phonemes: str, alphabet: str) -> str:
    """Raises ValueError for another alphabet than `ipa` and those of the table, or without a
    sound."""
    if alphabet not in _ALPHABETS:
        raise ValueError(f"alphabet: {', '.join(_ALPHABETS)}")
    if alphabet == "cmu-arpabet":
        phonemes = _STRESS.sub(r"\2\1", phonemes)
    signs = _ALPHABETS[alphabet]
    phonemes = _SIGNS[alphabet].sub(lambda sign: signs[sign[0]], phonemes)
    if not any(map(str.isalpha, phonemes.strip("ˈˌː"))):
        raise ValueError("the phonemes have no sound")
    return phonemes


class Pronunciation(BaseModel):
    """How a word, or several words, are spoken: by phonemes, as other words, or both: then the
    other words are for voices that take no phonemes."""

    model_config = ConfigDict(strict=True)

    grapheme: str = Field(min_length=1, max_length=100, description="The word as it is written.")
    phoneme: str | None = Field(default=None, max_length=200)
    alphabet: Literal["ipa", "x-sampa"] = "ipa"
    alias: str | None = Field(default=None, max_length=200, description="What is read instead.")
    language: str | None = Field(
        default=None, pattern="^[a-z]{2,3}$", description="ISO 639-1; null for all."
    )
    case_sensitive: bool = True

    @property
    def ipa(self) -> str | None:
        return self.phoneme and to_ipa(self.phoneme, self.alphabet)

    @model_validator(mode="after")
    def _can_be_spoken(self) -> Self:
        if not (self.ipa or (self.alias and self.alias.strip())) or not self.grapheme.strip():
            raise ValueError("needs a grapheme, and a phoneme or an alias")
        return self


class Lexicon:
    """Finds the entries of dictionaries in texts: whole words, the longest first."""

    def __init__(self, entries: Iterable[Pronunciation]) -> None:
        """An entry comes before others of the same words that follow."""
        # By whether case counts, the words and the language.
        self._entries: dict[tuple[object, ...], tuple[int, Pronunciation]] = {}
        self._lengths: defaultdict[str, set[int]] = defaultdict(set)  # by first word, folded
        for number, entry in enumerate(entries):
            words = _TOKEN.findall(entry.grapheme)
            folded = [word.casefold() for word in words]
            form = tuple(words if entry.case_sensitive else folded)
            key = entry.case_sensitive, form, entry.language
            self._entries.setdefault(key, (number, entry))
            self._lengths[folded[0]].add(len(words))

    def find(self, text: str, language: str) -> Iterator[tuple[int, int, Pronunciation]]:
        """The start and end of each word that has an entry in that language, and the entry."""
        tokens = list(_TOKEN.finditer(text))
        words = [token[0] for token in tokens]
        folded, index = [word.casefold() for word in words], 0
        while index < len(tokens):
            for length in sorted(self._lengths.get(folded[index], ()), reverse=True):
                end = index + length
                forms = (True, tuple(words[index:end])), (False, tuple(folded[index:end]))
                keys = [(*form, one) for form in forms for one in (language, None)]
                if found := [self._entries[key] for key in keys if key in self._entries]:
                    entry = min(found, key=lambda one: one[0])[1]
                    yield tokens[index].start(), tokens[end - 1].end(), entry
                    index = end - 1
                    break
            index += 1


def read_pls(text: str) -> list[Pronunciation]:
    """The entries of a document, one for each grapheme. Raises InvalidRequest."""
    entries = list[Pronunciation]()
    for _ in tokens_of(text, "pls"):  # well-formed, and without a DTD
        pass
    root = ElementTree.fromstring(text.strip())
    for lexeme in root.iterfind("{*}lexeme"):
        phoneme, language = lexeme.find("{*}phoneme"), lexeme.get(_LANGUAGE, root.get(_LANG, ""))
        usual = root.get("alphabet", "ipa")
        values: dict[str, Any] = {
            "phoneme": None if phoneme is None else phoneme.text,
            "alphabet": usual if phoneme is None else phoneme.get("alphabet", usual),
            "alias": lexeme.findtext("{*}alias"),
            "language": language.partition("-")[0].lower() or None,
            "case_sensitive": lexeme.get(_CASE) != "false",
        }
        for grapheme in lexeme.iterfind("{*}grapheme"):
            try:
                entries.append(Pronunciation(grapheme=grapheme.text or "", **values))
            except ValidationError as error:
                fault = error.errors()[0]
                reason = fault["msg"].removeprefix("Value error, ")
                where = ["pls", repr(grapheme.text), *map(str, fault["loc"]), reason]
                raise InvalidRequest(": ".join(where)) from None
    return entries


def write_pls(entries: Iterable[Pronunciation]) -> str:
    """A document. What PLS has no attribute for is in attributes of another namespace."""
    namespace = "http://www.w3.org/2005/01/pronunciation-lexicon"
    root = ElementTree.Element("lexicon", {"version": "1.0", "alphabet": "ipa", _LANG: ""})
    root.set("xmlns", namespace)
    for one in entries:
        lexeme = ElementTree.SubElement(root, "lexeme", {_LANGUAGE: one.language or ""})
        lexeme.set(_CASE, str(one.case_sensitive).lower())
        ElementTree.SubElement(lexeme, "grapheme").text = one.grapheme
        if one.phoneme:
            phoneme = ElementTree.SubElement(lexeme, "phoneme", alphabet=one.alphabet)
            phoneme.text = one.phoneme
        if one.alias:
            ElementTree.SubElement(lexeme, "alias").text = one.alias
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode")
