"""Numbers, units, money and dates in words, from num2words, the CLDR (Babel) and own tables.

Sources: https://github.com/savoirfairelinux/num2words, https://cldr.unicode.org.
"""

import datetime
import re
import unicodedata
from decimal import Decimal
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Literal

from babel import Locale, UnknownLocaleError
from babel.dates import format_date
from babel.numbers import format_decimal, get_currency_name
from babel.units import format_unit
from num2words import CONVERTER_CLASSES, num2words

from configs.load import load_yaml
from configs.schema.languages import language_words
from configs.schema.readings import Numerals, readings

# For a character class: Indic letters with their vowel signs, which are no letters for `re`, but
# without the dandas, which end sentences.
INDIC = r"\u0900-\u0963\u0966-\u0dff"
LONGEST_NUMBER = 15  # digits; people read longer numbers digit by digit
LONGEST_GROUPED_NUMBER = 36  # digits with marks between groups, which account numbers lack
LONGEST_AMOUNT = 24  # digits before the point: the precision of decimals is 28

# num2words knows Portuguese of Portugal as "pt"; the voices are Brazilian.
_NUM2WORDS_NAMES = {"pt": "pt_BR"}
_CURRENCY_TABLES = frozenset({"en", "fr", "de", "it", "nl", "pl", "ru"})

_TABLE = load_yaml(dict[str, str], str(Path(__file__).with_name("units.yaml")))
_UNITS, _IN_CAPITALS = _TABLE["units"].split(), frozenset(_TABLE["in_capitals"].split())
_ROMAN = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100, "D": 500, "M": 1000}
_WIDTHS: tuple[Literal["short", "narrow"], ...] = ("short", "narrow")
_NUMBER_IN_PATTERN = re.compile(r"[\d\u0660-\u0669\u0966-\u096f]+")


