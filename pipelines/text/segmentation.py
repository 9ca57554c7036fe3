"""Segments a text into cleaned paragraphs, read block by block, with sentences and words.

Sentence boundaries are those of sentencex (https://github.com/wikimedia/sentencex), corrected by
rules for abbreviations and marks in the languages of the voices.
"""

import re
import unicodedata
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from html import unescape

from sentencex import segment

from configs.schema.languages import language_words
from pipelines.text.normalisation.number_words import words_for
from pipelines.text.normalisation.wrapping import LINE_BREAK, UNSPACED, unwrapped
from pipelines.text.read_text import SIGNS, Phonemes, ReadText

FIRST_BLOCK = 500  # characters cleaned and split before the first chunk
BLOCK = 2000

_FULL_WIDTH_MARK = re.compile("(?<=[０-９])(?:，(?=[０-９]{3}(?![０-９]))|．(?=[０-９]))")
_BEFORE_CIRCLED = re.compile(r"(?<=\d)(?=[①-⑳⓪-⓿❶-➓])")  # "5❶" is not 51
# Matches entities that were escaped more than once.
_ENTITY = re.compile(r"&(?:amp;|#38;)*(#\d{1,7}|#[xX][\da-fA-F]{1,6}|[a-zA-Z][a-zA-Z\d]{1,30});")
_TOKEN = re.compile(r"\S+")
_LEADING_VOWELS = frozenset("เแโใไເແໂໃໄ")  # Thai and Lao vowels written before their consonant
_FOLLOWING = frozenset("ะาำๅຳະາーっッゝゞ々")  # letters that belong to the one before
_JOINERS = frozenset("\u200c\u200d")  # they join or separate letters of Indic scripts and Persian
_OPENING = ("Ps", "Pi")  # Unicode categories
# A longer run is no word that needs a timestamp, and segmenting it only costs time.
LONGEST_RUN = 400
_LOOKALIKES = frozenset("℃℉￥￡￠％＋－＝／＠")  # signs that are read as the ordinary ones
# ㎏, ㎧ and ㈱, without emoji, and letters in the forms that PDFs draw, as in "ﻼ" and "ﷺ", whose
# codes espeak-ng would read
_FORMS = re.compile(
    "[\u3200-\u321e\u322a-\u3247\u3260-\u327e\u328a-\u3296\u329a-\u32b0\u32c0-\u33ff"
    "\ufb00-\ufdfb\ufe70-\ufefc]"
)
_BOXED = re.compile(r"LATIN (CAPITAL|SMALL) LETTER ([A-Z])$")  # the names of Ⓐ, ⒜, 🄰 and 🅰
_APOSTROPHES = frozenset("´ʼ‛＇")  # typed for one, as in "don´t"
_NARROW_SPACES = frozenset("\u00a0\u202f")  # they group digits, which normalisation parses
_RAISED = frozenset("⁰⁴⁵⁶⁷⁸⁹ⁿⁱ")  # exponents, which normalisation reads
# Lines over, under and through a letter, and keys and circles around it
_DRAWN = re.compile("[\u0305\u0332-\u0338\u033f\u20d0-\u20f0]")

