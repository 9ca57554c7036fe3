"""Converts texts in languages of India to the script of their language.

Whisper spells Indian languages that it hardly knows as they sound, in Latin letters or in the
script of a language that it knows better. All these scripts have one origin, and their letters are
at the same positions in their blocks (The Unicode Standard, chapter 12). So a letter is converted
by moving it to another block, and one table of sounds, in Devanagari, serves all languages.
"""

import re
import unicodedata
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from configs.load import load_yaml
from models.scripts import LATIN, SCRIPTS

_TABLE = load_yaml(dict[str, dict[str, Any]], str(Path(__file__).with_name("indian_scripts.yaml")))
_CONSONANTS, _VOWELS, _SIGNS = (_TABLE[kind] for kind in ("consonants", "vowels", "signs"))
_SOUNDS = re.compile("|".join(sorted(_CONSONANTS | _VOWELS, key=len, reverse=True)))
_WORD = re.compile(f"[{LATIN}]+")
_LETTER = re.compile("[\u0900-\u0963\u0966-\u0d7f]")
_VIRAMA = "\u094d"  # says that no vowel follows
_NASAL = re.compile(f"[नम]{_VIRAMA}(?=[क-झट-धप-भशस])")  # written as a dot in most scripts
_DEVANAGARI, _BENGALI, _TAMIL, _MALAYALAM, _SINHALA = 0x900, 0x980, 0xB80, 0xD00, 0xD80
_BLOCK = 0x80  # letters
_SHORT = (0x0E, 0x12, 0x46, 0x4A)  # positions of short e and o in a block
_BLOCKS = {
    code: first
    for first, _, codes in SCRIPTS
    if first in range(_DEVANAGARI, _SINHALA)
    for code in codes
}
INDIAN = frozenset(_BLOCKS)


def in_own_script(text: str, language: str, *, is_by_sound: bool) -> str:
    """Converts a text to the script of an Indian language; Latin words too if `is_by_sound`."""
    block = _BLOCKS[language]
    respelled = _TABLE["respelled"].get(language, {})
    if is_by_sound:
        text = _WORD.sub(lambda word: _written(word[0], block, respelled), text)
    return _LETTER.sub(lambda letter: _moved(letter[0], block), text)


def _written(word: str, block: int, respelled: Mapping[str, str]) -> str:
    letters = ""
    is_open = False  # whether the last letter is a consonant without a vowel
    if block < _TAMIL:  # in northern scripts, a final vowel without a sign is silent
        word = re.sub("a$", "aa", word)
    for sound in _SOUNDS.findall(word.casefold()):
        sound = respelled.get(sound, sound)
        if sound in _CONSONANTS:
            letters += _VIRAMA * is_open + _CONSONANTS[sound]
        else:
            letters += _SIGNS[sound] if is_open else _VOWELS[sound]
        is_open = sound in _CONSONANTS
    letters += _VIRAMA * (is_open and block >= _TAMIL)
    return letters if block in (_BENGALI, _TAMIL, _MALAYALAM) else _NASAL.sub("ं", letters)


@lru_cache(maxsize=1024)
def _moved(letter: str, block: int) -> str:
    """Returns the same letter of another block. If a script lacks it, the letter before it is used,
    as Tamil writes k, kh, g and gh alike, or for a short vowel the letter after it."""
    position = ord(letter) % _BLOCK
    if ord(letter) - position == block:
        return letter
    # Decomposed, since Tamil has two letters for n.
    common = unicodedata.normalize("NFD", chr(_DEVANAGARI + position))[0]
    moved = block + ord(common) - _DEVANAGARI
    while unicodedata.category(chr(moved)) == "Cn":
        moved += 1 if moved % _BLOCK in _SHORT else -1
    return chr(moved)