class NumberWords:
    """Words of numbers and counted things in one language; digits where no library has them.

    espeak-ng reads digits in every language it supports, so digits are a safe fallback.
    """

    def __init__(self, language: str) -> None:
        self.language = language
        self.own = language_words(language)
        self.readings = readings(language)
        expand = self.readings.expand
        sets = self.readings.sets
        self._feminine_noun = re.compile(expand(sets.get("feminine", "(?!)")))
        self._uncounted = re.compile(expand(sets.get("uncounted", "(?!)")))
        self._endings = {re.compile(expand(find)): to for find, to in self.readings.endings.items()}
        self.not_unit = re.compile(sets.get("not_unit", "(?!)"))
        self.dictated_before = re.compile(f"(?:{expand(sets['dictated'])})$")
        self.dictated_end = re.compile(expand(sets["dictated_end"]))
        millions = sets.get("millions", "(?!)")  # after a number
        self.millions = re.compile(rf" ?({millions})(?![^\W\u3040-\ud7ff]|[{INDIC}])")
        self.joined = language in ("zh", "ja")  # written without spaces between words
        self._name = _NUM2WORDS_NAMES.get(language, language)
        self.spells = self._name in CONVERTER_CLASSES or self.readings.numerals is not None
        try:
            self.locale = Locale.parse(language)
        except (UnknownLocaleError, ValueError):
            self.locale = Locale.parse("en")
        symbols = self.locale.number_symbols.get("latn", {})
        self.decimal_mark: str = symbols.get("decimal", ".")
        self.group_mark: str = symbols.get("group", ",")
        self.units = _unit_abbreviations(self.locale) | self.readings.units
        for unit in _IN_CAPITALS & self.units.keys():
            self.units.setdefault(unit.upper(), self.units[unit])
        self._units_in_any_case = {
            mark.casefold(): unit for mark, unit in reversed(self.units.items()) if len(mark) > 1
        }
        self.spelled_serial = re.compile(sets.get("spelled_serial", r"[-/]?\d{5,}"))
        self._marks = {unit: mark for mark, unit in reversed(self.units.items())}
        self.minus = f"{self.own.minus or self._word('negword', '-')} " if self.spells else "-"
        months = self.locale.months["format"]
        self.months = {
            name.lower().rstrip(".॰"): number
            for width in ("wide", "abbreviated")
            for number, name in months[width].items()
        }
        self.short_months = self.months.keys() - {name.lower() for name in months["wide"].values()}
        days = self.locale.days["format"]["abbreviated"].values()
        self.short_days = {name.lower().rstrip(".") for name in days}
        pattern = self.locale.date_formats["short"].pattern
        fields = [character for character in pattern if character in "dMy"]
        self.date_order = "".join(dict.fromkeys(fields))  # such as "dMy"
        joined = self.locale.list_patterns.get("standard", {}).get("2", "{0} {1}")
        between = joined.replace("{0}", "").replace("{1}", "")  # Arabic has no space after it
        self.and_word: str = between.strip()
        self._between_money = self.readings.between_money or between

    def mark(self, mark: str) -> str:
        """Word for "." "@" "/" "+" "=" or "to"; empty where the tables have none."""
        return self.own.marks.get(mark, "")

    def unit(self, mark: str) -> str | None:
        """Unit that is written as `mark`, whose case matters only if it is two capitals."""
        if len(mark) == 2 and mark.isupper():  # may be a state's abbreviation
            return self.units.get(mark)
        return self.units.get(mark) or self._units_in_any_case.get(mark.casefold())

    def integer(self, digits: str, longest: int = LONGEST_NUMBER) -> str:
        """Reads ASCII digits as a cardinal; long ones and leading zeros digit by digit."""
        if len(digits) > longest or (digits[0] == "0" and len(digits) > 1):
            return self.digits(digits)
        return self._spell(int(digits), "cardinal") or digits

    def read(self, text: str, kind: str) -> str:
        """Reads `text` in words, as one of `KINDS`, or inflects it; "roman" becomes digits."""
        if endings := self.readings.inflections.get(kind):
            return _respelt(text, endings)
        number = "".join(str(int(char)) for char in text if char.isdecimal()).lstrip("0") or "0"
        if kind in ("cardinal", "ordinal", "year") and len(number) > LONGEST_NUMBER:
            return self.digits(number)
        match kind:
            case "cardinal":
                return self.integer(number)
            case "counted" | "feminine":
                spoken = self.integer(number) if any(map(str.isdecimal, text)) else text
                return self._before_noun(spoken) if kind == "counted" else self._feminine(spoken)
            case "ordinal":
                return self.ordinal(int(number))
            case "year":
                return self.year(int(number))
            case "day":
                return self.day(int(number[:2]))
            case "digits":
                return " ".join(map(self.digits, filter(str.isdecimal, text)))
            case "pairs":  # a house number
                hundreds, rest = divmod(int(number), 100)
                if len(number) > 4:
                    return self.digits(number)
                if hundreds > 9 or not hundreds or not rest:
                    return self.year(int(number))
                zero = f" {self.digits('0')}" if rest < 10 else ""
                return f"{self.integer(str(hundreds))}{zero} {self.integer(str(rest))}"
            case "characters":
                return " ".join(self.digits(c) if c.isdecimal() else c.upper() for c in text)
            case "month":
                wide = self.locale.months["format"]["wide"]
                return str(wide.get(int(number[:2]), number))
            case "roman":
                values = [_ROMAN.get(letter, 0) for letter in text.upper()]
                signed = (
                    a if a >= b else -a for a, b in zip(values, [*values[1:], 0], strict=True)
                )
                return str(sum(signed))
            case "telephone":
                return self.telephone(text)
            case "fraction":
                above, below, *_ = *re.findall(r"\d{1,9}", text), "1", "1"
                return self.fraction(above, below)
            case "unit" | "units" if text in self.units:
                count = "1" if kind == "unit" else "2"
                return self.count(count, self.units[text]).partition(" ")[2]
            case "unit" | "units":
                return text
        return text.lower()

    def telephone(self, text: str) -> str:
        """Reads digit by digit, with a comma between groups for a pause."""
        plus = f"{self.mark('+')} " if text.startswith("+") else ""
        return plus + ", ".join(self.digits(group) for group in re.findall(r"\d+", text))

    def address_part(self, part: str) -> str:
        """Reads digits or Latin letters of an address; foreign letters one by one."""
        if part.isdecimal():
            return f" {self.digits(part)} "
        tables = self.readings.tables
        if (letters := tables.get("letters")) is None:
            return tables.get("internet", {}).get(part.lower(), part)
        word = part.lower()
        return tables["internet"].get(word) or " ".join(letters[letter] for letter in word)

    def digits(self, digits: str) -> str:
        return " ".join(self._spell(int(digit), "cardinal") or digit for digit in digits)

    def decimal(self, number: str) -> str:
        """Reads a number in the form `[-]1234[.56]`."""
        sign = ""
        if number.startswith("-"):
            sign = self.minus
            number = number[1:]
        whole, _, fraction = number.partition(".")
        spoken = self.integer(whole or "0")
        if not fraction:
            return sign + spoken
        if not self.spells:
            return f"{sign}{whole}{self.decimal_mark}{fraction}"
        point = self.own.point or self._word("pointword", self.mark(".") or " ")
        groups = map(self.integer, re.findall(self.readings.decimals, fraction))
        return f"{sign}{spoken} {point} {' '.join(groups)}"

    def with_ending(self, words: str, ending: str) -> str | None:
        """Joins the words of a number with an ending; None if it is a word of its own."""
        joined = f"{words}+{ending}"
        for find, becomes in self._endings.items():
            joined = find.sub(becomes, joined)
        return None if "+" in joined else joined

    def ordinal(self, number: int) -> str:
        listed = self.readings.ordinals
        if number in listed:
            return listed[number]
        for scale in (1000, 100, 10) if 1000 in listed else ():
            if (above := number - number % scale) in listed:
                return f"{listed[above]} {self.ordinal(number - above)}"
        if form := self.readings.ordinal:
            words, _, ending = form.format(n=self.integer(str(number))).partition("+")
            return self.with_ending(words, ending) or words
        return self._spell(number, "ordinal") or str(number)

    def fraction(self, above: str, below: str) -> str:
        """Reads a fraction of ASCII digits; `above` may have a sign."""
        if above.startswith("-"):
            return self.minus + self.fraction(above[1:], below)
        forms = self.readings.fractions.get(int(below)) or self.readings.fraction
        is_part = len(above) <= 3 and int(above) < int(below) <= 1000  # unlike "24/7"
        if not forms or not is_part or below == "1":
            forms = self.readings.ratio or "{n} {d}"
        options = forms.split("|")
        form = options[min(int(above[-3:]) or 3, len(options)) - 1]
        slots = {"n": self.decimal(above), "d": self.integer(below)}
        return form.format(**slots, th=self.ordinal(int(below)))

    def hour(self, hour: int) -> str:
        return self.readings.tables.get("hour", {}).get(str(hour)) or self.integer(str(hour))

    def year(self, year: int) -> str:
        if (hundred := self.readings.century_years) and year >= 1000 and year % 1000 >= 100:
            above, below = divmod(year, 100)
            spoken = self.integer(str(above)) + hundred
            return spoken + self.integer(str(below)) if below else spoken.rstrip()
        # Only these languages read a year differently from a number.
        kind = "year" if self.language in ("en", "de", "nl") else "cardinal"
        return self._spell(year, kind) or str(year)

    def count(self, number: str, unit: str) -> str:
        """Reads `number` of a CLDR unit, such as "length-meter", or of nouns "one|several"."""
        value = _plural_value(number)
        if "|" in unit:
            return self._counted_noun(number, unit.split("|")[value != 1])
        pattern = format_unit(value, unit, locale=self.locale, numbering_system="latn")
        if unit in pattern:  # the CLDR of this language lacks it
            return f"{self.decimal(number)} {self._marks.get(unit, '')}".strip()
        return self._fill(pattern, value, number)

    def money(self, number: str, currency: str) -> str:
        """Reads an amount of an ISO 4217 currency; two decimals are its hundredths."""
        amount = Decimal(number)
        is_exact = amount.adjusted() < LONGEST_AMOUNT and _is_whole(amount * 100)
        spoken = self._amount(abs(amount), currency) if is_exact else None
        if spoken is None:
            return self._joined(self.decimal(number), self.currency_name(number, currency))
        units, hundredths = spoken
        parts = [units] if abs(amount) >= 1 or not amount else []
        if not _is_whole(amount):
            parts.append(hundredths)
        return (self.minus if amount < 0 else "") + self._between_money.join(parts)

    def scaled_money(self, number: str, letter: str, currency: str) -> str:
        """Reads an amount of thousands ("k"), millions, billions or trillions."""
        name = self.currency_name("100", currency)
        if word := self.readings.tables.get("magnitude", {}).get(letter):
            return f"{self.decimal(number)} {word} {name}"
        amount = Decimal(number).scaleb(3 * "kmbt".index(letter) + 3).normalize()
        return self._joined(self.decimal(f"{amount:f}"), name)

    def scaled(self, number: str, scale: str, currency: str) -> str:
        """Reads an amount whose `scale` is written, such as "2,5 millones" of euros."""
        above = self._counted_noun(number, scale)
        return self._joined(above, self.currency_name("100", currency))

    def currency_name(self, number: str, currency: str) -> str:
        if (names := self.own.currencies.get(currency)) and names.spoken:
            return names.spoken[number != "1"]
        return get_currency_name(currency, count=_plural_value(number), locale=self.locale)

    def date(self, day: int, month: int, year: int | None) -> str | None:
        """Reads a date; None when there is no such day."""
        try:
            date = datetime.date(year or 2000, month, day)
        except ValueError:
            return None
        if self.joined:
            read = self.integer if self.language == "ja" else self.digits
            above = f"{read(str(year))}年".replace(" ", "") if year else ""
            return f"{above}{self.integer(str(month))}月{self.integer(str(day))}日"
        if self.language == "en":
            name = format_date(date, "MMMM", locale=self.locale)
            spoken = f"{name} {self.ordinal(day)}"
        elif not self.spells:
            return format_date(date, "d MMMM y" if year else "d MMMM", locale=self.locale)
        else:
            spoken = self._day_and_month(date, bool(year))
        return f"{spoken} {self.year(year)}" if year else spoken

    def day(self, number: int) -> str:
        """Reads a day of the month as it stands before the month's name."""
        forms = {"n": self.integer(str(number)), "th": self.ordinal(number)}
        return self.readings.days.get(number) or self.readings.day.format(**forms)

    def _day_and_month(self, date: datetime.date, with_year: bool) -> str:
        pattern = format_date(date, "long", locale=self.locale)
        pattern = re.sub(r"\s+[гр]$", "", pattern.replace(str(date.year), "").strip(" ,."))
        spoken = self.day(date.day)
        words = _NUMBER_IN_PATTERN.sub(spoken, pattern, count=1).replace(f"{spoken}.", spoken)
        # In Spanish and Portuguese "de" precedes the year.
        return words if with_year else words.removesuffix(" de")

    def _amount(self, amount: Decimal, currency: str) -> tuple[str, str] | None:
        """Reads the units and the hundredths of an amount; None where their names are unknown."""
        names = self.own.currencies.get(currency)
        if names and names.spoken:
            units, hundredths = divmod(int(amount * 100), 100)
            return self._counted(units, *names.spoken[:2]), self._counted(
                hundredths, *names.spoken[2:]
            )
        if self.language not in _CURRENCY_TABLES:
            return None
        spoken = _in_words(amount, self._name, "currency", currency)
        if spoken is None:
            return None
        above, _, below = spoken.replace(",", "").partition("|")
        return above.strip(), below.strip()

    def _counted(self, count: int, one: str, several: str) -> str:
        noun = one if count == 1 else several
        number = (count == 1 and self.own.one) or self.integer(str(count))
        return self._joined(number, noun)

    def _feminine(self, number: str) -> str:
        return _respelt(number, self.readings.feminine)

    def _joined(self, number: str, noun: str) -> str:
        words = f"{self._before_noun(number, noun)} {noun}"
        return _respelt(words, self.readings.inflections.get("joined", {}))

    def _before_noun(self, number: str, noun: str = "") -> str:
        """Inflects a number before a noun, such as "veintiún" or "veintiuna" for "veintiuno"."""
        if self._uncounted.match(noun):
            return number
        if self._feminine_noun.match(noun):
            number = self._feminine(number)
        before, space, last = number.rpartition(" ")
        return before + space + self.readings.tables.get("before_noun", {}).get(last, last)

    def _counted_noun(self, number: str, noun: str) -> str:
        """Reads `number` before `noun`, such as "ein Meter" and "eine Stunde"."""
        words = self.decimal(number)
        if number in ("1", "-1") and self.own.one and not self._uncounted.match(noun):
            words = words.removesuffix(self.integer("1")) + self.own.one
        return self._joined(words, noun)

    def _fill(self, pattern: str, value: int | Decimal, number: str) -> str:
        """Replaces the digits of `value` in `pattern` by the words of `number`."""
        digits = format_decimal(value, locale=self.locale, numbering_system="latn")
        if digits not in pattern:
            return pattern
        before, _, noun = pattern.partition(digits)
        return f"{before} {self._counted_noun(number, noun.strip())}".strip()

    def _spell(self, number: int, kind: str) -> str | None:
        """Returns the words of num2words; None where it has none."""
        if self.readings.numerals:
            spoken: str | None = _from_numerals(number, self.readings.numerals)
        else:
            spoken = _in_words(number, self._name, kind) if self.spells else None
        if spoken is None or any(map(str.isdigit, spoken)):
            return None
        return _respelt(spoken.replace(",", ""), self.readings.respelt)

    def _word(self, attribute: str, default: str) -> str:
        """Returns a word of num2words' converter."""
        word = getattr(CONVERTER_CLASSES.get(self._name), attribute, None)
        return word.strip() if isinstance(word, str) and word.strip() else default


