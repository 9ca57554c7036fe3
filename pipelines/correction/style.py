"""Style by rules: capitals, final punctuation and abbreviations."""

import re
from collections.abc import Iterator, Mapping

from pipelines.correction.edits import Edit
from pipelines.correction.protection import Protected
from pipelines.text.sentences import sentence_spans

_CLAUSE = re.compile(
    r"\b(?:i|you|he|she|it|we|they|is|are|was|were|am|have|has|had|do|does|did|will|would|can|could"
    r"|should|must|may|might|let's|please|thank|thanks|\w+n't|\w+'(?:s|re|m|ll|ve|d))\b",
    re.I,
)
_AUXILIARY = (
    "is|are|was|were|am|do|does|did|can|could|will|would|should|shall|may|have|has|had|isn't|aren't"
    "|wasn't|weren't|don't|doesn't|didn't|can't|couldn't|won't|wouldn't|shouldn't|haven't|hasn't"
)
_SUBJECT = (
    "i|you|he|she|it|we|they|this|that|these|those|there|the|my|your|his|her|our|their"
    "|(?:any|some|every)(?:one|body)|any|all"
)
_QUESTION = re.compile(
    r"(?:^|^(?:hello|hi|hey|and|but|so|ok|okay|well|sorry|please|excuse me)\b[\w ]{0,30}, ?)"
    rf"(?:(?:{_AUXILIARY}) (?:{_SUBJECT})\b"
    rf"|(?:what|when|where|who|why|how|which)(?:'s|'re| (?:{_AUXILIARY})\b)"
    r"|how (?:many|much|long|often|far|old|big|about)\b|what about\b|why not\b"
    rf"|(?:what|which|whose) \w+ (?:{_AUXILIARY}) (?:{_SUBJECT})\b)",
    re.I,
)
_ITEM = re.compile(r"\s*(?:[#>*•–—|-]|\d+[.)]|[A-Za-z][.)]\s)")
_ENDS = re.compile(r"[\w)\"'”’%]$")
_LEAST_WORDS = 3  # fewer are a title, a name or an answer
_SMALL_WORD = re.compile(r"[\"'“‘(\[]*([a-zà-öø-ÿ][a-zà-öø-ÿ'’]*)(?![\w@/.-]*[\w@/-])")


def capitals(text: str, language: str, protected: list[Protected]) -> Iterator[Edit]:
    """A capital for the first letter of each sentence, if that is a plain word."""
    for start, end in sentence_spans(text.replace("\n", " ").replace("\r", " "), language):
        word = _SMALL_WORD.match(text, start, end)
        if word and not _inside(word.start(1), protected) and not _ITEM.match(text[start:end]):
            first = word.start(1)
            yield Edit(first, first + 1, text[first].upper(), "capitalization")


def end_mark(text: str, protected: list[Protected]) -> Edit | None:
    """A full stop or question mark for the last sentence of an English paragraph that has none."""
    spans = sentence_spans(text.replace("\n", " ").replace("\r", " "), "en")
    if not spans:
        return None
    start, end = spans[-1]
    sentence = text[start:end].replace("’", "'")
    last_line = text[text.rfind("\n", 0, end) + 1 : end]
    if not _ENDS.search(sentence) or _ITEM.match(last_line) or _CLAUSE.search(sentence) is None:
        return None
    if len(sentence.split()) < _LEAST_WORDS:
        return None
    if any(span.end >= end and span.kind not in ("number", "identifier") for span in protected):
        return None
    mark = "?" if _QUESTION.match(sentence) else "."
    return Edit(end, end, mark, "punctuation")


def abbreviations(text: str, table: Mapping[str, str]) -> Iterator[Edit]:
    """Each abbreviation written out; a full stop that also ends the sentence stays."""
    for match in _abbreviation(tuple(table)).finditer(text):
        short = match.group()
        full = table[short.lower()]
        if short.endswith(".") and re.match(r"\s*$|\s+[A-Z]", text[match.end() :]):
            full += "."
        starts = match.start() == 0 or re.search(r"[.!?]\s+$", text[: match.start()])
        full = full[:1].upper() + full[1:] if starts or short.istitle() else full
        yield Edit(match.start(), match.end(), full, "abbreviation")


def _abbreviation(short: tuple[str, ...]) -> re.Pattern[str]:
    longest_first = sorted(short, key=len, reverse=True)
    return re.compile(
        rf"(?<![\w.@/-])(?:{'|'.join(map(re.escape, longest_first))})(?![\w@/-])", re.I
    )


def _inside(position: int, protected: list[Protected]) -> bool:
    return any(span.start <= position < span.end for span in protected)
