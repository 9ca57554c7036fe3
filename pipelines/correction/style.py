"""Applies style by rules: capitals, final punctuation and abbreviations (English only)."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from configs.load import load_yaml
from pipelines.correction.edits import Edit
from pipelines.correction.passages import english_sentences
from pipelines.correction.patterns import filled
from pipelines.correction.protection import protected_spans

_PATTERNS = load_yaml(dict[str, str], str(Path(__file__).with_name("style.yaml")))
_CLAUSE = re.compile(_PATTERNS["clause"], re.I)
_QUESTION = re.compile(filled(_PATTERNS["question"], _PATTERNS), re.I)
_ITEM = re.compile(r"\s*(?:[#>*•–—|-]|\d+[.)]|[A-Za-z][.)]\s)")
_ENDS = re.compile(r"[\w%][)\"'”’]*$")  # no full stop before a closing quotation mark
_LEAST_WORDS = 3  # fewer are a title, a name or an answer
_SMALL_WORD = re.compile(r"[\"'“‘(\[]*([a-zà-öø-ÿ][a-zà-öø-ÿ'’]*)(?![\w@/.-]*[\w@/-])")


def capitals(text: str) -> Iterator[Edit]:
    """Capitalises the first letter of each sentence that begins with a plain word."""
    protected = protected_spans(text)
    for start, end in english_sentences(text):
        word = _SMALL_WORD.match(text, start, end)
        first = word.start(1) if word and not _ITEM.match(text[start:end]) else None
        if first is not None and not any(span.start <= first < span.end for span in protected):
            yield Edit(first, first + 1, text[first].upper(), "capitalization")


def end_mark(text: str) -> Iterator[Edit]:
    """Ends the last sentence of an English paragraph with a full stop or question mark."""
    spans = english_sentences(text)
    if not spans:
        return
    start, end = spans[-1]
    sentence = text[start:end].replace("’", "'")
    last_line = text[text.rfind("\n", 0, end) + 1 : end]
    if not _ENDS.search(sentence) or _ITEM.match(last_line) or _CLAUSE.search(sentence) is None:
        return
    if len(sentence.split()) < _LEAST_WORDS:
        return
    at_end = (span for span in protected_spans(text) if span.end >= end)
    if all(span.kind in ("number", "identifier") for span in at_end):
        yield Edit(end, end, "?" if _QUESTION.match(sentence) else ".", "punctuation")


def abbreviations(text: str, table: Mapping[str, str]) -> Iterator[Edit]:
    """Writes out abbreviations; a full stop that also ends the sentence stays."""
    longest_first = "|".join(map(re.escape, sorted(table, key=len, reverse=True)))
    for match in re.finditer(rf"(?<![\w.@/-])(?:{longest_first})(?![\w@/-])", text, re.I):
        short = match.group()
        full = table[short.lower()]
        if short.endswith(".") and re.match(r"\s*$|\s+[A-Z]", text[match.end() :]):
            full += "."
        starts = match.start() == 0 or re.search(r"[.!?]\s+$", text[: match.start()])
        full = full[:1].upper() + full[1:] if starts or short.istitle() else full
        yield Edit(match.start(), match.end(), full, "abbreviation")
