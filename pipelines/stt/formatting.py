"""How a transcript is written: without personal data, numbers in digits, profanity masked, without
punctuation."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache

from configs.load import load_yaml
from configs.schema.transcription import ProfanityConfig
from models.stt.base import FINAL, INTERIM, UNSPACED, Segment, Transcript, Word
from models.stt.options import TranscriptStyle
from pipelines.text.normalisation.number_words import words_for
from pipelines.text.redaction import JOINT, MERGED, Redactor, masked

MOST = 10_000  # numbers below it are known as words
SMALL = 10  # numbers below it stay words where they stand alone
LONGEST = 8  # words of a number

_PROFANITY = load_yaml(ProfanityConfig, "profanity").words
_MASK = re.compile(r"\[[A-Z_]+\]")
# What is no part of a word. The vowel signs of Arabic and Indic scripts are no letters for `re`;
# the signs of "$5", "50%" and "C#" are spoken.
_MARK = r"[^\w*%‰°#@&+$€£¥₹\u0300-\u036f\u064b-\u0652\u0900-\u0963\u0966-\u0e4e]"
_MARKS = re.compile(f"^{_MARK}+|{_MARK}+$")
_END = re.compile(f"{_MARK}+$")


def separator_of(language: str) -> str:
    """The separator of words in a language: none in scripts without spaces."""
    return "" if language in UNSPACED else " "


def formatted(
    heard: Transcript, form: TranscriptStyle, masks: Redactor | None = None, urgency: int = FINAL
) -> Transcript:
    """The transcript without what `masks` finds, and in that format, for languages with spaces
    between words; may take a second at the first text of a language."""
    transcript = _redacted(heard, masks, urgency) if masks and heard.segments else heard
    if form == TranscriptStyle():
        return transcript
    segments = [_formatted(one, transcript.language, form) for one in transcript.segments]
    return replace(transcript, segments=tuple(segments))


def _redacted(transcript: Transcript, redactor: Redactor, urgency: int) -> Transcript:
    """With masks in texts and words, one word for each entity. Of an interim without its end, which
    may become part of an entity; a final is remembered for the text after it."""
    segments, separator = transcript.segments, separator_of(transcript.language)
    said = [
        (at, word)
        for at, segment in enumerate(segments)
        for word in segment.words or (Word(segment.text, segment.start, segment.end, 0.0),)
    ]
    text = JOINT.join(word.word for _, word in said)
    redactor.redaction = replace(redactor.redaction, language=transcript.language)
    plain = text.replace(JOINT, separator or JOINT)
    taken, found = redactor.take(plain, separator, grows=urgency == INTERIM, keeps=urgency == FINAL)
    kept: list[list[Word]] = [[] for _ in segments]
    last = -1
    for part in masked(text[: len(taken)].rstrip(), found).split(JOINT):
        (at, word), last = said[last + 1], last + 1 + part.count(MERGED)
        kept[at].append(replace(word, word=part.replace(MERGED, ""), end=said[last][1].end))
    made = []
    for segment, words in zip(segments, kept, strict=True):
        if text := separator.join(word.word for word in words):
            made.append(replace(segment, text=text, words=tuple(words) if segment.words else ()))
    return replace(transcript, segments=tuple(made))


def _formatted(segment: Segment, language: str, form: TranscriptStyle) -> Segment:
    said = segment.text.split()
    is_timed = len(segment.words) == len(said)
    timed = segment.words if is_timed else tuple(Word(word, 0, 0, 0) for word in said)
    if form.numerals:
        timed = tuple(_with_digits(timed, _numbers(language)))
    texts = [_written(word.word, language, form) for word in timed]
    words = tuple(replace(word, word=text) for word, text in zip(timed, texts, strict=True) if text)
    text = " ".join(filter(None, texts))
    return replace(segment, text=text, words=words if is_timed else segment.words)


def _written(word: str, language: str, form: TranscriptStyle) -> str:
    bare = _MARKS.sub("", word)
    if form.profanity_filter and bare.casefold() in _PROFANITY.get(language, ()):
        word = word.replace(bare, bare[0] + "*" * (len(bare) - 1))
    return word if form.punctuate else bare_word(word)


def unpunctuated(word: str) -> str:
    """The word without marks around it, but a mask as it is."""
    return word if _MASK.search(word) else _MARKS.sub("", word)


def bare_word(word: str) -> str:
    """The same without capitals."""
    return word if _MASK.search(word) else unpunctuated(word).lower()


def _with_digits(words: Sequence[Word], numbers: dict[str, int]) -> Iterator[Word]:
    """The words, those that name a number in digits: the longest first."""
    at, was_number = 0, False
    while at < len(words):
        for length in range(min(LONGEST, len(words) - at), 0, -1):
            number = numbers.get(_plain(words[at : at + length]))
            if number is not None:
                break
        end = at + length
        follows = _plain(words[end : end + 1]) in numbers
        was_number = number is not None and (number >= SMALL or was_number or follows)
        last = words[end - 1]
        if was_number:
            marks = last.word.removeprefix(_END.sub("", last.word))
            mean = sum(word.confidence for word in words[at:end]) / length
            yield Word(f"{number}{marks}", words[at].start, last.end, round(mean, 4))
        else:
            yield from words[at:end]
        at = end


def _plain(words: Sequence[Word]) -> str:
    """Only the last may have a mark after it."""
    text = " ".join(word.word for word in words).casefold().replace("-", " ")
    return _END.sub("", text).replace(" and ", " ")


@cache
def _numbers(language: str) -> dict[str, int]:
    words = words_for(language)
    if not words.spells:
        return {}
    names = {words.year(year): year for year in range(1100, 2100)}
    for kind in ("counted", "cardinal"):  # before a noun it may be another word
        names |= {words.read(str(number), kind): number for number in range(MOST)}
    return {_plain([Word(name, 0, 0, 0)]): number for name, number in names.items()}
