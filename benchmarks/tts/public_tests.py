"""How the text front end does in three sets of tests that others wrote.

`python -m benchmarks.tts.public_tests FOLDER` reads those checkouts in FOLDER that are there, none
of which is a part of this repository: `pragmatic_segmenter` (sentences in 20 languages),
`commonmark-spec` (Markdown with its HTML) and `WeTextProcessing` (readings in English, Chinese and
Japanese). Half of each, by a hash of the written text, is for tuning; the other is held out.
"""

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterator
from html import unescape
from pathlib import Path

from benchmarks.harness.report import begin, parser
from benchmarks.tts.normalisation import HALVES, Case, is_right
from pipelines.text.markdown import without_markdown
from pipelines.text.segmentation import clean, paragraphs, sentence_spans
from tests.pipelines.text.normalisation.score import speak

Outcome = tuple[str, str, bool]  # a row of the table, the written text, whether it is right
LANGUAGES = {
    "amharic": "am", "arabic": "ar", "armenian": "hy", "bulgarian": "bg", "burmese": "my",
    "chinese": "zh", "danish": "da", "deutsch": "de", "dutch": "nl", "english": "en",
    "french": "fr", "greek": "el", "hindi": "hi", "italian": "it", "japanese": "ja", "kazakh": "kk",
    "urdu": "ur", "persian": "fa", "polish": "pl", "russian": "ru", "spanish": "es",
}  # fmt: skip
_STRING = r'"(?:[^"\\]|\\.)*"' + r"|'(?:[^'\\]|\\.)*'"
_SPEC = re.compile(
    rf"text: ({_STRING})[^\n]*\n\s*expect\(\w+\.segment\)\.to eq\(?\[((?:{_STRING}|[\s,])*)\]", re.S
)
_EXAMPLE = re.compile(r"^`{32} example\n(.*?)^\.\n(.*?)^`{32}$", re.MULTILINE | re.DOTALL)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}


def sentences(folder: Path) -> Iterator[Outcome]:
    for path in sorted(folder.glob("spec/pragmatic_segmenter/languages/*_spec.rb")):
        language = LANGUAGES[path.stem.removesuffix("_spec")]
        for spec in _SPEC.finditer(path.read_text(encoding="utf-8")):
            text = _unquoted(spec[1])
            found = list[str]()
            for paragraph in paragraphs(text, words=False):
                while not paragraph.is_whole:
                    paragraph.read()
                spans = sentence_spans(paragraph.text, language)
                found += [paragraph.text[start:end] for start, end in spans]
                paragraph.take(len(paragraph.text))
            wanted = [clean(_unquoted(part)) for part in re.findall(_STRING, spec[2])]
            yield f"sentences {language}", text, _ends(found) == _ends(wanted)


def _unquoted(literal: str) -> str:
    return re.sub(r"\\(.)", lambda mark: _ESCAPES.get(mark[1], mark[1]), literal[1:-1])


def _ends(parts: list[str]) -> set[int]:
    """Counts the letters and digits before each boundary."""
    return {len(re.sub(r"\W", "", "".join(parts[: number + 1]))) for number in range(len(parts))}


def markdown(folder: Path) -> Iterator[Outcome]:
    """Compares words; readers of a page do not see numbers of lists in its text."""
    for example in _EXAMPLE.finditer((folder / "spec.txt").read_text(encoding="utf-8")):
        written, page = (part.replace("→", "\t") for part in example.groups())
        page = re.sub(r'<img [^>]*alt="([^"]*)"[^>]*>', r"\1", page)
        page = re.sub(r"</?(?:a|code|em|strong)\b[^>]*>", "", re.sub("<!--.*?-->", "", page))
        page = unescape(re.sub(r"<[/\w!?][^>]*>", "\n", page))
        bare = re.sub(r"^[ \t>*+-]*\d{1,9}[.)](?=\s)", "", written, flags=re.MULTILINE)
        yield "Markdown", written, _words(without_markdown(bare)) == _words(page)


def _words(text: str) -> list[str]:
    return re.findall(r"[^\W_]+", speak(text, "en").lower())


def readings(folder: Path) -> Iterator[Outcome]:
    for language in ("english", "chinese", "japanese"):
        code = LANGUAGES[language]
        for path in sorted((folder / "tn" / language / "test" / "data").glob("*.txt")):
            for line in path.read_text(encoding="utf-8").splitlines():
                written, _, spoken = line.partition("=>")
                case = Case(code, path.stem, written.strip(), spoken.strip(), "")
                yield f"readings {code}", case.written, is_right(case)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("folder", type=Path)
    folder = begin(options).folder
    counts: dict[tuple[str, str], list[bool]] = defaultdict(list)
    sets = {"pragmatic_segmenter": sentences, "commonmark-spec": markdown}
    for name, outcomes in {**sets, "WeTextProcessing": readings}.items():
        for row, written, right in outcomes(folder / name) if (folder / name).is_dir() else ():
            half = HALVES[hashlib.sha256(written.encode()).digest()[0] % 2]
            counts[row, half].append(right)
    for (row, half), rights in counts.items():
        print(f"{row}: {half} {sum(rights)} of {len(rights)}")


if __name__ == "__main__":
    main()
