"""The sentences of JFLEG (Napoles et al., 2017), for measurement only: none of them is kept here.

    git clone https://github.com/keisks/jfleg

Its texts have spaces between all tokens, which people do not write: they are joined for the
service and separated again for its own script, `eval/gleu.py`.
"""

import re
from pathlib import Path
from typing import Any

_JOINS = (
    (re.compile(r" (n't|N'T)\b"), r"\1"),
    (re.compile(r" ('(?:s|re|ve|ll|d|m)\b)", re.I), r"\1"),
    (re.compile(r" ([.,!?;:%)\]]|\.\.\.)(?= |$)"), r"\1"),
    (re.compile(r"(^| )([(\[$]) "), r"\1\2"),
    (re.compile(r'(^| )(["“]) ([^"”]*) (["”])(?=\W|$)'), r"\1\2\3\4"),
)
_SPLITS = (
    (re.compile(r"(?<=\w)(n't)\b", re.I), r" \1"),
    (re.compile(r"(?<=\w)('(?:s|re|ve|ll|d|m)\b)", re.I), r" \1"),
    (re.compile(r'([!?;:%()\[\]"“”]|\.{2,}|--)'), r" \1 "),
    (re.compile(r"(?<!\d)(,)|(,)(?!\d)"), r" \1\2 "),
    (re.compile(r"(?<!\.)(\.)(?=[ \"”)]*$)"), r" \1"),
    (re.compile(r"(\$)(?=\d)"), r"\1 "),
)


def faulty_sentences(folder: Path, part: str) -> list[dict[str, Any]]:
    """The sentences of `test` or `dev`, each with its four references."""
    sources = _lines(folder / part / f"{part}.src")
    references = [_lines(folder / part / f"{part}.ref{number}") for number in range(4)]
    return [
        {"faulty": joined(source), "references": [joined(lines[index]) for lines in references]}
        for index, source in enumerate(sources)
    ]


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def joined(tokens: str) -> str:
    """The tokens as a text with the spaces that people write."""
    return _replaced(_JOINS, tokens)


def separated(text: str) -> str:
    """The text with spaces between all tokens, for JFLEG's script."""
    return _replaced(_SPLITS, text)


def _replaced(rules: tuple[tuple[re.Pattern[str], str], ...], text: str) -> str:
    text = text.strip()
    for pattern, replacement in rules:
        text = pattern.sub(replacement, text)
    return " ".join(text.split())
