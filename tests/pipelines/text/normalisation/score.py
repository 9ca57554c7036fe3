"""The written forms of `cases/`, and how many of them are spoken as a standard asks.

Each line of a file has a class, a written form and its spoken one: `(a|b)` are spoken forms that
the standard allows alike, and `[a]` or `[a|b]` may be left out. They were written from grammars
and standards before the normaliser was run on them. In each class the first, third, … case is held
out: while rules were written only their number of right ones was looked at. Run as a module it
writes a table, and with the argument `failures` the tuned cases that fail.

The lines of Indic languages have a fourth column, the source of the spoken form. Those of Tamil,
Telugu, Kannada and Malayalam are held out by a hash of the written form; those of the other five
stand in the order of its SHA-1, so that the hash tells which are held out; texts that a rule once
read wrongly follow as negatives.

- CLDR: github.com/unicode-org/cldr, `common/rbnf` ("rbnf", 99cbcc72) for numbers and `common/main`
  ("cldr") for names, units, currencies, months, eras and parts of the day
- NeMo: github.com/NVIDIA/NeMo-text-processing, `tests/nemo_text_processing/hi`
- indic-tn, kenpath: github.com/Kenpath/indic-text-normalization (00bc016), the tables of a language
- itn: github.com/NoobVibeCoder31/indic-text-normalization, its tests and notes of the language
- Humanizer: github.com/Humanizr/Humanizer, `src/Humanizer/Locales` and its tests
- numtowords, ai4b: github.com/AI4Bharat/indic-numtowords (167927b)
- dafter: github.com/punk-raven/dafter, `testdata/speech/marathi-normalization.json`
- pybangla: github.com/saiful9379/pybangla, `docs/Text_Normalizer.md` and
  `test_data/test_cases.csv`, which people corrected
"""

import re
import sys
import unicodedata
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from pipelines.text.chunking import read_chunks

CASES = Path(__file__).parent / "cases"
UNSEEN = (
    Path(__file__).parent / "unseen"
)  # written after the rules, which were not changed for them
HELD_OUT_BY_HASH = {"kn", "ml", "ta", "te"}
LANGUAGES = sorted(path.stem for path in CASES.glob("*.tsv"))
_GROUP = re.compile(r"\(([^()\[\]]*)\)|\[([^()\[\]]*)\]")  # an innermost one
# Spellings that are equal, and endings that only differ by case: (pattern, what it becomes).
_EQUAL_SPELLINGS = {
    "ar": [("[\u064b-\u0652]", ""), ("ائة", "ئة"), ("ائت", "ئت"), (r"(?<=[ء-ي]{3})(ون|ان)\b", "ين"),
           (r"\bو\s+", "و")],
    "bn": [("লক্ষ", "লাখ"), (r"\s*(শত|শো|শ)(?![\u0980-\u09ff])", "শো"), ("ী", "ি"),
           ("বাহান্ন", "বায়ান্ন"), ("(পনে|ষো|বা|তে|সতে|আঠা)(র|ল)ো", r"\1\2")],
    "kn": [("\u200c", ""), ("ನೂರಾ ", "ನೂರ "), ("ದಶಾಂಶ", "ದಶಮಾಂಶ"), ("ಕೋಟಿಯ ", "ಕೋಟಿ "), ("ಎಂಭ", "ಎಂಬ")],
    "ml": [("ഒമ്പ", "ഒൻപ"), ("അമ്പ", "അൻപ"), ("നാല്പ|നാൽപ്പ", "നാൽപ"), ("ഇരുന്നൂ", "ഇരുനൂ"), ("നാന്നൂ", "നാനൂ")],
    "ta": [("இலட்ச", "லட்ச"), ("பூஜ்ஜி", "பூஜ்"), ("ஐந்நூ", "ஐநூ")],
    "te": [("\u200c", ""), ("పందొ", "పంతొ"), ("అయిదు", "ఐదు"), ("సున్న(?!ా)", "సున్నా")],
    "hi": [("ँ", "ं"), ("़", ""), ("\u200d", ""), (r"रुपये|रूपये|रूपए", "रुपए"), ("छः", "छह")],
}  # fmt: skip


class Case(NamedTuple):
    language: str
    kind: str
    written: str
    spoken: str
    held_out: bool


