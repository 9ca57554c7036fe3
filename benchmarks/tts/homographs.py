"""How often an English word with two pronunciations is read as its sentence asks.

`python -m benchmarks.tts.homographs FOLDER` reads the folder `data` of Google's Wikipedia homograph
data (Apache-2.0; none of it is a part of this repository): sentences with a labelled word. Its part
`train` is for tuning the rules, `eval` is held out. A reading counts as the label whose
pronunciation is nearest to it. `perfume`, `nestle` and `upset` are left out: dictionaries do not
distinguish their labels.
"""

import csv
import difflib
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from benchmarks.harness.report import begin, parser
from models.tts.homographs import ContextG2P
from models.tts.kokoro.phonemes import from_ipa

LEFT_OUT = frozenset({"perfume", "nestle", "upset"})
REDUCED = str.maketrans({"ˌ": None, "ᵻ": "ə", "ᵊ": "ə", "T": "t"})  # as the labels write them


def rows(path: Path) -> Iterator[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file, delimiter="\t")


def read_word(g2p: ContextG2P, row: dict[str, str]) -> str | None:
    """Returns the phonemes of the labelled word; None if it is a part of a longer token."""
    sentence = row["sentence"].encode()
    before = sentence[: int(row["start"])].decode()
    word = sentence[int(row["start"]) : int(row["end"])].decode()
    earlier = len(re.findall(rf"(?<!\w){re.escape(word)}(?!\w)", before))
    try:
        tokens = g2p.phonemize_tokens(g2p.tokenize(row["sentence"]))
    except ValueError:  # four sentences have indices of formulas, which are normalised first
        return None
    readings = [token.phonemes for token in tokens if token.text == word]
    return readings[earlier] if earlier < len(readings) else None


def nearest(phonemes: str, labels: dict[str, str]) -> str:
    """Returns the label whose pronunciation is most like the phonemes."""
    phonemes = phonemes.translate(REDUCED)

    def likeness(label: str) -> float:
        return difflib.SequenceMatcher(None, phonemes, labels[label], autojunk=False).ratio()

    return max(labels, key=likeness)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("folder", type=Path)
    folder = begin(options, "hibari-tts").folder
    g2p = ContextG2P()
    labels: dict[str, dict[str, str]] = defaultdict(dict)
    for row in rows(folder / "wordids.tsv"):
        ipa = re.sub("[01ˌ]", "", row["pronunciation"]).replace("ɚ", "əɹ").replace("'", "ˈ")
        labels[row["homograph"].lower()][row["wordid"]] = from_ipa(ipa, "en")
    for half, part in (("tuned", "train"), ("held out", "eval")):
        right = total = 0
        for path in sorted((folder / part).glob("*.tsv")):
            for row in rows(path):
                word = row["homograph"].lower()
                phonemes = None if word in LEFT_OUT else read_word(g2p, row)
                if phonemes is not None:
                    total += 1
                    right += nearest(phonemes, labels[word]) == row["wordid"]
        print(f"{half}: {right} of {total}, {100 * right / total:.1f} %")


if __name__ == "__main__":
    main()