# Abbreviations that end no sentence before a lower-case letter; else they may end one.
_NO_END_BEFORE_SMALL = frozenset(
    "mon tue tues wed thu thur thurs fri sat sun jan feb mar apr jun jul aug sep sept oct nov dec "
    "etc ecc usw enz itd itp inc ltd corp co jr sr al r w str ok est s u.s u.k a.m p.m &c"
    " lb lbs oz cwt yd ft qt esq vol vols chap ed viz".split()
)
# Languages that write ordinals with a full stop: "17. mai", "Christian 4. var konge"
_DOTTED_ORDINALS = frozenset(
    "bs cs da de et eu fi fo hr hu is lb lv nb nn no pl sk sl sr tr".split()
)
_MAY_BE_ORDINAL = re.compile(r"(?<!\d)\d{1,2}\.$")  # no year and no code
_BEFORE_TELEPHONE = frozenset("tel tél telef cell nr núm".split())  # "Tel. (030) 1", "Tel. +49"
# After these a capital letter does begin a sentence, except in German, which capitalises nouns.
_MAY_END = re.compile(r"\b(?:[Ee](?:tc|cc|nz)|[Ii]t[dp])\.(?=\s+[^\W\d_a-zà-ÿ])")
_ANSWER = re.compile(r"\b[Nn]o\.(?=\s+(?![IVX]{2,})[^\W\d_a-zà-ÿ])")  # sentencex sees a number
# In German, sentencex ends no sentence before a number. No abbreviation looks like these verbs and
# particles; "so." alone may be a Sunday.
_BEFORE_NUMBER = re.compile(
    r"\b(?:[a-zäöüß]{2,}en|stimmt|kommt|geht|(?:ist|war|eben|auch|nicht) so|da|ja|gut|aus|auf|ist"
    r"|war|hat|nie|weg)\.(?=\s\d)"
)
_AFTER_BRACKET = re.compile(r"[.!?…][)\]](?=\s+(?:[\"“„«¿¡—–]\s?)?[^\W\d_a-zà-ÿ])")
_AFTER_MARKS = re.compile(r"(?<![!?…])[!?][!?…]++(?=\s+[^\W\d_a-zà-ÿ])")
# "EE. UU. El frío", "U.S.A. Les gens": sentencex knows this only in English.
_COUNTRY = re.compile(r"\b(?:S\.A|EE\. ?UU|V\.S)\.(?=\s+([^\W\d_a-zà-ÿ][^\W\d_]*))")
_PRONOUNS = frozenset(
    "il elle ils elles nous er sie es wir le les él ella ellos hij zij ze ele ela eles gli".split()
)
_WIDE_END = re.compile("(?<![。！？])[。！？]++[」』”’）》]*+(?=[^」』”’）》。！？…，、\\s])")
_WIDE_OPEN = frozenset("「『“（《")
_WIDE_CLOSE = frozenset("」』”）》")
_ROMAN = re.compile("[IVX]+")
_ROMAN_NUMBER = re.compile(r"(?:[IVXLC]{2,}|[ivx]{2,}|[IVX](?=[.,;)]))(?![\w’'-])")
_LAST_WORD = re.compile(r"(?:^|[\s(\[\"'“‘«„])[_–—-]*([^\s(\[\"'“‘«„]{1,12})\._?$")
_SAINT = re.compile(  # "en S. Merci" may be a size
    r"(?:Ant[oóô]nio|Bento|Francisco|François|Jean|Jorge|Jos[eé]|João|Juan|Luis|Luís|Martin|Martín"
    r"|Miguel|Pablo|Paulo?|Pedro|Pierre|Sebastião|Tomé|Vicente)\b"
)
_AFTER_QUOTE = re.compile(r"[»”] ?[,;a-zà-ÿ]")  # Italian "Che! », disse"
_EXCELLENCY = re.compile(r"[Ee]xc?\.")  # "V. Ex.ª"
_INITIAL = re.compile(r"^(?:[^\W\d_]\.-?)*[^\W\d_]$")
_SHORT = re.compile(r"[^\W\d_][\u0900-\u0dff]{0,3}\.")
_OLD_MONEY = re.compile(r"[\d½¼¾]_?[lsd]_?\._?$")  # 2l. 10s. 6d.
_BEFORE_PENCE = re.compile(r"\d{1,2}[½¼¾]?_?[sd]\b|[a-z(]")
_NOTE_MARK = re.compile(r"(?<=[^\W\d][.!?…”’])[⁰¹²³⁴-⁹]{1,3}(?!\S)")
_ENUMERATOR = re.compile(r"[(]?(?:\d{1,3}|[A-Za-z])[.)]{1,2}")
_NUMBER_SIGNS = frozenset(("n°", "nº", "№"))  # may have a full stop before a number
# sentencex takes the number of the next point of a list in one line for the end of the last point.
_LAST_NUMBER = re.compile(r"(?<=\s)[(]?\d{1,2}\.$")
_FIRST_POINT = re.compile(r"(?:(?<![\s\S])|(?<=: ))[(]?1\.[)]?\s")
_POINT = re.compile(r"(?<=\s)[(]?(\d{1,2})\.(?=[)]?\s+\S)")
_LEAST_POINTS = 3  # "1. We counted 2. Then we left."
_NUMBERED = frozenset(
    "act answer article bus chapter class day episode event exercise figure floor gate game grade"
    " group item lesson level line match number option page part phase platform point problem"
    " question room round row rule scene season section set stage step table task team test track"
    " unit verse version volume week year kapitel seite schritt teil aufgabe frage spiel tag"
    " übung chapitre étape partie exercice capítulo página paso parte ejercicio".split()
)
_ADDRESS = re.compile(r"://|www\.|@|\w/\w")
# The day before an abbreviated month, and the date after an abbreviated weekday.
_BEFORE_DATE = re.compile(r"(?:(\d)\.?\s(?:de\s)?)?([^\W\d_]*)\.$")
_DAY, _MONTH = r"(?:0?[1-9]|[12]\d|3[01])", "(?:0?[1-9]|1[0-2])"
_QUANTITY = r"(?:%|(?:mil|mio|mia|mln|ml[dn]|mrd|bil|тыс|мл[нр]|thous|tausend|hundred)|"
_QUANTITY += r"(?:of|van|von|der|des|d[ao]s|percent|prozent|procent|euro|dollar)s?\b)"
_DATE = re.compile(
    rf"(?:{_DAY}[./]{_MONTH}|{_MONTH}[./]{_DAY})(?!\d|\s?{_QUANTITY})"
    r"|\d{1,2}\.?\s(?:de\s|d['’])?([^\W\d_]{3,})",
    re.IGNORECASE,
)
_SPACE = re.compile(r"\s")
_MARK = re.compile(r"[.!?…。！？।؟۔॥]")
_ENDS_SURELY = re.compile(r"[\s。！？।]$")
_NEXT = " Xa"  # a possible continuation of a text: a word that may begin a sentence


