"""Guards against a language model's hallucinations: nothing may be lost or added."""

import re
from collections import Counter

from pydantic import TypeAdapter
from rapidfuzz.distance import Levenshtein

from configs.load import load_yaml
from configs.schema.correction import GuardWords
from pipelines.correction.protection import names, protected_spans

_CHATTER = re.compile(
    r"\W*(?:sure|certainly|of course|here(?:'s| is| are)|(?:the )?correct(?:ed|ion)|rewritten"
    r"|revised|i(?:'m| am) sorry|i apologi[sz]e|i can(?:no|')t|as an (?:ai|language)|okay|note:"
    r"|hier ist|natürlich|gerne|korrigiert|voici|aquí está|ecco|aqui está"
    r"|output|answer:|text:|(?:this|the) (?:sentence|text))",
    re.I,
)
_WORDS = load_yaml(TypeAdapter(dict[str, GuardWords]), "correction_guards")
_GUARDED = {
    (language, kind): re.compile(rf"\b(?:{pattern})\b", re.I)
    for language, words in _WORDS.items()
    for kind, pattern in (("negation", words.negations), ("numbers", words.numbers))
}
_CAPITAL_NOUNS = frozenset({"de", "lb"})  # every noun has a capital, even a misspelt one
_ENDS = re.compile(r"[.!?…]+(?=\s|$)")
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_INVISIBLE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]"
)
_FULL_NAME = re.compile(
    r"(?<=[\w,;:] )[A-ZÄÖÜ][\w'’-]+(?: [A-ZÄÖÜ][\w'’-]+)+"
    r"|\b(?:Herrn?|Frau|Familie|Dr\.|Prof\.) [A-ZÄÖÜ][\w'’-]+"
)
_SLACK_CHARACTERS = 20  # characters by which a text may always grow
_FUNCTION_WORD = 4  # longest function word; longer words carry the meaning


def refusal(original: str, proposed: str, *, rewords: bool, language: str = "en") -> str | None:
    """Returns the reason why `proposed` may not replace `original`, or None if it may. `rewords` is
    for a change of tone, which may replace more words than a correction."""
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
    if _changes_names(original, proposed, language):
        return "names"
    if _counted(language, "numbers", original) != _counted(language, "numbers", proposed):
        return "numbers"
    negations = (_counted(language, "negation", text).total() for text in (original, proposed))
    if next(negations) != next(negations):
        return "negation"
    if "?" in original and "?" not in proposed:
        return "question"
    if len(_ENDS.findall(proposed)) > max(1, len(_ENDS.findall(original))):
        return "sentences"
    if _script(original) != _script(proposed):
        return "language"
    return _difference(original, proposed, rewords)


def _protected(text: str) -> Counter[str]:
    return Counter(text[span.start : span.end] for span in protected_spans(text))


def _signs(text: str) -> Counter[str]:
    """Counts invisible characters, quotation marks and brackets."""
    return Counter(_INVISIBLE.findall(text)) + Counter(c for c in text if c in '"“”«»()[]{}<>*`|')


def _all_words(text: str) -> Counter[str]:
    return Counter(word.lower() for word in re.findall(r"[^\W\d_]+(?:['’-][^\W\d_]+)*", text))


def _changes_names(original: str, proposed: str, language: str) -> bool:
    """Whether a name of the original is lost, or one of the proposal is new."""
    before, after = _all_words(original), _all_words(proposed)
    lost = [name for name in names(original) if name not in after]
    new = [name for name in names(proposed) if name not in before]
    if language not in _CAPITAL_NOUNS:
        return bool(lost or new)
    # A noun may be respelled, but not a name of several words or after a title.
    pairs = _FULL_NAME.findall(original)
    return any(pair not in proposed for pair in pairs) or any(
        not any(_respells(name, word) for word in words)
        for changed, words in ((lost, after), (new, before))
        for name in changed
    )


def _respells(name: str, word: str) -> bool:
    return name[:1] == word[:1] and Levenshtein.normalized_distance(name, word) <= 0.3


def _counted(language: str, kind: str, text: str) -> Counter[str]:
    pattern = _GUARDED.get((language, kind))
    return Counter(pattern and (match.group().lower() for match in pattern.finditer(text)))


def _script(text: str) -> str:
    """Script of most letters, by the block of their code points."""
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
    # Compares letters, since a misspelt word is another word.
    distance = min(
        Levenshtein.normalized_distance(" ".join(before), " ".join(after)),
        Levenshtein.normalized_distance(" ".join(sorted(before)), " ".join(sorted(after))),
    )
    if distance > (0.7 if rewords else 0.3):
        return "distance"
    meant = {word for word in before if len(word) > _FUNCTION_WORD and word.isalpha()}
    kept = sum(any(_alike(word, other) for other in after) for word in meant)
    if meant and kept < (0.75 if rewords else 0.8) * len(meant):
        return "meaning"
    new = [w for w in after if len(w) > _FUNCTION_WORD and not any(_alike(w, o) for o in before)]
    if len(new) > (len(before) // 3 + 2 if rewords else len(before) // 6 + 1):
        return "meaning"
    return None


def _alike(one: str, other: str) -> bool:
    return one[:4] == other[:4] or Levenshtein.normalized_distance(one, other) <= 0.4
