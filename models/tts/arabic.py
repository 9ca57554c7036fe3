"""Arabic: restores the vowel marks that its writers leave out, and reads vowelled text. The network
is rawi-ensemble (https://github.com/TigreGotico/text2tashkeel): two BiLSTMs over letters, of which
one places marks and the other chooses them."""

import json
import re
import unicodedata
from collections.abc import Callable
from functools import cache
from itertools import groupby

import numpy as np
from onnxruntime import InferenceSession

from configs.load import load_yaml
from configs.schema.base import StrictModel
from configs.settings import weights_dir
from models.base import Interruption
from models.runtimes.onnx import open_session, run
from models.weights.store import WeightStore

WEIGHTS = "rawi-ensemble"
SHADDA, TATWEEL = "\u0651", "\u0640"
UNKNOWN = 1  # index of a character that the network does not know


class _Reading(StrictModel):
    """The tables of `configs/arabic_letters.yaml`, which explains them."""

    letters: dict[str, str]
    classes: dict[str, str]
    sequences: list[tuple[str, str]]
    sounds: dict[str, str]
    stress: list[str]


_TABLES = load_yaml(_Reading, "arabic_letters")


def _compiled(pattern: str) -> re.Pattern[str]:
    for name, characters in _TABLES.classes.items():
        pattern = pattern.replace(name, characters)
    return re.compile(pattern)


_LETTERS = str.maketrans(_TABLES.letters)
_SEQUENCES = [(_compiled(pattern), sounds) for pattern, sounds in _TABLES.sequences]
_SOUNDS = str.maketrans(_TABLES.sounds)
_STRESS = [_compiled(pattern) for pattern in _TABLES.stress]
_ARABIC = re.compile("[\u0621-\u065f\u0670-\u06d3]")
_FOREIGN = re.compile(r"([^\W\u0621-\u06d3](?:[^\u0621-\u06d3]*[^\W\u0621-\u06d3])?)")
_SPELLED = re.compile("(.)([\u064b-\u0655\u0670]*)", re.DOTALL)  # in decomposed form
_VOWELS = frozenset("\u064b\u064c\u064d\u064e\u064f\u0650\u0652\u0670")
_HAMZAS = frozenset("\u0653\u0654\u0655")


@cache
def _network() -> tuple[InferenceSession, dict[str, int], dict[int, str]]:
    """Returns the session, the index of each character, and the marks of each class."""
    folder = WeightStore(weights_dir()).folder(WEIGHTS)
    tables = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
    marks = {index: marks for marks, index in tables["diac_to_idx"].items()}
    return open_session(folder / "model.onnx", threads=1), tables["char_to_idx"], marks


def with_vowels(text: str) -> str:
    """Adds vowel marks to the Arabic letters of `text`, each after the shadda, as espeak-ng needs.
    A letter with marks keeps them, and so does a word with marks on half of its letters or more."""
    if not _ARABIC.search(text):
        return text
    plain = text.replace(TATWEEL, "")
    if not plain:
        return plain
    session, indices, marks_of_class = _network()
    decomposed = _ARABIC.sub(lambda letter: unicodedata.normalize("NFD", letter[0]), plain)
    spelled = _SPELLED.findall(decomposed)
    codes = [indices.get(letter, UNKNOWN) for letter, _ in spelled]
    (classes,) = run(session, {"input": np.array([codes], np.int64)}, Interruption())
    predicted = [marks_of_class.get(index, "") for index in classes[0].tolist()]
    restored = ""
    for is_word, letters in groupby(zip(spelled, predicted, strict=True), _is_arabic):
        word = list(letters)
        marked = sum(not _VOWELS.isdisjoint(marks) for (_, marks), _ in word)
        is_vowelled = not is_word or 2 * marked >= len(word)
        for (letter, marks), others in word:
            restored += _composed(letter, marks, "" if is_vowelled else others)
    return restored


def _is_arabic(letter: tuple[tuple[str, str], str]) -> bool:
    return _ARABIC.match(letter[0][0]) is not None


def _composed(letter: str, marks: str, others: str) -> str:
    """Composes a letter with its marks, and with the predicted `others` if it has no vowel."""
    if _VOWELS.isdisjoint(marks):
        has_hamza = not _HAMZAS.isdisjoint(marks)
        marks += "".join(
            mark for mark in others if mark not in marks and not (has_hamza and mark in _HAMZAS)
        )
    hamza = "".join(mark for mark in marks if mark in _HAMZAS)
    rest = sorted((mark for mark in marks if mark not in _HAMZAS), key=SHADDA.__ne__)
    return unicodedata.normalize("NFC", letter + hamza) + "".join(rest)


def arabic_phonemes(text: str, foreign: Callable[[str], str]) -> str:
    """Return IPA of `text` in Kokoro's symbols; `foreign` reads the parts in other scripts."""
    parts = _FOREIGN.split(with_vowels(text))
    return "".join(foreign(part) if at % 2 else _read(part) for at, part in enumerate(parts))


def _read(text: str) -> str:
    text = text.translate(_LETTERS)
    for pattern, sounds in _SEQUENCES:
        text = pattern.sub(sounds, text)
    return re.sub(r"\w+", _stressed, text.translate(_SOUNDS))


def _stressed(word: re.Match[str]) -> str:
    for vowel in _STRESS:
        marked, count = vowel.subn(r"ˈ\g<0>", word[0], count=1)
        if count:
            return marked
    return word[0]
