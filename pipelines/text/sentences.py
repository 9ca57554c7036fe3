"""Sentence boundaries: those of sentencex, corrected by rules for abbreviations and marks.

Source: https://github.com/wikimedia/sentencex. The rules are for the languages of the voices.
"""

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache

from sentencex import segment

# Abbreviations after which a sentence goes on. sentencex knows most; these are the ones it cuts,
# and the commonest others. None of them is also a word that ends sentences.
_GO_ON: Mapping[str, frozenset[str]] = {
    language: frozenset(words.split())
    for language, words in {
        "en": "dr mr mrs ms mx prof gen gov sen rep capt col lt sgt maj rev hon st messrs vs "
        "approx dept e.g i.e cf viz ph.d m.d ft mt ave a.k.a",
        "de": "dr prof hr med phil jur rer nat dipl ing geb gest bzw z d.h z.b u.a o.ä ca vgl sog "
        "inkl exkl evtl ggf hl frl mio mrd zzgl bspw",
        "fr": "m mm mme mmes mlle mlles dr me pr st ste p.ex c.-à-d cf env av apr j tél ex p",
        "es": "sr sra sres srta srtas dr dra d dña ud uds prof lic ing av avda p.ej p aprox tel "
        "sto sta gral cía",
        "it": "sig sig.ra sig.na sigg dott dott.ssa prof prof.ssa ing avv geom on p.es es s ss",
        "pt": "sr sra srs sras srta dr dra prof profa eng av exmo exma p.ex p aprox tel d",
        "nl": "dhr mevr mw dr drs ir ing mr prof st bijv bv d.w.z o.a m.b.t t.o.v i.p.v ca incl "
        "excl",
        "pl": "dr hab prof mgr inż np tzn tzw ul al pl św ks płk gen por m.in",
        "ru": "ул т.е проф акад им см напр",
        "hi": "डॉ डा श्री श्रीमती प्रो पं सुश्री मो",
        "mr": "डॉ डा श्री सौ प्रा मा",
        "bn": "ডা ডাঃ ড মো প্রফ মি",
        "gu": "ડૉ ડો શ્રી પ્રો",
        "pa": "ਡਾ ਸ ਪ੍ਰੋ ਸ੍ਰੀ",
        "ta": "திரு திருமதி டாக்டர் பேரா டாக்",
        "te": "డా డాక్టర్ శ్రీ ప్రొ",
        "kn": "ಡಾ ಶ್ರೀ ಪ್ರೊ",
        "ml": "ഡോ ശ്രീ പ്രൊഫ",
        "ar": "د أ م ص أ.د",
        "fa": "د م",
    }.items()
}
# Those that go on only before a number: "No." is also an answer.
_GO_ON_BEFORE_NUMBER: Mapping[str, frozenset[str]] = {
    language: frozenset(words.split())
    for language, words in {
        "en": "no nos fig figs vol pp p ch sec art approx c ca para ed eq",
        "de": "nr s abs abb bd art kap str tel jh",
        "fr": "n no art p pp fig vol chap t",
        "es": "núm n no nº art pág págs p pp fig vol cap",
        "it": "n nr art pag pagg p fig vol cap",
        "pt": "n nº no art pág págs p fig vol cap",
        "nl": "nr art blz p fig vol hfst",
        "pl": "nr art str s rys t poz r ok",
        "ru": "с стр рис ст п",
    }.items()
}
# Those that go on only before a small letter: they may also end a sentence.
_GO_ON_BEFORE_SMALL = frozenset(
    "mon tue tues wed thu thur thurs fri sat sun jan feb mar apr jun jul aug sep sept oct nov dec "
    "etc ecc usw enz itd itp inc ltd corp co jr sr al r w str ok est s etc u.s u.k a.m p.m".split()
)
# After these a capital letter begins a sentence all the same; German writes its nouns so.
_MAY_END = re.compile(r"\b(?:[Ee](?:tc|cc|nz)|[Ii]t[dp])\.(?=\s+[^\W\d_a-zà-ÿ])")
_ANSWER = re.compile(r"\b[Nn]o\.(?=\s+(?![IVX]{2,})[^\W\d_a-zà-ÿ])")  # sentencex sees a number
_AFTER_BRACKET = re.compile(r"[.!?…][)\]](?=\s+[^\W\d_a-zà-ÿ])")
_AFTER_MARKS = re.compile(r"(?<![!?…])[!?][!?…]++(?=\s+[^\W\d_a-zà-ÿ])")
_WIDE_END = re.compile("(?<![。！？])[。！？]++[」』”’）》]*+(?=[^」』”’）》。！？…，、\\s])")
_WIDE_OPEN = frozenset("「『“（《")
_WIDE_CLOSE = frozenset("」』”）》")
_LAST_WORD = re.compile(r"(?:^|[\s(\[\"'“‘«„])([^\s(\[\"'“‘«„]{1,12})\.$")
_INITIAL = re.compile(r"^(?:[^\W\d_]\.-?)*[^\W\d_]$")
_ENUMERATOR = re.compile(r"^[(]?(?:\d{1,3}|[A-Za-z])[.)]$")
_ADDRESS = re.compile(r"://|www\.|@|\w/\w")
_SPACE = re.compile(r"\s")
_MARK = re.compile(r"[.!?…。！？।؟۔॥]")
_ENDS_SURELY = re.compile(r"[\s。！？।]$")
_NEXT = " Xa"  # what follows in a text that goes on: a word that may begin a sentence