def clean(text: str) -> str:
    """Clean a text of control characters, directional marks, emoji and stray surrogates.

    Lines end with a bare newline, and spaces are single characters of one kind. Letters and digits
    that only look special (full-width, mathematical, boxed) become ordinary ones, and so do HTML
    entities, as in "Tom &amp; Jerry".
    """
    if "&" in text:
        text = _ENTITY.sub(lambda entity: unescape(f"&{entity[1]};"), text)
    text = unicodedata.normalize("NFC", LINE_BREAK.sub("\n", text))
    text = _BEFORE_CIRCLED.sub(" ", text)
    text = _FULL_WIDTH_MARK.sub(lambda mark: "." if mark[0] == "．" else ",", text)
    if text.isascii() and text.isprintable():
        return text
    kept: list[str] = []
    for index, character in enumerate(text):
        if character in _JOINERS:
            before = kept[-1][-1:] if kept else ""
            after = text[index + 1 : index + 2]
            # Emoji are removed, and so are the joiners between them.
            joins = _is_word(before) and _is_word(after) and not before.isascii()
            kept.append(character if joins else "")
        else:
            kept.append(_clean_character(character))
    return unicodedata.normalize("NFC", "".join(kept))


def _is_word(character: str) -> bool:
    return bool(character) and unicodedata.category(character)[0] in "LM"


@lru_cache(maxsize=8192)
def _clean_character(character: str) -> str:
    category = unicodedata.category(character)
    if character == "\n" or character in _NARROW_SPACES or character in _RAISED:
        return character
    if character in _LOOKALIKES or _FORMS.match(character):
        return unicodedata.normalize("NFKC", character).strip().replace("\u2215", "/")
    if character in _APOSTROPHES:
        return "'"
    if category == "So" and (boxed := _BOXED.search(unicodedata.name(character, ""))):
        return boxed[2] if boxed[1] == "CAPITAL" else boxed[2].lower()
    if category in ("Zs", "Cc") or (category == "So" and character not in "°№"):
        return " "
    if category in ("Cf", "Cs", "Co", "Cn"):
        return ""
    if "\ufe00" <= character <= "\ufe0f" or "\U0001f3fb" <= character <= "\U0001f3ff":
        return ""  # variants and skin tones of the emoji before
    if _DRAWN.match(character):
        return ""
    if category[0] in "LN" and character > "\xff":  # Ⅷ, ᵃ and ① too, but not m²
        plain = unicodedata.normalize("NFKC", character)
        if "CIRCLED" in unicodedata.name(character, "") and category == "No":  # ❶ too
            plain = f"{unicodedata.numeric(character):g}"
        if len(plain) <= 4 and plain.isascii() and plain.isalnum():
            return plain
    return character


