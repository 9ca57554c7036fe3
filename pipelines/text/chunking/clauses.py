"""Where a sentence may be cut inaudibly: at clauses, else between words that may be parted.

Rules over lists of function words: a cut comes before a conjunction or preposition, and never
between an article, number or name and what belongs to it.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum

WIDE_LETTER = 3  # a Chinese, Japanese or Korean letter takes as long to say as three others
DIGIT = 6  # so many letters a digit of a figure is said with, about
SIGN = 5  # "dollars", "percent", "slash", "at"
LONG_FIGURE = 5 * DIGIT  # long enough to draw breath before it
LEAST_TAIL = 12  # letters that a cut leaves to the second part
_LOOK_BACK = 32  # letters searched for a place that does not tear one apart

_WIDE = re.compile("[\u1100-\u11ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]")
_SAID_LONGER = re.compile(rf"(\d)|[$€£¥₹%&@/=#+]|{_WIDE.pattern}")
_SIGNS = frozenset("$€£¥₹%&@/=#+")
_CLOSING_SIGNS = frozenset("$€£¥₹%")  # written after a figure as a word would be
_GAP = re.compile(r"\s+|[，、；：。！？](?=[^\s”’」』）》\d])")
_TOKEN = re.compile(r"\S{1,40}")
_CLAUSE_MARKS = frozenset(",;:،؛，；：、–—…।॥؟۔。！？!?")
_PHRASE_SPACES = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]")  # a space is a clause
_CLOSERS = "\"'”’»)]}」』）》"
_OPENERS = "\"'“‘„«([{「『（《¿¡"
_LEADING_VOWELS = frozenset("เแโใไເແໂໃໄ")

# Words that begin a clause, words that begin a phrase, and words that no cut may follow.
_CONJUNCTIONS: Mapping[str, frozenset[str]] = {
    language: frozenset(words.split())
    for language, words in {
        "en": "and but or nor so yet because although though while when where whereas if unless "
        "until since that which who whom whose than",
        "de": "und aber oder denn sondern weil dass obwohl während wenn als damit ob bevor nachdem "
        "sobald falls sowie",
        "fr": "et mais ou donc car ni que qui dont où quand lorsque parce puisque si comme afin",
        "es": "y e pero o u ni sino porque que cuando donde aunque mientras si como quien cuyo",
        "it": "e ed ma o oppure né perché che quando dove mentre se come poiché quindi cui",
        "pt": "e mas ou nem porque que quando onde embora enquanto se como pois cujo",
        "nl": "en maar of want omdat dat die terwijl wanneer als hoewel zodat voordat nadat waar",
        "pl": "i a ale lub albo oraz bo że który która które gdy kiedy gdzie jeśli ponieważ żeby",
        "hi": "और लेकिन मगर या कि क्योंकि जब अगर तो जो जिसे ताकि परंतु किंतु",
        "mr": "आणि पण किंवा की कारण जेव्हा जर तर जो",
        "bn": "এবং কিন্তু বা অথবা যে কারণ যখন যদি আর",
        "gu": "અને પણ કે કારણકે જ્યારે જો તો",
        "pa": "ਅਤੇ ਪਰ ਜਾਂ ਕਿ ਕਿਉਂਕਿ ਜਦੋਂ ਜੇ",
        "ta": "மற்றும் ஆனால் அல்லது ஏனெனில்",
        "te": "మరియు కానీ లేదా ఎందుకంటే",
        "kn": "ಮತ್ತು ಆದರೆ ಅಥವಾ ಏಕೆಂದರೆ",
        "ml": "ഒപ്പം പക്ഷേ അല്ലെങ്കിൽ കാരണം",
        "ar": "لكن ولكن أو ثم لأن أن الذي التي الذين عندما حيث إذا بينما حتى كما",
        "ru": "и а но или что который которая которые когда где если потому чтобы",
    }.items()
}
_PREPOSITIONS: Mapping[str, frozenset[str]] = {
    language: frozenset(words.split())
    for language, words in {
        "en": "in on at by for from with without into onto over under about after before between "
        "through during against across to as",
        "de": "in im an am auf aus bei beim mit nach zu zum zur für durch gegen ohne um "
        "über unter vor zwischen seit bis wegen",
        "fr": "à au aux dans en par pour sur sous avec sans chez vers entre avant après",
        "es": "a al con desde en entre hacia hasta para por según sin sobre tras",
        "it": "a al alla con da dal dalla in nel nella per su sul tra fra senza",
        "pt": "a ao à com em no na entre para por pelo pela sem sobre até desde",
        "nl": "aan bij door in met na naar om op over te tegen tot tussen uit voor zonder",
        "pl": "w we na z ze do od po przez przy dla o u nad pod przed za między bez",
        "ar": "في من إلى على عن مع بعد قبل بين عند",
        "ru": "в во на с со из к по от до для о об у над под за без между",
    }.items()
}
_ARTICLES: Mapping[str, frozenset[str]] = {
    language: frozenset(words.split())
    for language, words in {
        "en": "a an the my your his her its our their this these those no not very more most "
        "mr mrs ms dr is are was were be been will would can could has have had do does did",
        "de": "der die das den dem des ein eine einen einem einer eines kein keine mein meine sein "
        "seine ihr ihre unser unsere dieser diese dieses nicht sehr "
        "ist sind war waren wird werden hat haben kann muss soll will ich er wir",
        "fr": "le la les un une ce cet cette ces mon ma mes son sa ses leur leurs notre votre ne "
        "pas très je tu il elle on nous vous ils elles "
        "est sont était a ont ai suis sera",
        "es": "el la los las un una unos unas mi su sus este esta estos estas no muy se lo "
        "es son era fue ha han he hay está están",
        "it": "il lo la i gli le un uno una mio suo questo questa non molto si "
        "è sono era ha hanno ho",
        "pt": "o a os as um uma meu seu sua este esta não muito se é são era foi há tem está estão",
        "nl": "de het een mijn zijn haar ons onze deze dit geen niet zeer "
        "is zijn was waren wordt heeft hebben kan moet",
        "pl": "nie się bardzo ten ta to jest są był była ma",
        "hi": "एक यह वह इस उस बहुत नहीं का के की मेरा मेरे मेरी हमारा हमारे हमारी आपका आपके आपकी उसका उसके "
        "उसकी इसका इसके इसकी उनका उनके उनकी अपना अपने अपनी",
        "ar": "لا لم لن هذا هذه",
        "ru": "не этот эта это очень",
    }.items()
}
# Hindi, Marathi and Urdu words that belong to the one before: postpositions and auxiliaries.
_CLINGING = frozenset(
    "है हैं था थी थे हूँ हूं हो में से को का की के पर ने तक भी ही रहा रही रहे गया गई गए लिए साथ आहे आहेत ला".split()
)
# What ties two nouns together: no cut before it nor after it.
_TIES: Mapping[str, frozenset[str]] = {
    language: frozenset(words.split())
    for language, words in {
        "en": "of",
        "de": "von vom",
        "fr": "de du des",
        "es": "de del",
        "it": "di del della dello dei delle degli",
        "pt": "de do da dos das",
        "nl": "van",
    }.items()
}
_NONE: frozenset[str] = frozenset()


class Rank(IntEnum):
    """How well a cut is hidden; the value is what it costs in letters off the ideal length."""

    CLAUSE = 0
    CONJUNCTION = 8
    PHRASE = 16
    WORD = 30


@dataclass(frozen=True, slots=True)
class Length:
    """How long a part should be, by `spoken_length`."""

    least: int
    ideal: int
    most: int


@dataclass(frozen=True, slots=True)
class Break:
    """A place to cut."""

    position: int  # where the second part begins
    rank: Rank
    length: int  # of the first part


def spoken_length(text: str) -> int:
    """How long `text` takes to say, in letters of an alphabet."""
    more = 0
    for match in _SAID_LONGER.finditer(text):
        more += _letters(match) - 1
    return len(text) + more


def _letters(match: re.Match[str]) -> int:
    if match[1]:
        return DIGIT
    return SIGN if match[0] in _SIGNS else WIDE_LETTER


def best_cut(text: str, length: Length, language: str, worst: Rank = Rank.WORD) -> int | None:
    """Where to cut the first part off `text`; None where no place is good enough.

    The second part keeps at least LEAST_TAIL letters where there is a choice.
    """
    best: tuple[float, int] | None = None
    window = text[: length.most + LEAST_TAIL + 1]
    beyond = spoken_length(window) if len(window) < len(text) else 0
    for place in _breaks(window, language):
        if place.length > length.most:
            break
        if place.length < length.least or place.rank > worst:
            continue
        cost: float = place.rank + abs(place.length - length.ideal)
        if not beyond and spoken_length(text[place.position :]) < LEAST_TAIL:
            cost += length.most
        if best is None or cost <= best[0]:
            best = cost, place.position
    return best[1] if best else None


def hard_cut(text: str, most: int) -> int:
    """A place in a text without any: at most `most` letters, none torn from its marks."""
    total = position = 0
    while position < len(text):
        total += spoken_length(text[position])
        if total > most:
            break
        position += 1
    for cut in range(position, max(1, position - _LOOK_BACK), -1):
        if is_letter_start(text, cut):
            return cut
    return max(1, position)


def is_letter_start(text: str, position: int) -> bool:
    """Whether what is at `position` does not belong to the letter before it."""
    if position >= len(text):
        return True
    before, after = text[position - 1], text[position]
    joined = before in "\u200c\u200d" or after in "\u200c\u200d" or before in _LEADING_VOWELS
    virama = unicodedata.combining(before) == 9  # the next consonant is written below this one
    jamo = "\u1160" <= after <= "\u11ff"  # vowels and finals of a Korean syllable
    return not (joined or virama or jamo or unicodedata.category(after)[0] == "M")


def _breaks(text: str, language: str) -> Iterator[Break]:
    """Every place in `text` where it may be cut, from left to right."""
    family = language if language in _ARTICLES else ""
    conjunctions = _CONJUNCTIONS.get(language, _NONE)
    prepositions = _PREPOSITIONS.get(family, _NONE)
    ties = _TIES.get(family, _NONE)
    bound = prepositions | conjunctions | _ARTICLES.get(family, _NONE) | ties
    begin = passed = counted = 0
    for gap in _GAP.finditer(text):
        if gap.end() == len(text) or not gap.start():
            continue
        passed += spoken_length(text[counted : gap.start()])
        counted = gap.start()
        mark = not gap[0].isspace()
        before = text[begin : gap.start() + mark]
        begin = gap.end()
        after = _TOKEN.match(text, begin)
        if after is None or not before:
            continue
        rank = _rank(before, after[0], conjunctions, prepositions, bound, ties)
        if rank is not None:
            yield Break(begin, rank, passed + mark * WIDE_LETTER)


def _rank(
    before: str,
    after: str,
    conjunctions: frozenset[str],
    prepositions: frozenset[str],
    bound: frozenset[str],
    ties: frozenset[str],
) -> Rank | None:
    """How good it is to cut between two words; None: never."""
    last, first = before.rstrip(_CLOSERS), after.lstrip(_OPENERS)
    following = first.lower().rstrip(".,;:!?" + _CLOSERS)
    if _is_long_figure(first):
        if last[-1:].isdigit() or last[:1].isupper():
            return None
    elif not first or not _is_letter(first[0]) or first[0].isdigit():
        return None  # a mark stays with what it follows, a number with what is before it
    elif last[-1:].isdigit():
        if not _is_long_figure(last):
            return None  # a number stays with what it counts
        if following in conjunctions:
            return Rank.CONJUNCTION
        return Rank.PHRASE if following in prepositions else None
    if not last or not (_is_letter(last[-1]) or last[-1] in _CLOSING_SIGNS):
        if last and last[-1] in _CLAUSE_MARKS:
            return None if last[:-1] and last[-2].isdigit() and first[0].isdigit() else Rank.CLAUSE
        if before in ("-", "--"):
            return Rank.CLAUSE
        if last.endswith("."):
            return None  # an abbreviation: sentences have been told apart before
        return None if last else Rank.WORD
    if before != last and before[-1] in ")]":
        return Rank.CLAUSE
    if _PHRASE_SPACES.match(last[-1]):
        return Rank.CLAUSE
    word = last.lower()
    if word.lstrip(_OPENERS) in bound or following in _CLINGING or following in ties:
        return None
    if after != first and after[0] in "([{":
        return Rank.CONJUNCTION
    if following in conjunctions:
        return Rank.CONJUNCTION
    if last.lstrip(_OPENERS)[:1].isupper() and first[0].isupper():
        return None  # most likely one name
    return Rank.PHRASE if following in prepositions else Rank.WORD


def _is_long_figure(token: str) -> bool:
    """Whether it is a number that takes long to say: a sum of money, an order, a telephone."""
    is_figure = token[-1:].isdigit() and not any(map(str.isalpha, token))
    return is_figure and spoken_length(token) >= LONG_FIGURE


def _is_letter(character: str) -> bool:
    return unicodedata.category(character)[0] in "LMN"


def knows_words(language: str) -> bool:
    """Whether the words of `language` that no pause may follow are listed here."""
    return language in _ARTICLES
