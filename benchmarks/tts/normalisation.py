"""How many of the tests of NVIDIA's NeMo-text-processing are spoken as its authors ask.

`python -m benchmarks.tts.normalisation FOLDER` reads the folder `tests/nemo_text_processing` of its
repository (Apache-2.0; none of it is a part of this one): lines with a written and a spoken form,
by language and class. Half of each language's lines, by a hash of the written form, is for tuning;
the other half is held out: only the number of its right lines is looked at. `tastes/LANGUAGE.yaml`
has spellings that are equal, and written forms that may be spoken otherwise, each with its reason.
Lines with such a form are left out: at most a tenth of a class.
"""

import hashlib
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from benchmarks.harness.report import begin, parser
from tests.pipelines.text.normalisation.score import speak

LANGUAGES = ("en", "de", "es", "fr", "it", "pt", "hi", "zh", "ja", "ar")
HALVES = ("tuned", "held out")
LEFT_OUT = 0.1  # at most, of a class
# NeMo writes German and Italian numbers in pieces, and spells the labels of addresses.
JOINED = ("de", "it", "zh", "ja")
_SPOKEN_FIRST = {"de", "ar fraction", "ar measure"}  # the order of a line's two forms
_OTHER_TESTS = re.compile("audio|punctuation")


@dataclass(frozen=True, slots=True)
class Case:
    language: str
    kind: str
    written: str
    spoken: str
    half: str


def cases(folder: Path, language: str) -> Iterator[Case]:
    for path in sorted((folder / language / "data_text_normalization").glob("test_cases_*.txt")):
        if _OTHER_TESTS.search(path.stem):
            continue
        kind = path.stem.removeprefix("test_cases_")
        for line in dict.fromkeys(path.read_text(encoding="utf-8").splitlines()):
            first, mark, second = line.strip("\ufeff ").partition("~")
            if not mark:
                continue
            is_spoken_first = not _SPOKEN_FIRST.isdisjoint((language, f"{language} {kind}"))
            written = second if is_spoken_first else first
            spoken = first if is_spoken_first else second
            half = HALVES[hashlib.sha256(written.encode()).digest()[0] % 2]
            yield Case(language, kind, written.strip(), spoken.strip(), half)


@cache
def tastes(language: str) -> dict[str, Any]:
    """`equal`: patterns and what they become; `taste`: by class, patterns of written forms."""
    path = Path(__file__).parent / "tastes" / f"{language}.yaml"
    return yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else {}


def is_right(case: Case) -> bool:
    speech = _plain(speak(case.written, case.language), case.language)
    return any(speech == _plain(spoken, case.language) for spoken in case.spoken.split("~"))


def is_taste(case: Case) -> bool:
    entries = tastes(case.language).get("taste", {}).get(case.kind, [])
    return any(re.search(entry["find"], case.written) for entry in entries)


def _plain(text: str, language: str) -> str:
    """Lower-case words without marks."""
    text = unicodedata.normalize("NFC", text).casefold()
    for entry in tastes(language).get("equal", []):
        text = re.sub(entry["find"], entry["as"], text)
    text = "".join(
        character if unicodedata.category(character)[0] in "LMN" else " " for character in text
    )
    words = [word for word in text.split() if language != "en" or word not in ("and", "of", "the")]
    return ("" if language in JOINED else " ").join(words)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("folder", type=Path)
    options.add_argument("--languages", nargs="+", default=LANGUAGES)
    options.add_argument("--failures", action="store_true", help="print failures of the tuned half")
    arguments = begin(options)
    for language in arguments.languages:
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        left_out: Counter[str] = Counter()
        all_cases = list(cases(arguments.folder, language))
        lines = Counter(case.kind for case in all_cases)
        for case in all_cases:
            right = is_right(case)
            counts["raw"]["all"] += 1
            counts["raw"]["right"] += right
            if not right and is_taste(case):
                if left_out[case.kind] + 1 <= LEFT_OUT * lines[case.kind]:
                    left_out[case.kind] += 1
                    continue
            for row in (case.half, f"  {case.kind}"):
                counts[row][f"{case.half} all"] += 1
                counts[row][f"{case.half} right"] += right
            if arguments.failures and not right and case.half == "tuned":
                speech = speak(case.written, language)
                print(f"{case.kind}: {case.written} -> {speech} | {case.spoken}")
        raw = counts.pop("raw")
        print(f"{language}: {raw['right']} of {raw['all']} raw")
        for row, count in sorted(counts.items(), key=lambda item: item[0].strip() not in HALVES):
            shares = (_share(count, half) for half in HALVES if count[f"{half} all"])
            print(f"  {row}: {'; '.join(shares)}")
        for kind, number in left_out.items():
            print(f"  taste in {kind}: {number} of {lines[kind]}")


def _share(count: Counter[str], half: str) -> str:
    right = count[f"{half} right"]
    total = count[f"{half} all"]
    return f"{half} {right} of {total}, {100 * right / total:.1f} %"


if __name__ == "__main__":
    main()