def is_speakable(text: str) -> bool:
    """Whether there is any letter or digit in `text`."""
    return any(map(str.isalnum, text))


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit with a timestamp: a word, or a letter in a script without spaces."""

    word: str
    start: int  # code points into the caller's text
    end: int
    clean_text: str
    clean_start: int  # code points into the cleaned paragraph
    mark: str = ""  # the name of a mark before the next word, which is no word itself


def spans(text: str) -> list[tuple[int, int]]:
    """Find the units of `text`: words, or in scripts that write no spaces, parts of them."""
    parts: list[tuple[int, int]] = []
    for match in _TOKEN.finditer(text):
        start, end = match.span()
        if UNSPACED.search(text, start, min(end, start + LONGEST_RUN)) is None:
            parts.append((start, end))
            continue
        while start < end:
            after = _unit_end(text, start, end)
            parts.append((start, after))
            start = after
    return parts


def _unit_end(text: str, start: int, end: int) -> int:
    """Return the end of a letter with its marks, or of a run of letters of a script with spaces."""
    position = start
    while position < end - 1 and (
        unicodedata.category(text[position]) in _OPENING or text[position] in _LEADING_VOWELS
    ):
        position += 1
    run = UNSPACED.match(text, position) is None and text[position].isalnum()
    position += 1
    while position < end:
        character = text[position]
        if run and character.isalnum() and UNSPACED.match(character) is None:
            position += 1
            continue
        joined = text[position - 1] in _JOINERS or character in _JOINERS
        clings = character in _FOLLOWING or not character.isalnum()
        opens = unicodedata.category(character) in _OPENING or character in _LEADING_VOWELS
        if opens or not (clings or joined):
            break
        position += 1
    return position


class Paragraph:
    """A paragraph of a text, cleaned block by block, with the caller's units of text in step."""

    def __init__(
        self,
        source: str,
        written: str,
        start: int,
        block: int,
        *,
        words: bool,
        read: ReadText | None = None,
    ) -> None:
        """Create a paragraph of `source`, which is the text `written` with its lines unwrapped;
        `read` is given if `written` is read in place of the caller's text."""
        self.text = ""  # cleaned and not yet taken
        self.taken = 0  # cleaned characters taken before `text`
        self._start = start
        self.is_whole = False  # whether nothing follows `text`
        self.end = start  # end of the source read so far; past the line break once it `is_whole`
        self.units: deque[Unit] = deque()
        self._source = source
        self._written = written
        self._words = words
        self._read = read
        self._clean = clean if read is None else _clean_between_signs
        self.read(block)

    def read(self, block: int = BLOCK) -> None:
        """Clean one more block."""
        source, start = self._source, self.end
        line_break = LINE_BREAK.search(source, start, start + block)
        if line_break:
            end, self.end, self.is_whole = line_break.start(), line_break.end(), True
        elif start + block >= len(source):
            end = self.end = len(source)
            self.is_whole = True
        else:
            end = self.end = _block_end(source, start, start + block)
        cleaned = self._clean(source[start:end])
        if self._words:
            self._add_units(source[start:end], start, self.taken + len(self.text))
        self.text += cleaned

    def take(self, count: int) -> None:
        self.text = self.text[count:]
        self.taken += count

    @property
    def source_end(self) -> int:
        """Return the approximate end of the taken text in the caller's text."""
        end = min(self._start + self.taken, self.end)
        return end if self._read is None else self._read.place(max(0, end - 1), end)[2]

    def take_phonemes(self, text: str) -> tuple[str, Phonemes]:
        """Takes phonemes like `ReadText.take_phonemes`."""
        return (text, ()) if self._read is None else self._read.take_phonemes(text)

    def units_before(self, position: int) -> list[Unit]:
        """Takes the units that begin before `position` of the cleaned paragraph."""
        units: list[Unit] = []
        while self.units and self.units[0].clean_start < position:
            units.append(self.units.popleft())
        return units

    def _add_units(self, block: str, start: int, clean_start: int) -> None:
        position, read = 0, self._read
        words = spans(block)
        for first, last in words if read is None else read.joined(words, start):
            clean_start += len(self._clean(block[position:first]))
            cleaned = self._clean(block[first:last])
            word = self._written[start + first : start + last].rstrip()
            begins = start + first
            unit = Unit(word, begins, begins + len(word), cleaned, clean_start)
            if read is not None:
                self._add_marks(read, begins, clean_start)
                bare, _ = read.take_phonemes(cleaned)
                unit = Unit(*read.place(unit.start, unit.end), bare, clean_start)
            self.units.append(unit)
            clean_start += len(cleaned)
            position = last
        if read is not None:
            self._add_marks(read, start + len(block), max(0, clean_start - 1))

    def _add_marks(self, read: ReadText, position: int, clean_start: int) -> None:
        """Adds the marks up to a position in the read text."""
        while read.marks and read.marks[0][0] <= position:
            _, name, place = read.marks.popleft()
            self.units.append(Unit("", place, place, "", clean_start, name))


