"""Lines of plain text that begin chapters, by the words of `configs/headings.yaml`."""

import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cache
from itertools import islice, pairwise

from pydantic import TypeAdapter

from configs.load import load_yaml
from configs.schema.jobs import HeadingWords
from pipelines.jobs.documents.book import MAX_TITLE, Chapter
from pipelines.text.normalisation.number_words import words_for

_ROWS = load_yaml(TypeAdapter(tuple[HeadingWords, ...]), "headings")
_LARGEST = 199  # number of a chapter that is written in words

_NOUNS = "|".join(sorted({noun for row in _ROWS for noun in row.nouns}))
_ALONE = "|".join(word for row in _ROWS for word in row.alone)
_EXTRAS = frozenset(title.casefold() for row in _ROWS for title in row.extras)
# A noun that is a first name, in capitals, with an initial or a number: "TOM V. SMITH".
_NAMES = "|".join(name.upper() for row in _ROWS for name in row.names)
_BESIDE_NAMES = frozenset(noun for row in _ROWS if row.names for noun in row.nouns) - {
    name for row in _ROWS for name in row.names
}
_NAME = re.compile(rf"({_NAMES})[ \t]{{1,4}}([A-Z])\.[ \t]{{1,4}}\w")
_AUTHOR = re.compile(r"I\.[ \t]{1,4}[^\W\d_]+(?:[ -][^\W\d_]+){0,2}")
# Numbers in digits, and well-formed Roman numbers ("PART CIVIL" has none). What may be a word, such
# as "A" and "i", stands alone or before a mark.
_NUMERAL = "C{0,4}(?:XC|XL|L?X{0,4})(?:IX|IV|V?I{0,4})"
_SIGN = re.compile(
    rf"(?:\d{{1,4}}(?:st|nd|rd|th)?|(?=\w){_NUMERAL}|(?=\w\w){_NUMERAL.lower()}"
    r"|[A-Zivxlc](?=[ \t]*+(?:[.:—–-]|\Z)))(?!\w)"
)
_BESIDE = {"I": "II", "V": "IV", "X": "IX", "L": "XLIX", "C": "XCIX"}
# Repetitions are bounded or possessive here and below, so that no text takes long to match.
_CAPITAL = r"(?-i:[^\W_a-zà-öø-ÿа-я])"
_LINE = re.compile(
    rf"(?:\A|\n[ \t]*\n)[ \t]{{0,40}}(?P<line>(?:(?P<noun>{_NOUNS})[ \t]{{1,4}}(?=\w)"
    rf"|(?P<before>{_CAPITAL}[^\W\d_]{{0,20}})[ \t](?P<after>{_NOUNS})(?!\w)"
    rf"|(?:{_ALONE})(?!\w)"
    r"|(?-i:(?P<number>[IVXLC]{1,8}|\d{1,3})(?=[.:]?[ \t]*+$|[.:][ \t]{1,4}[^\n]{1,80}$)))"
    r"(?P<rest>[^\n]{0,120}+))$",
    re.MULTILINE | re.IGNORECASE,
)
_TITLE = re.compile(r"[.:]?(?:[ \t]{1,4}([^\sa-zà-öø-ÿа-я](?:.{0,79}\S)?)|[ \t]?[—–]\S.{0,79})?")
_SMALL = "[a-zß-öø-ÿа-я]"
# The title of a chapter under its number: a line by itself that ends no sentence, and that no
# sentence continues.
_SUBTITLE = re.compile(
    r"\s*\n[ \t]*((?!\d)[^\W_a-zà-öø-ÿа-я](?:[^\n]{0,59}[^\s.!?…:,;”\"\]—–-])?)"
    rf"(?<![.!?…,][_*’'»)])[ \t]*+\n[ \t]*+\n(?!\s{{0,9}}+{_SMALL})"
)
_GOES_ON = re.compile(rf"[ \t]*+\n[ \t]{{0,40}}+{_SMALL}")
_BY = "|".join(sorted({word for row in _ROWS for word in row.by}))
# The title of a text, alone or above the line with its author: "by Ann Hill".
_TITLE_LINES = re.compile(
    r"\s*+(?=[^\n]{0,79}[^\W\d_])(?P<title>[^\n]{0,79}[^\s.!?…:,;])[ \t]*+\n"
    rf"(?:\s{{0,9}}+(?i:{_BY})[ \t]{{1,4}}(?P<author>(?!\d){_CAPITAL}[^\n]{{0,59}}[^\s.!?…:,;])"
    r"[ \t]*+(?:\n[ \t]*+\n|\Z)|[ \t]*+\n)"
)
_NUMBERED = re.compile(rf"(?:(?P<noun>{_NOUNS}) )?(?P<rest>.{{1,80}}?)[.:]?", re.IGNORECASE)
_LONE_LINE = re.compile(r"(?:\A|\n[ \t]*\n)[ \t]{0,40}([^\s][^\n]{0,59})$", re.MULTILINE)
# The page at the end of an entry in a table of contents.
_ENTRY_PAGE = re.compile(r"(?:[ \t]{2}|\t|[.…·][ \t]?[.…·])[ \t.…·]*+\d{1,4}[ \t]*+$")
# Years and other numbers of four digits are text.
_PAGE_NUMBER = re.compile(r"(?<=\n\n)[ \t]{0,80}(\d{1,3})[ \t]*+(?:\n(?=\n)|\s*+\Z)")
_WORDS = re.compile(r"[^\W_]+")
_MOST_WORDS = 8  # words of a number
_MOST_LISTS = 5  # titles of extra chapters, one of which may be the table of contents
_LONGEST_LIST = 20_000  # characters of a table of contents
_LONGEST_ENTRY = 2000  # characters of its first entry