@cache
def cases(language: str, folder: Path = CASES) -> tuple[Case, ...]:
    counted: dict[str, int] = defaultdict(int)
    found = []
    for line in (folder / f"{language}.tsv").read_text(encoding="utf-8").splitlines():
        kind, written, spoken, *_source = line.split("\t")
        is_hashed = language in HELD_OUT_BY_HASH
        number = sha256(written.encode()).digest()[0] if is_hashed else counted[kind]
        found.append(Case(language, kind, written, spoken, number % 2 == 0))
        counted[kind] += 1
    return tuple(found)


def speak(written: str, language: str) -> str:
    """The words that an engine gets, as a request with this text would have them."""
    chunks = read_chunks(written, languages=frozenset({language}), language=language)
    return " ".join(chunk.text for chunk in chunks)


def is_right(case: Case) -> bool:
    said = _plain(speak(case.written, case.language), case.language)
    return any(said == _plain(spoken, case.language) for spoken in _expand(case.spoken))


@cache
def _expand(spoken: str) -> tuple[str, ...]:
    """All spoken forms that a line allows."""
    group = _GROUP.search(spoken)
    if group is None:
        return (spoken,)
    options = group[1].split("|") if group[1] is not None else ["", *group[2].split("|")]
    before, after = spoken[: group.start()], spoken[group.end() :]
    return tuple(form for option in options for form in _expand(before + option + after))


def _plain(text: str, language: str) -> str:
    """Lower-case words with one space between them, without marks."""
    text = unicodedata.normalize("NFC", text).casefold()
    for pattern, equal in _EQUAL_SPELLINGS.get(language, []):
        text = re.sub(pattern, equal, text)
    text = "".join(
        character if unicodedata.category(character)[0] in "LMN" or character == "'" else " "
        for character in text
    )
    return ("" if language in ("zh", "ja") else " ").join(text.split())


def scores(language: str) -> Iterator[tuple[str, bool, int, int]]:
    """Of each class and half: whether it is held out, the cases that are right, and all."""
    counts: dict[tuple[str, bool], list[int]] = {}
    for case in cases(language):
        count = counts.setdefault((case.kind, case.held_out), [0, 0])
        count[0] += is_right(case)
        count[1] += 1
    for (kind, held_out), (right, total) in counts.items():
        yield kind, held_out, right, total


def shares(language: str) -> dict[bool, float]:
    """The share of right cases, in per cent, of the tuned (False) and the held-out half (True)."""
    sums = {False: [0, 0], True: [0, 0]}
    for _, held_out, right, total in scores(language):
        sums[held_out][0] += right
        sums[held_out][1] += total
    return {half: 100 * right / total for half, (right, total) in sums.items()}


def unseen(language: str) -> tuple[int, int]:
    """How many of the unseen cases are right, and all."""
    found = cases(language, UNSEEN)
    return sum(map(is_right, found)), len(found)


def _failures() -> Iterator[str]:
    for language in LANGUAGES:
        for case in cases(language):
            if not case.held_out and not is_right(case):
                said = speak(case.written, language)
                yield f"{language} {case.kind}: {case.written} -> {said} | {case.spoken}"


def _table() -> Iterator[str]:
    """Right and all cases of each class, tuned and held out, and the shares of both halves."""
    rows = {one: {(kind, half): (r, t) for kind, half, r, t in scores(one)} for one in LANGUAGES}
    yield f"| class | {' | '.join(LANGUAGES)} |"
    yield "|---|" + "---|" * len(LANGUAGES)
    for kind in dict.fromkeys(case.kind for case in cases("en")):
        counts = [[rows[one].get((kind, half)) for half in (False, True)] for one in LANGUAGES]
        cells = (", ".join(f"{count[0]}/{count[1]}" for count in both if count) for both in counts)
        yield f"| {kind} | {' | '.join(cells)} |"
    for half, name in ((False, "tuned"), (True, "held out")):
        yield f"| {name} | {' | '.join(f'{shares(one)[half]:.0f} %' for one in LANGUAGES)} |"
    yield f"| unseen | {' | '.join('{}/{}'.format(*unseen(one)) for one in LANGUAGES)} |"


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in (_failures() if sys.argv[1:] else _table()))