def _respelt(words: str, replacements: dict[str, str]) -> str:
    for find, becomes in replacements.items():
        words = re.sub(find, becomes, words)
    return words


def _from_numerals(number: int, numerals: Numerals) -> str:
    """Reads a cardinal of a positional system, by the words of its scales, largest first."""
    words = numerals.words
    gap = "" if numerals.joined else " "

    def say(rest: int) -> str:
        if rest < len(words):
            return words[rest]
        scale = max(value for value in numerals.scales if value <= rest)
        above, below = divmod(rest, scale)
        spoken = say(above) + gap + numerals.scales[scale]
        if not below:
            return spoken
        skipped = numerals.joined and below * 10 < scale
        return spoken + gap + (words[0] if skipped else "") + say(below)

    return say(number)


@lru_cache(maxsize=8192)  # num2words takes 20 µs, and numbers recur
def _in_words(
    number: int | Decimal, name: str, kind: str, currency: str | None = None
) -> str | None:
    options = {} if currency is None else {"currency": currency, "separator": "|"}
    try:
        if isinstance(number, Decimal):
            number = number.quantize(Decimal("0.01"))
        spoken: str = num2words(number, lang=name, to=kind, **options)
    except (ArithmeticError, LookupError, NotImplementedError, TypeError, ValueError):
        return None
    return spoken