@dataclass(frozen=True, slots=True)
class _Heading:
    """A line that begins a chapter, with its place in the text."""

    start: int
    end: int
    line: str
    has_title: bool
    number: int = 0  # number of a line without a noun; 0 for others
    number_end: int = 0


@dataclass(frozen=True, slots=True)
class _NumberWords:
    """Words of cardinals and ordinals."""

    spelled: frozenset[str]
    listed: re.Pattern[str]
    joins: frozenset[str]  # words between those of a number

    def has(self, word: str) -> bool:
        word = word.casefold()
        return word in self.spelled or self.listed.fullmatch(word) is not None


def title_and_author(text: str) -> tuple[str, str]:
    """Return the title and the author in the first lines of a plain text, each empty if absent."""
    lines = _TITLE_LINES.match(text)
    return (lines["title"], lines["author"] or "") if lines else ("", "")


def plain_chapters(text: str, title: str) -> tuple[list[Chapter], int]:
    """Return the chapters of a plain text, and the number of page numbers that are left out.
    `title` is that of the text before the first chapter."""
    at = 0
    spoken = ""  # the number of a chapter as digits, which are read in every language
    headings = _without_entries(text, _headings(text))
    starts = {heading.start for heading in headings}
    page_numbers = [
        int(match[1]) for match in _PAGE_NUMBER.finditer(text) if match.start(1) not in starts
    ]
    if any(number >= following for number, following in pairwise(page_numbers)):
        page_numbers = []
    subtitles = _subtitles(text, headings)
    chapters = list[Chapter]()
    for heading in (*headings, None):
        end = heading.start if heading else len(text)
        body = text[at:end]
        chapters.append(
            Chapter(title, spoken + (_PAGE_NUMBER.sub("", body) if page_numbers else body))
        )
        if heading:
            title = f"{heading.line} {subtitles.get(end, '')}".rstrip()
            at = end
            spoken = f"{heading.number}\n\n" if heading.number else ""
            if heading.number:
                at = heading.number_end
                at += text[at : at + 1] in (".", ":")
    return chapters, len(page_numbers)


def is_extra(title: str) -> bool:
    """Whether listeners usually leave out a chapter with this title."""
    return title.strip(" \t.:").casefold() in _EXTRAS


def follows(title: str, above: str) -> bool:
    """Whether a heading is the title under a number, such as "The Sea" after "Chapter One"."""
    match, below = (
        _NUMBERED.fullmatch(" ".join(text[:MAX_TITLE].split())) for text in (above, title)
    )
    if match is None or _number_end(match["rest"], match["noun"]) != len(match["rest"]):
        return False
    if below is None:
        return True
    end = _number_end(below["rest"], below["noun"])
    is_like_above = below["noun"] == match["noun"] and end == len(below["rest"])
    return not (end and (below["noun"] or is_like_above))


def _subtitles(text: str, headings: list[_Heading]) -> dict[int, str]:
    """Return the titles below headings, by the places of the headings. They count if most headings
    of a kind have one; otherwise, such a line is a sentence."""
    starts = {heading.start for heading in headings}
    below = defaultdict[str, dict[int, str]](dict)  # by the noun of the headings
    for heading in headings:
        if not heading.has_title:
            kind = "" if heading.number else heading.line.split(maxsplit=1)[0].casefold()
            line = _SUBTITLE.match(text, heading.end)
            is_title = line and line.start(1) not in starts
            below[kind][heading.start] = line[1] if line and is_title else ""
    return {
        start: line
        for lines in below.values()
        if 2 * sum(map(bool, lines.values())) > len(lines)
        for start, line in lines.items()
    }


