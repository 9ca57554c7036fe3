"""Keeps a transcript in the scripts of its language.

Whisper writes languages that it has hardly learnt in the script of another: Hindi in that of Urdu,
Telugu in that of Kannada. CTranslate2 can forbid tokens, but only for a whole call, and a token is
a few bytes, often a part of a letter. So a token is forbidden if it can neither begin nor continue
a letter of the language's scripts. Foreign letters that are still written, byte by byte, are
dropped from the text.
"""

import re
from collections.abc import Callable
from functools import cache

from tokenizers import Tokenizer

from models.scripts import ANYWHERE, SCRIPTS, letters_of
from models.stt.whisper.indian_scripts import INDIAN, in_own_script

# The vocabulary writes a printable byte as itself, and any other byte as a character from 256 on.
_PRINTABLE = [*range(33, 127), *range(161, 173), *range(174, 256)]
_OTHERS = [byte for byte in range(256) if byte not in _PRINTABLE]
_BYTES = {chr(byte): byte for byte in _PRINTABLE}
_BYTES |= {chr(256 + number): byte for number, byte in enumerate(_OTHERS)}

_ALL_SCRIPTS = letters_of(frozenset(code for *_, codes in SCRIPTS for code in codes))
_CHARACTERS = "".join(map(chr, [*range(0x80, 0xD800), *range(0xE000, 0x20000)]))
_CONTINUATION = bytes(range(0x80, 0xC0))  # bytes of UTF-8 that continue a character


def _own_letters(language: str) -> str:
    """Returns the letters of a language's scripts; for a language of India those of all Indian
    scripts, since `in_own_script` converts them."""
    return letters_of(INDIAN if language in INDIAN else frozenset({language}))


@cache
def foreign_letters(language: str) -> re.Pattern[str] | None:
    """Returns an expression for a letter or mark of another script, or an incomplete letter.
    Returns None for languages in the Latin script, which keep foreign names as they are."""
    own = _own_letters(language)
    if not own:
        return None
    return re.compile(rf"(?![{ANYWHERE}{own}])(?:[{_ALL_SCRIPTS}\ufffd]|[^\W\d_])")


def writer_of(text: str, language: str) -> Callable[[str], str]:
    """Returns a function that converts parts of a text to the scripts of its language. It drops
    foreign letters. In languages of India it also converts Latin letters, if most letters of the
    text are not of the script."""
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
    """Finds the tokens of a vocabulary that cannot occur in the scripts of a language."""

    def __init__(self, vocabulary: Tokenizer) -> None:
        ids = vocabulary.get_vocab(with_added_tokens=False)
        pieces = {ids[token]: bytes(map(_BYTES.__getitem__, token)) for token in ids}
        self._pieces = {number: piece for number, piece in pieces.items() if not piece.isascii()}
        self._forbidden: dict[str, tuple[int, ...]] = {}

    def forbidden(self, language: str) -> tuple[int, ...]:
        """Returns the ids of the tokens that the language forbids."""
        own = _own_letters(language)
        if own not in self._forbidden:
            self._forbidden[own] = self._find(own, foreign_letters(language))
        return self._forbidden[own]

    def _find(self, own: str, foreign: re.Pattern[str] | None) -> tuple[int, ...]:
        if foreign is None:
            return ()
        letters = [letter.encode() for letter in re.findall(f"[{ANYWHERE}{own}]", _CHARACTERS)]
        beginnings = {letter[:end] for letter in letters for end in range(1, len(letter))}
        continuations = {
            letter[start:end]
            for letter in letters
            for start in range(1, len(letter))
            for end in range(start + 1, len(letter) + 1)
        }

        def is_native(piece: bytes) -> bool:
            body = piece.lstrip(_CONTINUATION)
            head = piece[: len(piece) - len(body)]
            text = body.decode(errors="ignore")
            tail = body[len(text.encode()) :]
            return (
                (not head or head in continuations)
                and foreign.search(text) is None
                and (not tail or tail in beginnings)
            )

        return tuple(number for number, piece in self._pieces.items() if not is_native(piece))