def sentence_spans(paragraph: str, language: str) -> list[tuple[int, int]]:
    """The spans of the sentences of a cleaned paragraph, without the spaces around them.

    Only spaces lie between them. A part without a letter or digit joins its neighbour.
    """
    spans: list[tuple[int, int]] = []
    for start, end in _trimmed(paragraph, _cuts(paragraph, language)):
        if spans and _goes_on(paragraph, spans[-1], (start, end), language):
            spans[-1] = (spans[-1][0], end)
        else:
            spans.append((start, end))
    return spans


def finished(text: str, language: str, *, sure: bool = True) -> int:
    """How many characters of a text that still grows are whole sentences and lines.

    A sentence at its end counts when nothing that may follow could go on with it; when not `sure`,
    also without the space or the wide stop that shows that its last mark is its last.
    """
    line = text.rfind("\n") + 1
    rest = text[line:]
    if not _MARK.search(rest):
        return line
    starts = [start for start, _ in sentence_spans(rest.rstrip() + _NEXT, language)]
    if sure and starts[-1] >= len(rest.rstrip()) and not _ENDS_SURELY.search(rest):
        starts.pop()
    return line + min(starts[-1], len(rest)) if starts else line


def _cuts(paragraph: str, language: str) -> Iterator[int]:
    """Ends of sentences by sentencex, and those that it misses, in order."""
    position = 0
    for sentence in segment(language, paragraph):
        for found in _missed(sentence, language):
            yield position + found
        position += len(sentence)
        yield position


def _missed(sentence: str, language: str) -> list[int]:
    patterns = [_AFTER_BRACKET, _AFTER_MARKS]
    if language != "de":
        patterns.append(_MAY_END)
    if language in ("en", "es", "it"):
        patterns.append(_ANSWER)
    found = {match.end() for pattern in patterns for match in pattern.finditer(sentence)}
    if "。" in sentence or "！" in sentence or "？" in sentence:
        depth = counted = 0
        for match in _WIDE_END.finditer(sentence):
            for character in sentence[counted : match.end()]:
                depth += (character in _WIDE_OPEN) - (character in _WIDE_CLOSE)
            counted = match.end()
            if depth <= 0:
                found.add(match.end())
    return sorted(found)


def _trimmed(paragraph: str, cuts: Iterator[int]) -> Iterator[tuple[int, int]]:
    start = 0
    for cut in cuts:
        text = paragraph[start:cut]
        bare = text.strip()
        if bare:
            begin = start + len(text) - len(text.lstrip())
            yield begin, begin + len(bare)
        start = cut


def _goes_on(
    paragraph: str, before: tuple[int, int], after: tuple[int, int], language: str
) -> bool:
    """Whether what sentencex took for two sentences is one."""
    start, end = before
    following = paragraph[after[0] : after[0] + 1]
    if not any(map(str.isalnum, paragraph[after[0] : after[1]])):
        return True
    if following in "-–—" and paragraph[after[0] + 1 : after[0] + 3].strip()[:1].islower():
        return True
    if after[1] - start > 3 and _ENUMERATOR.match(paragraph[start:end]):
        return True
    if end == after[0] and _inside_word(paragraph, end):
        return True
    match = _LAST_WORD.search(paragraph[max(start, end - 16) : end])
    if match is None:
        return False
    word = match[1]
    key = word.lower()
    if key in _go_on(language):
        return True
    if following.isdigit():
        return key in _GO_ON_BEFORE_NUMBER.get(language, frozenset()) or (
            word[0].isupper() and key in _GO_ON_BEFORE_SMALL
        )
    if following.islower():
        return key in _GO_ON_BEFORE_SMALL or _INITIAL.match(word) is not None
    return False


@lru_cache(maxsize=64)
def _go_on(language: str) -> frozenset[str]:
    return _GO_ON.get(language, _GO_ON["en"])


def _inside_word(paragraph: str, position: int) -> bool:
    """Whether a boundary without a space lies in an address, a file name or a hyphenated name."""
    if paragraph[position] in "-_/@":
        return True
    begin = max(
        (m.end() for m in _SPACE.finditer(paragraph, max(0, position - 80), position)),
        default=max(0, position - 80),
    )
    found = _SPACE.search(paragraph, position, position + 80)
    token = paragraph[begin : found.start() if found else position + 80]
    return _ADDRESS.search(token) is not None