def _without_entries(text: str, headings: list[_Heading]) -> list[_Heading]:
    """Replace the entries of a table of contents, which are repeated later or have a page, by its
    title."""
    titles = (match for match in _LONE_LINE.finditer(text) if is_extra(match[1]))
    for match in islice(titles, _MOST_LISTS):
        start = match.start(1)
        above = [heading for heading in headings if heading.start < start]
        below = [heading for heading in headings if heading.start > start]
        later = Counter(_entry(heading.line) for heading in below)
        entries = 0
        for heading, following in pairwise(below):
            later[_entry(heading.line)] -= 1
            # Titles of notes, too, stand above headings, but those begin chapters with a text.
            is_list = entries or following.start - heading.end < _LONGEST_ENTRY
            if not (is_list and later[_entry(heading.line)]):
                break
            entries += 1
        for count, heading in enumerate(below, 1):
            is_near = heading.start - start < _LONGEST_LIST
            if is_near and heading.has_title and _ENTRY_PAGE.search(heading.line):
                entries = max(entries, count)
        below = below[entries:]
        if not below:
            continue
        block = text[match.end(1) : below[0].start][:_LONGEST_LIST]
        if entries or _entry(below[0].line) in map(_entry, block.splitlines()):
            title = _Heading(start, match.end(1), match[1].rstrip(), has_title=True)
            return [*above, title, *below]
    return headings


def _entry(line: str) -> str:
    """Return the key of a heading and of its entry in a table of contents."""
    return " ".join(_ENTRY_PAGE.sub("", line[-MAX_TITLE:]).split()).strip(".: ").casefold()


def _headings(text: str) -> list[_Heading]:
    """Return the lines that begin chapters. Lines with a number and no noun count only if their
    numbers are consecutive, and reach 2. If two lines have the number 1, the one above may be
    a name ("I. Newton"). A name with an initial counts only if a neighbouring volume, or another
    heading of its language, is there."""
    headings = list[_Heading]()
    last = 0
    for match in _LINE.finditer(text):
        number = _value(match["number"])
        end = _number_end(match["rest"], match["noun"]) if match["noun"] else 0
        title = _TITLE.fullmatch(match["rest"][end:].rstrip())
        if title is None or (match["noun"] and not end):
            continue
        after = match["after"]
        if match["before"] and not _number_words(after and after.casefold()).has(match["before"]):
            continue
        is_next = number in (1, last + 1) and _is_title(
            title[1] or "", is_digit=match["number"].isdecimal()
        )
        if number and not is_next:
            continue
        if number == 1 and headings and headings[-1].number == 1:
            if _AUTHOR.fullmatch(headings[-1].line):
                headings.pop()
        last = number or last
        line = match["line"].rstrip()
        if number and title[1] and _GOES_ON.match(text, match.end()):  # a sentence, and no title
            line = match["number"]
        headings.append(
            _Heading(
                start=match.start("line"),
                end=match.start("line") + len(line),
                line=line,
                has_title=bool(title[0].strip(" \t.:")),
                number=number,
                number_end=match.end("number"),
            )
        )
    has_two = any(heading.number == 2 for heading in headings)
    nouns = {heading.line.split(maxsplit=1)[0].casefold() for heading in headings}
    volumes = {tuple(_WORDS.findall(heading.line.upper())[:2]) for heading in headings}

    def is_name(heading: _Heading) -> bool:
        name = _NAME.match(heading.line.upper())
        is_volume = name and (name[1], _BESIDE.get(name[2])) in volumes
        return name is not None and not is_volume and nouns.isdisjoint(_BESIDE_NAMES)

    return [
        heading for heading in headings if (not heading.number or has_two) and not is_name(heading)
    ]


def _number_end(text: str, noun: str | None) -> int:
    """Return the end of the number that begins a text, after a noun if there is one; else 0."""
    words = _number_words(noun and noun.casefold())
    end = last = 0
    for word, _ in zip(_WORDS.finditer(text), range(_MOST_WORDS), strict=False):
        if text[last : word.start()].strip(" \t-") or text[last : word.start()].count("\n"):
            break
        last = word.end()
        if _SIGN.match(text, word.start()):
            return end or last
        if words.has(word[0]):
            end = last
        elif word[0].casefold() not in words.joins:
            break
    return end


@cache
def _number_words(noun: str | None) -> _NumberWords:
    """Collect the words of the languages that have a noun in small letters; None: all, in 0.2 s."""
    rows = [row for row in _ROWS if noun is None or noun in row.nouns]
    joins = frozenset(word for row in rows for word in row.joins)
    listed = re.compile("|".join(word for row in rows for word in row.numbers))
    return _NumberWords(
        spelled=frozenset[str]().union(*(_spelled(row.language) for row in rows)) - joins,
        listed=listed,
        joins=joins,
    )


@cache
def _spelled(language: str) -> frozenset[str]:
    of = words_for(language)
    numbers = (
        f"{of.integer(str(number))} {of.ordinal(number)}" for number in range(1, _LARGEST + 1)
    )
    return frozenset(_WORDS.findall(" ".join(numbers).casefold()))


def _is_title(text: str, *, is_digit: bool) -> bool:
    """Whether a text after a number is a title, not an item of a list or a part of a sentence."""
    return not text or text.isupper() or not (is_digit or text.rstrip().endswith((".", "!", "?")))


def _value(written: str | None) -> int:
    if not written or written.isdecimal():
        return int(written or 0)
    return int(words_for("en").read(written, "roman"))
