"""Pronunciations of words: finds them in texts, and reads and writes dictionaries.

X-SAMPA: J. C. Wells, "Computer-coding the IPA" (1995). PLS: Pronunciation Lexicon Specification
1.0, https://www.w3.org/TR/pronunciation-lexicon/.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self
from unicodedata import normalize
from xml.etree import ElementTree

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from configs.load import load_yaml
from pipelines.errors import InvalidRequest
from pipelines.text.markup import NOT_XML, tokens_of

# A word, or a single other sign, such as a letter of a script without spaces.
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
_STRESS = re.compile(r"([A-Z]+)([012])")  # ARPABET marks stress behind the vowel


# Anything but decomposed IPA with its extensions, tones, brackets and marks between words, and the
# marks that keyboards have in their place.
_UNKNOWN = re.compile(
    "[^a-zæçðøħŋœβθχⁿǀ-ǃ\u0250-\u036f\u1d00-\u1dff\u2190-\u2199\ua700-\ua71f"
    r"\s.,:;'’‿|‖()/\[\]-]"
)
STORED = {"stored": True}
"""Validation context of entries that were saved before their signs were checked."""


def to_ipa(phonemes: str, alphabet: str) -> str:
    """Converts phonemes to IPA. Raises ValueError for an unknown alphabet or sign, or no sound."""
    ipa = convert(phonemes, alphabet)
    if not any(map(str.isalpha, ipa.strip("ˈˌː"))):
        raise ValueError("the phonemes have no sound")
    if unknown := dict.fromkeys(_UNKNOWN.findall(normalize("NFD", ipa))):
        raise ValueError(f"the phonemes have signs unknown in {alphabet}: {' '.join(unknown)}")
    return ipa


def convert(phonemes: str, alphabet: str) -> str:
    """Converts phonemes to IPA; other signs stay. Raises ValueError for an unknown alphabet."""
    if alphabet not in _ALPHABETS:
        raise ValueError(f"alphabet: {', '.join(_ALPHABETS)}")
    if alphabet == "cmu-arpabet":
        phonemes = _STRESS.sub(r"\2\1", phonemes)
    signs = _ALPHABETS[alphabet]
    return _SIGNS[alphabet].sub(lambda sign: signs[sign[0]], phonemes)


class Pronunciation(BaseModel):
    """The pronunciation of a word or phrase, as phonemes, other words, or both. With both, voices
    without phoneme support use the words."""

    model_config = ConfigDict(strict=True)

    grapheme: str = Field(min_length=1, max_length=100, description="Written word or phrase.")
    phoneme: str | None = Field(default=None, max_length=200)
    alphabet: Literal["ipa", "x-sampa"] = "ipa"
    alias: str | None = Field(default=None, max_length=200, description="Spoken words.")
    language: str | None = Field(
        default=None, pattern="^[a-z]{2,3}$", description="ISO 639-1 code; null for all languages."
    )
    case_sensitive: bool = True

    @property
    def ipa(self) -> str | None:
        return self.phoneme and convert(self.phoneme, self.alphabet)

    @model_validator(mode="after")
    def _can_be_spoken(self, info: ValidationInfo) -> Self:
        if self.phoneme and info.context is not STORED:
            to_ipa(self.phoneme, self.alphabet)
        if not (self.ipa or (self.alias and self.alias.strip())) or not self.grapheme.strip():
            raise ValueError("needs a grapheme, and a phoneme or an alias")
        return self


@dataclass(slots=True)
class _Node:
    """Node of a trie: the words that may follow, and the entries that end here, by language."""

    following: "dict[str, _Node]" = field(default_factory=dict)
    entries: dict[str | None, tuple[int, Pronunciation]] = field(default_factory=dict)


class Lexicon:
    """Dictionary entries that are found in texts: whole words, the longest first."""

    def __init__(self, entries: Iterable[Pronunciation]) -> None:
        """The first of several entries for the same words wins."""
        # Tries. A search reads a word once per word of the longest entry, so at most 100 times.
        self._exact = _Node()
        self._folded = _Node()
        for number, entry in enumerate(entries):
            node = self._exact if entry.case_sensitive else self._folded
            for word in _TOKEN.findall(entry.grapheme):
                form = word if entry.case_sensitive else word.casefold()
                node = node.following.setdefault(form, _Node())
            node.entries.setdefault(entry.language, (number, entry))

    def find(self, text: str, language: str) -> Iterator[tuple[int, int, Pronunciation]]:
        """Yields start and end of each word that has an entry in that language, and the entry."""
        tokens = list(_TOKEN.finditer(text))
        words = [token[0] for token in tokens]
        folded = [word.casefold() for word in words]
        index = 0
        while index < len(tokens):
            end = index + 1
            if (longest := self._longest(words, folded, index, language)) is not None:
                end, entry = longest
                yield tokens[index].start(), tokens[end - 1].end(), entry
            index = end

    def _longest(
        self, words: Sequence[str], folded: Sequence[str], start: int, language: str
    ) -> tuple[int, Pronunciation] | None:
        """Returns the longest entry that begins at the word `start`, and the index after it."""
        longest = None
        exact: _Node | None = self._exact
        any_case: _Node | None = self._folded
        for index in range(start, len(words)):
            exact = exact and exact.following.get(words[index])
            any_case = any_case and any_case.following.get(folded[index])
            nodes = [node for node in (exact, any_case) if node is not None]
            if not nodes:
                break
            entries = [node.entries.get(code) for node in nodes for code in (language, None)]
            if matches := [numbered for numbered in entries if numbered is not None]:
                _, entry = min(matches, key=lambda numbered: numbered[0])
                longest = index + 1, entry
        return longest


def read_pls(text: str) -> list[Pronunciation]:
    """Reads the entries of a document, one for each grapheme. Raises InvalidRequest."""
    entries = list[Pronunciation]()
    for _ in tokens_of(text, "pls"):  # checks that it is well-formed and has no DTD
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
    """Writes a document; attributes that PLS lacks are in another namespace."""
    namespace = "http://www.w3.org/2005/01/pronunciation-lexicon"
    root = ElementTree.Element("lexicon", {"version": "1.0", "alphabet": "ipa", _LANG: ""})
    root.set("xmlns", namespace)
    for entry in entries:
        lexeme = ElementTree.SubElement(root, "lexeme", {_LANGUAGE: entry.language or ""})
        lexeme.set(_CASE, str(entry.case_sensitive).lower())
        ElementTree.SubElement(lexeme, "grapheme").text = entry.grapheme
        if entry.phoneme:
            phoneme = ElementTree.SubElement(lexeme, "phoneme", alphabet=entry.alphabet)
            phoneme.text = entry.phoneme
        if entry.alias:
            ElementTree.SubElement(lexeme, "alias").text = entry.alias
    ElementTree.indent(root)
    return NOT_XML.sub("", ElementTree.tostring(root, encoding="unicode"))
