"""Keeps a transcript in the scripts of its language.

Whisper writes languages that it has hardly learnt in the letters of others: Hindi in those of Urdu,
Telugu in those of Kannada. CTranslate2 forbids tokens for a whole call, whatever comes before them,
and a token is some bytes, often a part of a letter. So a token is forbidden only if it can neither
begin nor continue a letter of the scripts, and foreign letters that are written byte by byte are
dropped from the text.
"""

import re
from collections.abc import Callable
from functools import cache

from tokenizers import Tokenizer

from models.scripts import ANYWHERE, SCRIPTS, letters_of
from models.stt.whisper.indian_scripts import INDIAN, in_own_script

# The vocabulary writes printable bytes as themselves, and others as letters from 256 on.
_PRINTABLE = [*range(33, 127), *range(161, 173), *range(174, 256)]
_OTHERS = [byte for byte in range(256) if byte not in _PRINTABLE]
_BYTES = {chr(byte): byte for byte in _PRINTABLE}
_BYTES |= {chr(256 + number): byte for number, byte in enumerate(_OTHERS)}

_ALL_SCRIPTS = letters_of(frozenset(code for *_, codes in SCRIPTS for code in codes))
_CHARACTERS = "".join(map(chr, [*range(0x80, 0xD800), *range(0xE000, 0x20000)]))
_CONTINUING = bytes(range(0x80, 0xC0))  # of a character that an earlier token began


def _own_letters(language: str) -> str:
    """Those of its scripts, and for a language of India those of its sisters, which are moved."""
    return letters_of(INDIAN if language in INDIAN else frozenset({language}))


@cache
def foreign_letters(language: str) -> re.Pattern[str] | None:
    """Matches a letter or mark of another script, and a letter that is incomplete; None for
    languages in the Latin script, which keep the names of others as they are."""
    own = _own_letters(language)
    if not own:
        return None
    return re.compile(rf"(?![{ANYWHERE}{own}])(?:[{_ALL_SCRIPTS}\ufffd]|[^\W\d_])")


def writer_of(text: str, language: str) -> Callable[[str], str]:
    """Writes the words of a text in the scripts of its language: without the letters of others and,
    in India, without Latin ones if most letters of the text are not of the script."""
    foreign = foreign_letters(language)
    if foreign is None:
        return str
    own = re.compile(f"[{letters_of(frozenset({language}))}]")
    others = sum(letter.isalpha() and own.match(letter) is None for letter in foreign.sub("", text))
    is_by_sound = len(own.findall(text)) < others

    def write(words: str) -> str:
        words = re.sub(" {2,}", " ", foreign.sub("", words))
        if language not in INDIAN:
            return words
        return in_own_script(words, language, is_by_sound=is_by_sound)

    return write


class ScriptTokens:
    """The tokens of a vocabulary that a language forbids."""

    def __init__(self, vocabulary: Tokenizer) -> None:
        tokens = vocabulary.get_vocab(with_added_tokens=False)
        pieces = {tokens[one]: bytes(map(_BYTES.__getitem__, one)) for one in tokens}
        self._pieces = {number: piece for number, piece in pieces.items() if not piece.isascii()}
        self._forbidden: dict[str, tuple[int, ...]] = {}

    def forbidden(self, language: str) -> tuple[int, ...]:
        own = _own_letters(language)
        if own not in self._forbidden:
            self._forbidden[own] = self._find(own, foreign_letters(language))
        return self._forbidden[own]

    def _find(self, own: str, foreign: re.Pattern[str] | None) -> tuple[int, ...]:
        if foreign is None:
            return ()
        letters = [one.encode() for one in re.findall(f"[{ANYWHERE}{own}]", _CHARACTERS)]
        begun = {letter[:end] for letter in letters for end in range(1, len(letter))}
        continued = {
            letter[start:end]
            for letter in letters
            for start in range(1, len(letter))
            for end in range(start + 1, len(letter) + 1)
        }

        def is_native(piece: bytes) -> bool:
            body = piece.lstrip(_CONTINUING)
            head, text = piece[: len(piece) - len(body)], body.decode(errors="ignore")
            tail = body[len(text.encode()) :]
            return (
                (not head or head in continued)
                and foreign.search(text) is None
                and (not tail or tail in begun)
            )

        return tuple(number for number, piece in self._pieces.items() if not is_native(piece))