def _clean_between_signs(text: str) -> str:
    parts = SIGNS.split(text)
    return "".join(part if index % 2 else clean(part) for index, part in enumerate(parts))


def paragraphs(text: str, *, words: bool, read: ReadText | None = None) -> Iterator[Paragraph]:
    """Yield the paragraphs of `text`, which end at line breaks that do not only wrap them. With
    `words`, they keep the caller's units of text, whose places are those of `read` if given."""
    source = unwrapped(text)
    position, block = 0, FIRST_BLOCK
    while position < len(source):
        paragraph = Paragraph(source, text, position, block, words=words, read=read)
        yield paragraph
        while not paragraph.is_whole:  # the rest has nothing to speak
            paragraph.take(len(paragraph.text))
            paragraph.read()
        position, block = paragraph.end, BLOCK


def _block_end(source: str, start: int, end: int) -> int:
    """Returns the position after the last space of a block; without spaces, between two letters."""
    for position in range(end, start + (end - start) // 2, -1):
        if source[position - 1].isspace():
            return position
    for position in range(end, end - 64, -1):
        if is_letter_start(source, position):
            return position
    return end


def is_letter_start(text: str, position: int) -> bool:
    """Whether a new letter starts at `position`, not a mark of the letter before it."""
    if position >= len(text):
        return True
    before, after = text[position - 1], text[position]
    joined = before in _JOINERS or after in _JOINERS or before in _LEADING_VOWELS
    virama = unicodedata.combining(before) == 9  # the next consonant is written below this one
    jamo = "\u1160" <= after <= "\u11ff"  # vowels and finals of a Korean syllable
    return not (joined or virama or jamo or unicodedata.category(after)[0] == "M")


def sentence_spans(paragraph: str, language: str) -> list[tuple[int, int]]:
    """Find the spans of the sentences of a cleaned paragraph, without the spaces around them. Only
    spaces lie between them. A part without a letter or digit joins its neighbour."""
    spans: list[tuple[int, int]] = []
    points = _points(paragraph, language)
    for start, end in _trimmed(paragraph, _cuts(paragraph, language)):
        if spans and _is_one_sentence(paragraph, spans[-1], (start, end), language):
            spans[-1] = (spans[-1][0], end)
            continue
        if points and spans:
            begin, last = spans[-1]
            number = _LAST_NUMBER.search(paragraph, max(begin + 1, last - 4), last)
            if number and number.start() in points:
                start = number.start()
                spans[-1] = (begin, begin + len(paragraph[begin:start].rstrip()))
        spans.append((start, end))
    return spans


def _points(paragraph: str, language: str) -> list[int]:
    """Finds the numbers of the points of a list in one line, as in "1. Open it 2. Close it 3. Go".

    The number in "Read chapter 2." or "We have 2." is none.
    """
    first = _FIRST_POINT.search(paragraph)
    if first is None:
        return []
    words = language_words(language)
    counted = _NUMBERED | words.bound | words.prepositions
    starts = [first.start()]
    for point in _POINT.finditer(paragraph, first.end()):
        word = paragraph[max(first.end(), point.start() - 32) : point.start()].split()[-1:]
        if int(point[1]) == len(starts) + 1 and word and word[0].lower() not in counted:
            starts.append(point.start())
    return starts if len(starts) >= _LEAST_POINTS else []


def finished(text: str, language: str, *, sure: bool = True) -> int:
    """Counts the characters of a growing text that are whole sentences and lines.

    A sentence at the end counts when a capital would begin the next one. If `sure`, a numeral or a
    small letter must not continue it either, and it must end with the space or full-width stop that
    shows that its last mark is complete.
    """
    text = unwrapped(text)
    line = text.rfind("\n") + 1
    rest = text[line:]
    if not _MARK.search(rest):
        return line
    bare = rest.rstrip()
    complete = rest[: rest.rfind(" ") + 1].rstrip()  # without a word that still grows
    if sure and _may_go_on(complete, language):
        bare = complete
    may_be_ordinal = language in _DOTTED_ORDINALS and _MAY_BE_ORDINAL.search(bare)
    may_go_on = sure and _may_go_on(bare, language)
    following = _NEXT.lower() if may_be_ordinal or may_go_on else _NEXT
    if sure and bare.rfind("«") > bare.rfind("»"):
        following = " »"
    starts = [start for start, _ in sentence_spans(bare + following, language)]
    if sure and starts[-1] >= len(bare) and not _ENDS_SURELY.search(rest):
        starts.pop()
    return line + min(starts[-1], len(rest)) if starts else line


def _may_go_on(text: str, language: str) -> bool:
    """Whether the word after an abbreviation or numeral decides if it ends a sentence."""
    word = _LAST_WORD.search(text[-16:])
    if word is None:
        return False
    is_money = language == "en" and _OLD_MONEY.search(text[-6:]) is not None
    is_numeral = _ROMAN_NUMBER.fullmatch(word[1]) is not None
    return is_money or is_numeral or word[1].lower() in _NO_END_BEFORE_SMALL


def _cuts(paragraph: str, language: str) -> Iterator[int]:
    """Yield the ends of sentences by sentencex, and those that it misses, in order."""
    position = 0
    for sentence in segment(language, paragraph):
        for end in _missed_ends(sentence, language):
            yield position + end
        position += len(sentence)
        mark = _NOTE_MARK.match(paragraph, position)  # belongs to the sentence before it
        yield mark.end() if mark else position


def _missed_ends(sentence: str, language: str) -> list[int]:
    patterns = [_AFTER_BRACKET, _AFTER_MARKS]
    if language != "de":
        patterns.append(_MAY_END)
    if language in ("en", "es", "it"):
        patterns.append(_ANSWER)
    if language == "de":
        patterns.append(_BEFORE_NUMBER)
    ends = {match.end() for pattern in patterns for match in pattern.finditer(sentence)}
    if language != "en" and ("S." in sentence or "U." in sentence):
        words = language_words(language)
        begin = _PRONOUNS | words.bound | words.prepositions | words.conjunctions
        countries = _COUNTRY.finditer(sentence)
        ends |= {country.end() for country in countries if country[1].lower() in begin}
    if "。" in sentence or "！" in sentence or "？" in sentence:
        depth = counted = 0
        for match in _WIDE_END.finditer(sentence):
            for character in sentence[counted : match.end()]:
                depth += (character in _WIDE_OPEN) - (character in _WIDE_CLOSE)
            counted = match.end()
            if depth <= 0:
                ends.add(match.end())
    return sorted(ends)


def _trimmed(paragraph: str, cuts: Iterator[int]) -> Iterator[tuple[int, int]]:
    start = 0
    for cut in cuts:
        text = paragraph[start:cut]
        if bare := text.strip():
            begin = start + len(text) - len(text.lstrip())
            yield begin, begin + len(bare)
        start = cut


def _is_one_sentence(
    paragraph: str, before: tuple[int, int], after: tuple[int, int], language: str
) -> bool:
    """Whether two sentences of sentencex are one."""
    start, end = before
    following = paragraph[after[0] : after[0] + 1]
    if not is_speakable(paragraph[after[0] : after[1]]) or following in ",;":
        return True
    if _AFTER_QUOTE.match(paragraph, after[0]):
        return True
    if following in "-–—" and paragraph[after[0] : after[0] + 4].strip("-–— ")[:1].islower():
        return True
    if after[1] - start > 3 and _ENUMERATOR.fullmatch(paragraph, start, end):
        return True
    if end == after[0] and _inside_word(paragraph, end):
        return True
    if language == "en" and _OLD_MONEY.search(paragraph, max(start, end - 6), end):
        return _BEFORE_PENCE.match(paragraph, after[0]) is not None
    match = _LAST_WORD.search(paragraph[max(start, end - 16) : end])
    if match is None:
        return False
    word = match[1]
    key = word.lower()
    words = language_words(language)
    if key in (words.goes_on or language_words("en").goes_on):
        return True
    is_number = word[-1].isdecimal() or _ROMAN.fullmatch(word) is not None
    if is_number and following.islower() and language in _DOTTED_ORDINALS:
        return True
    numeral = _ROMAN_NUMBER.match(paragraph, after[0])
    joins = not words.goes_on_before_number.isdisjoint((key, word))
    if numeral and joins and (key != "no" or numeral[0] != "I"):
        return True  # "vol. ii", but not "No. I, too"
    if language == "pt" and key in ("s", "v", "vv") and _EXCELLENCY.match(paragraph, after[0]):
        return True
    if word == "S" and language in ("es", "fr", "pt") and _SAINT.match(paragraph, after[0]):
        return True
    if words.before_ordinal and is_number:
        preceding = paragraph[max(start, end - 40) : end].lower().split()[-2:][0]
        next_word = re.split(r"\W", paragraph[after[0] : after[0] + 20].lower(), maxsplit=1)[0]
        is_ordinal = preceding in words.before_ordinal or next_word in words.after_ordinal
        if is_ordinal or word[-1].isdecimal():
            return is_ordinal
    if following.isdigit() and key in _NUMBER_SIGNS:
        return True
    is_area_code = following == "(" and paragraph[after[0] + 1 : after[0] + 2].isdigit()
    if following in ("(", "+") and not is_area_code:
        return key in _BEFORE_TELEPHONE
    if following.isdigit() or is_area_code:
        *joined, last = re.split("[-–]", word)
        return (
            (bool(joined) and last.lower() in words_for(language).short_days)
            or not words.goes_on_before_number.isdisjoint((last, last.lower()))
            or (last[:1].isupper() and last.lower() in _NO_END_BEFORE_SMALL)
            or _is_date(
                paragraph[max(start, end - 24) : end],
                paragraph[after[0] : after[0] + 24],
                language,
            )
        )
    if following.islower():
        last = re.split("[-–]", key)[-1]
        is_numeral = _ROMAN_NUMBER.fullmatch(word) is not None  # "Louis XIV. était"
        return is_numeral or last in _NO_END_BEFORE_SMALL or _INITIAL.match(word) is not None
    return False


def _is_date(before: str, after: str, language: str) -> bool:
    """Whether a text ends with an abbreviated weekday before a date, or with an abbreviated month
    after a day; `after` begins with a number."""
    calendar = words_for(language)
    day, name = _BEFORE_DATE.findall(before)[0]
    if day:
        return name.lower() in calendar.short_months
    if language in ("en", "de") and not name[:1].isupper():  # "sat", "sun" and "so" are words
        return False
    date = _DATE.match(after)
    is_date = date is not None and (not date[1] or date[1].lower() in calendar.months)
    return is_date and name.lower() in calendar.short_days


def _inside_word(paragraph: str, position: int) -> bool:
    """Whether a boundary without a space lies in an address, a file name, a hyphenated name, a
    number or an abbreviation."""
    if paragraph[position] in "-–_/@ºª^":
        return True
    if paragraph[position].isdecimal() and paragraph[position - 2 : position - 1].isdecimal():
        return True  # "৩.১৪"
    before = _SPACE.split(paragraph[max(0, position - 80) : position])[-1]
    after = _SPACE.split(paragraph[position : position + 80], maxsplit=1)[0]
    if _SHORT.match(after) and _SHORT.fullmatch(before):
        return True  # "a.C.", "कि.मी."
    if before == "." or (before.isupper() and after.startswith("NET")):
        return True  # ".NET", "ASP.NET"
    return _ADDRESS.search(before + after) is not None