def _is_whole(value: Decimal) -> bool:
    return value == value.to_integral_value()


def _plural_value(number: str) -> int | Decimal:
    """Returns the value for Babel's plural rules, which fail beyond the precision of decimals."""
    value = Decimal(number)
    if value.adjusted() >= LONGEST_AMOUNT:
        return int(10**LONGEST_AMOUNT)
    return int(value) if _is_whole(value) else value


def _unit_abbreviations(locale: Locale) -> dict[str, str]:
    """Abbreviations written after a number, such as "km/h", with their CLDR units."""
    units: dict[str, str] = {}
    sources = (locale, Locale.parse("en"))
    for source, unit, width, count in product(sources, _UNITS, _WIDTHS, (1, 5)):
        pattern = format_unit(count, unit, width, locale=source, numbering_system="latn")
        mark = unicodedata.normalize("NFC", _NUMBER_IN_PATTERN.sub("", pattern))
        mark = mark.strip(" .\u00a0\u202f\u200e\u200f")
        # Abbreviations in Indic scripts are also words: "से" is seconds and "to".
        if mark and mark not in (unit, "#") and not "\u0900" <= mark[0] < "\u0e00":
            units.setdefault(mark, unit)
    percent = "concentr-percent"
    own = {"%": percent, "٪": percent, "°": "angle-degree", "Nm": "torque-newton-meter"}
    return units | own


@lru_cache(maxsize=64)
def words_for(language: str) -> NumberWords:
    """Returns the words of any ISO 639-1 code; 5 to 30 ms for the first call of each."""
    return NumberWords(language)
