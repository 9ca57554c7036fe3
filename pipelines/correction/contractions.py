"""English contractions, made and written out. An "'s" that may be a genitive is left."""

import re
from collections.abc import Iterator

from pipelines.correction.edits import Edit
from pipelines.correction.patterns import like

_PRONOUNS = "i|you|he|she|it|we|they"
_NEGATED = "is|are|was|were|have|has|had|do|does|did|could|would|should|must|need|might"
_ASKING = "he|she|it|that|there|what|where|who|how|here"
_HAS = "been|got|had|become|gone|taken|just been|always been|never been|already been"
_HAD = r"better|been|had|gone|seen|done|never been|\w+ed"
_EXPANSIONS: tuple[tuple[str, str], ...] = (
    (rf"(?!don't you dare)({_NEGATED})n't ({_PRONOUNS})\b", r"\1 \2 not"),
    (rf"can't ({_PRONOUNS})\b", r"can \1 not"),
    (rf"won't ({_PRONOUNS})\b", r"will \1 not"),
    (r"can't\b", "cannot"),
    (r"won't\b", "will not"),
    (r"shan't\b", "shall not"),
    (rf"({_NEGATED})n't\b", r"\1 not"),
    (r"let's\b", "let us"),
    (r"i'm\b", "I am"),
    (r"(you|we|they|there|what|who|where|how)'re\b", r"\1 are"),
    (r"(i|you|we|they|could|should|would|might|must|who)'ve\b", r"\1 have"),
    (rf"({_PRONOUNS}|that|there|who|what|this)'ll\b", r"\1 will"),
    (rf"({_PRONOUNS}|who|there)'d (?=(?:{_HAD})\b)", r"\1 had "),
    (rf"({_PRONOUNS}|who|there|that)'d\b", r"\1 would"),
    (rf"({_ASKING})'s (?=(?:{_HAS})\b)", r"\1 has "),
    (rf"({_ASKING}|when|why)'s\b", r"\1 is"),
)
# Not after a question word: "I know what it is like".
_BEGIN = (
    r"(?:^|(?<=[.!?,;:] )|(?<=\band )|(?<=\bbut )|(?<=\bthat )|(?<=\bbecause )|(?<=\bso )"
    r"|(?<=\bif )|(?<=\bthink ))"
)
_CONTRACTIONS: tuple[tuple[str, str], ...] = (
    (r"(is|are|was|were|do|does|did|has|have|had|could|would|should) not\b(?! only)", r"\1n't"),
    (r"can ?not\b(?! only)", "can't"),
    (r"will not\b(?! only)", "won't"),
    (_BEGIN + r"i am (?=\w)", "I'm "),
    (_BEGIN + r"(you|we|they) are (?=\w)", r"\1're "),
    (_BEGIN + r"(he|she|it|that|there) is (?=\w)", r"\1's "),
    (_BEGIN + rf"({_PRONOUNS}) will (?=\w)", r"\1'll "),
    (
        _BEGIN + r"(i|you|we|they) have (?=(?:been|never|just|already|always|seen|done)\b)",
        r"\1've ",
    ),
    (_BEGIN + r"(i|you|he|she|we|they) would (?=(?:like|love|rather|be|have)\b)", r"\1'd "),
    (_BEGIN + r"let us (?=\w)", "let's "),
)


def _compiled(table: tuple[tuple[str, str], ...]) -> list[tuple[re.Pattern[str], str]]:
    return [(re.compile(rf"(?<![\w'’-]){find}", re.I | re.M), put) for find, put in table]


_EXPAND, _CONTRACT = _compiled(_EXPANSIONS), _compiled(_CONTRACTIONS)


def contractions(text: str, use: bool) -> Iterator[Edit]:
    """ "do not" to "don't" where `use`, or back; edits of different patterns may overlap."""
    plain = text.replace("’", "'")
    for pattern, put in _CONTRACT if use else _EXPAND:
        for match in pattern.finditer(plain):
            full = like(match.group(), match.expand(put))
            yield Edit(match.start(), match.end(), full, "contraction")
