"""Formats transcripts: masks personal data and profanity, writes digits, drops punctuation."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from statistics import fmean

from num2words import num2words

from configs.load import load_yaml
from configs.schema.transcription import ProfanityConfig
from models.stt.base import FINAL, INTERIM, UNSPACED, Segment, Transcript, Word
from models.stt.options import TranscriptStyle
from pipelines.text.normalisation.number_words import words_for
from pipelines.text.redaction import JOINT, MERGED, Redactor, masked

MOST = 10_000  # exclusive limit of the numbers that are recognised as words
SMALL = 10  # numbers below it stay words where they stand alone
LONGEST = 8  # words of a number
SCALE = 1000  # its word joins two numbers, as in "twelve thousand five hundred"

_PROFANITY = load_yaml(ProfanityConfig, "profanity").words
_MASK = re.compile(r"\[[A-Z_]+\]")
# Characters outside words. Vowel signs of Arabic and Indic scripts belong to words, though they are
# no letters for `re`; the signs of "$5", "50%" and "C#" are spoken.
_MARK = r"[^\w*%‰°#@&+$€£¥₹\u0300-\u036f\u064b-\u0652\u0900-\u0963\u0966-\u0e4e]"
_MARKS = re.compile(f"^{_MARK}+|{_MARK}+$")
_END = re.compile(f"{_MARK}+$")


def separator_of(language: str) -> str:
    """Returns the separator of words in a language: none in scripts without spaces."""
    return "" if language in UNSPACED else " "


def mean_confidence(words: Sequence[Word]) -> float:
    """Returns the mean confidence of words, 0 to 1, as dialects show it."""
    return round(fmean(word.confidence for word in words), 4)


def formatted(
    transcript: Transcript, form: TranscriptStyle, masks: Redactor | None, urgency: int
) -> Transcript:
    """Masks what `masks` finds and formats the text, in languages with spaces between words. May
    take a second at the first text of a language."""
    if masks and transcript.segments:
        transcript = _redacted(transcript, masks, urgency)
    if form == TranscriptStyle():
        return transcript
    segments = [_formatted(segment, transcript.language, form) for segment in transcript.segments]
    return replace(transcript, segments=tuple(segments))


def _redacted(transcript: Transcript, redactor: Redactor, urgency: int) -> Transcript:
    """Masks texts and words; an entity becomes one word. An interim loses its end, which may become
    part of an entity; a final is remembered for the text after it."""
    segments = transcript.segments
    separator = separator_of(transcript.language)
    spoken = [
        (at, word)
        for at, segment in enumerate(segments)
        for word in segment.words or (Word(segment.text, segment.start, segment.end, 0.0),)
    ]
    text = JOINT.join(word.word for _, word in spoken)
    redactor.redaction = replace(redactor.redaction, language=transcript.language)
    plain = text.replace(JOINT, separator or JOINT)
    taken, entities = redactor.take(
        plain, separator, grows=urgency == INTERIM, keeps=urgency == FINAL
    )
    kept: list[list[Word]] = [[] for _ in segments]
    last = -1
    for part in masked(text[: len(taken)].rstrip(), entities).split(JOINT):
        at, word = spoken[last + 1]
        last += 1 + part.count(MERGED)
        end = spoken[last][1].end
        kept[at].append(replace(word, word=part.replace(MERGED, ""), end=end))
    redacted = []
    for segment, words in zip(segments, kept, strict=True):
        if text := separator.join(word.word for word in words):
            timed = tuple(words) if segment.words else ()
            redacted.append(replace(segment, text=text, words=timed))
    return replace(transcript, segments=tuple(redacted))


def _formatted(segment: Segment, language: str, form: TranscriptStyle) -> Segment:
    spoken = segment.text.split()
    is_timed = len(segment.words) == len(spoken)
    timed = segment.words if is_timed else tuple(Word(word, 0, 0, 0) for word in spoken)
    if form.numerals:
        timed = tuple(_with_digits(timed, language))
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
    """Removes the marks around a word; keeps a mask as it is."""
    return word if _MASK.search(word) else _MARKS.sub("", word)


def bare_word(word: str) -> str:
    """Removes the marks around a word and its capitals; keeps a mask as it is."""
    return word if _MASK.search(word) else unpunctuated(word).lower()


_COUNTED_BY = frozenset("grader graders date dates time times".split())  # "fifty first dates"
_VARIANTS = {"fr": ("fr_BE", "fr_CH"), "pt": ("pt",)}  # "septante", "dezasseis"
# Other forms of names of numbers: "trois cent mille", "hundertzwanzig", "a hundred and twenty"
_WRITTEN_OTHERWISE = {
    "ar": {"مائ": "مئ"},
    "de": {"^ein(?=hundert|tausend.)": ""},
    "en": {"^one (?=hundred .)": "a "},
    "fr": {"(?<=cent|ingt)s$": ""},
    "it": {"(?<=.)tré$": "tre", "(?<=.)uno$": "un"},
}
_PERCENT = frozenset(("percent", "prozent", "procent", "percento"))


def _with_digits(words: Sequence[Word], language: str) -> Iterator[Word]:
    """Writes words that name a number in digits; the longest match wins."""
    numbers = _numbers(language)
    at = 0
    was_number = False
    while at < len(words):
        number_at = _long_number_at(words, at, language) if _joined_thousand(language) else None
        end, number = number_at or _number_at(words, at, numbers)
        ordinal_end, ordinal = _ordinal_at(words, at, language)
        digits = ""
        if ordinal_end > end or ordinal:
            end = ordinal_end
            was_number = False
            digits = ordinal
        elif number is not None:
            if SMALL <= number < SCALE:
                end, number = _with_thousands(words, at, end, number, language)
            end, decimals = _decimals_after(words, at, end, language)
            follows = _plain(words[end : end + 1]) in numbers
            was_number = bool(decimals) or number >= SMALL or was_number or follows
            digits = f"{number}{decimals}" if was_number else ""
        else:
            was_number = False
        last = words[end - 1]
        if digits:
            marks = last.word.removeprefix(_END.sub("", last.word))
            mean = mean_confidence(words[at:end])
            yield Word(f"{digits}{marks}", words[at].start, last.end, mean)
        else:
            yield from words[at:end]
        at = end


def _ordinal_at(words: Sequence[Word], at: int, language: str) -> tuple[int, str]:
    """Returns the end of the longest ordinal from ten on at a place, and in English its digits,
    unless it may be a fraction, as in "one twentieth", or a time, as in "a thirty second wait"."""
    end, number = _number_at(words, at, _ordinals(language))
    if number is None:
        return at, ""
    before = _plain(words[max(0, at - 1) : at])
    after = _plain(words[end : end + 1])
    if words[end - 1].word.casefold().startswith("second") and number > SMALL:
        if before not in words_for(language).months and after != "of":
            return at, ""
    is_fraction = (
        before == "a" or after in _COUNTED_BY or before in _numbers(language) or number % 100 == 0
    )
    if language != "en" or is_fraction:
        return end, ""
    is_teen = number // 10 % 10 == 1
    suffix = "th" if is_teen else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return end, f"{number}{suffix}"


def _decimals_after(words: Sequence[Word], at: int, end: int, language: str) -> tuple[int, str]:
    """Returns the end of decimals after a number, as in "point five", and their digits with a mark.
    "At one point two people left" has none, nor has "one point two point three": a single digit
    must end the clause or stand before "percent", "million" and the like."""
    names, numbers = words_for(language), _numbers(language)
    point = _plain_name(" ".join(names.decimal("1.5").split()[1:-1]))
    before = _plain(words[max(0, at - 1) : at])
    is_moment = before == point or f"{before} {_plain(words[at:end])}" == "at one"
    is_followed = end + 1 < len(words) and words[end].word.casefold() == point
    if is_moment or not is_followed or _END.search(words[end - 1].word):
        return end, ""
    digits = ""
    position = end + 1
    while position < len(words):
        digit = numbers.get(_plain(words[position : position + 1]), SMALL)
        if language == "en" and words[position].word.casefold() in ("o", "oh"):
            after = _plain(words[position + 1 : position + 2])
            digit = 0 if numbers.get(after, SMALL) < SMALL else SMALL
        if digit >= SMALL:
            break
        digits += str(digit)
        position += 1
        if _END.search(words[position - 1].word):
            break
    if not digits:  # "trois virgule vingt-cinq"
        position, number = _number_at(words, end + 1, numbers)
        digits = str(number) if number is not None and number < 100 else ""
    is_last = position == len(words) or bool(_END.search(words[position - 1].word))
    after = _plain(words[position : position + 1])
    is_sure = is_last or (len(digits) > 1 and after not in (point, "hundred"))
    is_decimal = digits and (is_sure or after in _PERCENT | _scales(language))
    return (position, f"{names.decimal_mark}{digits}") if is_decimal else (end, "")


def _with_thousands(
    words: Sequence[Word], at: int, end: int, number: int, language: str
) -> tuple[int, int]:
    """Extends a number by "thousand" and hundreds to a whole name, such as "twelve thousand five
    hundred"; returns its end and value. "Ten thousand" and "ten thousand five star reviews" stay.
    """
    names, numbers = words_for(language), _numbers(language)
    begin = end + 1
    if language != "en":  # "between ten thousand and five hundred"
        begin += _plain(words[begin : begin + 1]) == names.and_word
    rest_end, rest = _number_at(words, begin, numbers)
    thousand = _plain(words[end : end + 1])
    is_number = numbers.get(thousand) == SCALE  # "mil", which would be a number by itself
    before = words[at - 1].word.casefold() if at else ""  # "one million two hundred thousand"
    scales = {thousand} if is_number else _scales(language)
    least = 1 if is_number else 100
    ends = [(rest_end, rest)] if rest is not None and least <= rest < SCALE else []
    for last, rest in [*ends, (end + 1, 0)] if is_number else ends:  # "dix mille"
        total = number * SCALE + rest
        after = _plain(words[last : last + 1])
        is_article = rest == 1 and last > end + 2  # "dez mil e um carro"
        if {before, after} & scales or before in numbers or is_article:
            continue
        spoken = {_plain_name(names.read(str(total), kind)) for kind in ("cardinal", "feminine")}
        if begin == end + 1:  # "dois mil trezentos"
            both = f"{thousand} {names.and_word} "
            spoken |= {name.replace(both, f"{thousand} ") for name in spoken}
        if _plain(words[at:last]) in spoken:
            return last, total
    return end, number


def _number_at(words: Sequence[Word], at: int, numbers: dict[str, int]) -> tuple[int, int | None]:
    """Returns the end and the value of the longest number below `MOST` at a place."""
    for length in range(min(LONGEST, len(words) - at), 0, -1):
        name = _plain(words[at : at + length])
        number = numbers.get(name)
        has_and = any(word.word == "and" for word in words[at : at + length])
        after = _plain(words[at + length : at + length + 1])
        if has_and and after == "hundred":  # "between a hundred and two hundred"
            continue
        if number is not None and (has_and or not name.startswith("a ")):  # "a hundred five stars"
            return at + length, number
    return at + 1, None


def _long_number_at(words: Sequence[Word], at: int, language: str) -> tuple[int, int | None]:
    """Returns the end and the value of a number in a language that joins the words of a number. Its
    name may have spaces, such as "tweeduizend vijf", or thousands: "zwanzigtausendfünfhundert"."""
    names, numbers = words_for(language), _numbers(language)
    end, number = _number_at(words, at, numbers)
    for length in range(min(LONGEST, len(words) - at), 0, -1):
        parts = _plain(words[at : at + length]).split()
        is_choice = any(
            numbers.get(first + second, SCALE) < 100
            and numbers.get(first, 0) < numbers.get(second, 0)
            for first, second in pairwise(parts)
        )
        if names.and_word in parts or is_choice:  # "in fünf zehn Minuten" is not 15
            continue
        above, thousand, below = "".join(parts).partition(_joined_thousand(language))
        value = numbers.get(above + thousand + below)
        if value is None and thousand and numbers.get(above, SCALE) < SCALE:
            rest = numbers.get(below, SCALE) if below else 0
            value = numbers[above] * SCALE + rest if rest < SCALE else None
        if value is not None and at + length >= end:
            return at + length, value
    return end, number


def _plain(words: Sequence[Word]) -> str:
    """Normalises words for the table of numbers; a mark may follow only the last."""
    return _plain_name(" ".join(word.word for word in words))


def _plain_name(name: str) -> str:
    return _END.sub("", name.casefold().replace("-", " ")).replace(" and ", " ")


@lru_cache(maxsize=128)
def _scales(language: str) -> frozenset[str]:
    """Returns the words for thousands and above, such as "tysiąc", "tysięcy" and "करोड़"."""
    counts = (count * scale for count in (1, 2, 5) for scale in (SCALE, 10**6, 10**7, 10**9))
    names = (words_for(language).read(str(count), "cardinal") for count in counts)
    return frozenset(_plain_name(name).rpartition(" ")[2] for name in names)


@lru_cache(maxsize=128)
def _ordinals(language: str) -> dict[str, int]:
    words = words_for(language)
    cases = words.readings.inflections  # "w dwa tysiące dwudziestym czwartym roku"
    most = (2100 if cases else SCALE) * words.spells
    ordinals = {words.ordinal(number): number for number in range(SMALL, most)}
    for kind in cases:
        ordinals = {words.read(name, kind): number for name, number in ordinals.items()} | ordinals
    return {_plain_name(name): number for name, number in ordinals.items()}


@lru_cache(maxsize=128)
def _joined_thousand(language: str) -> str:
    """Returns the end of the name of 12,000 where it is one word, such as "tausend"."""
    words = words_for(language)
    twelve, thousands = words.integer("12"), words.integer("12000")
    is_joined = words.spells and thousands.startswith(twelve) and " " not in thousands
    return thousands.removeprefix(twelve) if is_joined else ""


@lru_cache(maxsize=128)
def _numbers(language: str) -> dict[str, int]:
    words = words_for(language)
    if not words.spells:
        return {}
    names = {words.year(year): year for year in range(1100, 2100)}
    for kind in ("counted", "cardinal"):  # forms may differ before a noun
        names |= {words.read(str(number), kind): number for number in range(MOST)}
    names |= {words.read(str(number), "feminine"): number for number in range(20, SCALE)}
    for variant in _VARIANTS.get(language, ()):
        names |= {num2words(number, lang=variant): number for number in range(SCALE)}
    if language == "fr":  # years, as in "dix-neuf cent cinq"
        names |= {
            f"{words.integer(str(year // 100))} cent {words.integer(str(year % 100))}": year
            for year in range(1100, 2000)
            if year % 100
        }
    plain = {_plain_name(name): number for name, number in names.items()}
    for find, becomes in _WRITTEN_OTHERWISE.get(language, {}).items():
        plain |= {re.sub(find, becomes, name): plain[name] for name in plain}
    return plain
