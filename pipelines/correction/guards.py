"""Guards against a language model's hallucinations: nothing of a text is lost, nothing is added."""

import re
from collections import Counter

from rapidfuzz.distance import Levenshtein

from pipelines.correction.protection import names, protected_spans

_CHATTER = re.compile(
    r"\W*(?:sure|certainly|of course|here(?:'s| is| are)|(?:the )?correct(?:ed|ion)|rewritten"
    r"|revised|i(?:'m| am) sorry|i apologi[sz]e|i can(?:no|')t|as an (?:ai|language)|okay|note:"
    r"|output|answer:|text:|(?:this|the) (?:sentence|text))",
    re.I,
)
_NEGATIONS = re.compile(
    r"\b(?:no(?:t|ne|body|thing|where)?|never|neither|nor|without|cannot|\w+n['’]t)\b", re.I
)
_NUMBER_WORDS = re.compile(
    r"\b(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen"
    r"|sixteen|seventeen|eighteen|nineteen|twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety"
    r"|hundred|thousand|million|billion|first|second|third|half|dozen|twice)\b",
    re.I,
)
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_INVISIBLE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]"
)
_SLACK_CHARACTERS = 20  # characters that a short text may grow by, whatever the share
_FUNCTION_WORD = 4  # words of more letters carry the meaning


def refusal(original: str, proposed: str, *, rewords: bool) -> str | None:
    """The reason why `proposed` may not replace `original`, or None if it may.

    `rewords` is for a change of tone, which may replace more words than a correction.
    """
    if not proposed.strip():
        return "empty"
    if _CHATTER.match(proposed) and not _CHATTER.match(original):
        return "chatter"
    shortest, longest = (0.6, 2.0) if rewords else (0.7, 1.4)
    if not shortest * len(original) <= len(proposed) <= longest * len(original) + _SLACK_CHARACTERS:
        return "length"
    if original.count("\n") != proposed.count("\n") or _signs(original) != _signs(proposed):
        return "form"
    if _protected(original) != _protected(proposed):
        return "protected"
    before, after = _all_words(original), _all_words(proposed)
    # A name of the original must stay; one of the proposal must be a word of the original.
    if any(one not in after for one in names(original)) or any(
        one not in before for one in names(proposed)
    ):
        return "names"
    if _counted(_NUMBER_WORDS, original) != _counted(_NUMBER_WORDS, proposed):
        return "numbers"
    if len(_NEGATIONS.findall(original)) != len(_NEGATIONS.findall(proposed)):
        return "negation"
    if "?" in original and "?" not in proposed:
        return "question"
    if _script(original) != _script(proposed):
        return "language"
    return _difference(original, proposed, rewords)


def _protected(text: str) -> Counter[str]:
    return Counter(text[span.start : span.end] for span in protected_spans(text))


def _signs(text: str) -> Counter[str]:
    """Invisible characters, quotation marks and brackets."""
    return Counter(_INVISIBLE.findall(text)) + Counter(c for c in text if c in '"“”«»()[]{}<>*`|')


def _all_words(text: str) -> Counter[str]:
    return Counter(word.lower() for word in re.findall(r"[^\W\d_]+(?:['’-][^\W\d_]+)*", text))


def _counted(pattern: re.Pattern[str], text: str) -> Counter[str]:
    return Counter(found.lower() for found in pattern.findall(text))


def _script(text: str) -> str:
    """The script most letters are of, by the block of their code points."""
    blocks = Counter(_block(ord(character)) for character in text if character.isalpha())
    return blocks.most_common(1)[0][0] if blocks else ""


def _block(code_point: int) -> str:
    if code_point < 0x250 or 0x1E00 <= code_point < 0x1F00:
        return "latin"
    if 0x3040 <= code_point <= 0x30FF or 0x3400 <= code_point <= 0x9FFF:
        return "han"
    return str(code_point >> 8)


def _difference(original: str, proposed: str, rewords: bool) -> str | None:
    before = [word.lower() for word in _WORD.findall(original)]
    after = [word.lower() for word in _WORD.findall(proposed)]
    if not before:
        return "distance" if before != after else None
    # Letters, since a misspelt word is another word.
    distance = min(
        Levenshtein.normalized_distance(" ".join(before), " ".join(after)),
        Levenshtein.normalized_distance(" ".join(sorted(before)), " ".join(sorted(after))),
    )
    if distance > (0.7 if rewords else 0.3):
        return "distance"
    meant = {word for word in before if len(word) > _FUNCTION_WORD}
    kept = sum(any(_alike(word, other) for other in after) for word in meant)
    if meant and kept < (0.75 if rewords else 0.8) * len(meant):
        return "meaning"
    new = [w for w in after if len(w) > _FUNCTION_WORD and not any(_alike(w, o) for o in before)]
    if len(new) > (len(before) // 3 + 1 if rewords else len(before) // 6 + 1):
        return "meaning"
    return None


def _alike(one: str, other: str) -> bool:
    return one[:4] == other[:4] or Levenshtein.normalized_distance(one, other) <= 0.4
