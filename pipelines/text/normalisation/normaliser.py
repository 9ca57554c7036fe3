"""Text normalisation: abbreviations, numbers, money, dates, times, units and addresses in words.

One left-to-right scan: a token's own pattern is bounded or possessive, so the time is linear
in the length of the text, whatever the text.
"""

import re
import unicodedata

from babel import Locale

from pipelines.text.normalisation.formulas import divisor, say_formulas
from pipelines.text.normalisation.notation import without_notation
from pipelines.text.normalisation.number_words import (
    INDIC,
    LONGEST_GROUPED_NUMBER,
    LONGEST_NUMBER,
    NumberWords,
    words_for,
)
from pipelines.text.normalisation.rewriting import rewriter

# Currency codes by symbol: those of the CLDR, and other usual ones.
_CURRENCIES: dict[str, str] = {
    symbol: code
    for code, symbol in Locale("en").currency_symbols.items()
    if code != "XXX" and (len(symbol) == 1 or symbol.endswith(("$", "¥")))
}
_CURRENCIES |= {"US$": "USD", "US-$": "USD", "C$": "CAD", "AU$": "AUD", "S$": "SGD", "zł": "PLN"}
_CURRENCIES |= {"₽": "RUB", "৳": "BDT", "₺": "TRY", "₴": "UAH"}
_CODES = "USD|EUR|GBP|JPY|INR|CHF|CNY|PLN|BRL|AUD|CAD|KRW|RUB|SAR|AED|MXN|NZD|SEK|NOK|DKK"
_CODES += "|ARS|CLP|COP|PEN|UYU|PYG|BOB|CRC|GTQ|HNL|NIO|DOP|PAB|VES|AOA|MZN|CVE|HKD|SGD|TWD|THB|IDR"
_CODES += "|MYR|PHP|VND|ZAR|EGP|MAD|NGN|ILS|TRY|CZK|HUF|RON|BGN|ISK|UAH|KZT|PKR|BDT|LKR|JMD|XAF|XOF"
# "COP28" and "PHP 8.3" have no currency.
_NO_CODE = r"(?:COP[1-3]\d|PHP[ ]?\d(?:(?:\.|[ ]point[ ])\d){1,2})"
_NO_CODE += r"(?![\w,]|\.\d|[ ](?:[mbt]r?il|mn|bn|[mbk]\b))"
_SYMBOLS = "".join(symbol for symbol in _CURRENCIES if len(symbol) == 1)
_LONGER = "|".join(re.escape(mark) for mark in _CURRENCIES if len(mark) > 1 and not mark.isalpha())

# Last parts of names of hosts and files.
_LAST_PARTS = (
    r"(?:com?|org|net|edu|gov|ac|nic)\.[a-z]{2}|com|org|net|edu|gov|mil|biz|io|ai|dev|app|info|xyz|"
    "shop|tv|eu|de|nl|uk|fr|es|pt|ch|pl|ru|cn|jp|kr|br|ca|au|nz|se|dk|fi|cz|gr|tr|ie|mx|za|sg|hk|"
    "py|js|ts|json|ya?ml|toml|xml|html?|txt|md|csv|pdf|docx?|xlsx?|png|jpe?g|gif|mp[34]|wav|zip|abc"
)
_EMAIL = r"""
    (?P<email>(?<![\w.+&@-])(?:
        [\w.+&-]{1,64}+@[\w-]{1,63}(?:\.[\w-]{1,63}){1,4}(?:/[\w/.-]{1,200})?
      | @[A-Za-z_]\w{0,30}(?![\w@])))
  | """
_WRITTEN_ON = r"[^\W\u0900-\u0dff]|-(?![\u0900-\u0dff])"  # goes on, but not by an Indic ending
# Not within a word or a list of words, such as "男/女/其他" and "Lehrer(innen)/Eltern/Kinder"
_PATH_START = r"(?<![^\s=:,(\[`'\"‘“„«：，、（「《])"
_OTHERS = rf"""
    (?P<url>(?<![A-Za-z\d_])(?:(?:(?:https?|HTTPS?|file|s?ftp|ssh|wss?|s3)://|www\.)[^\s<>"]{{1,2000}}
      | (?<![.@-])(?:(?:[A-Za-z0-9-]{{1,40}}+\.){{1,3}}(?:{_LAST_PARTS})
        (?![\w-])|localhost(?=:\d))(?:[:/][^\s<>"]{{0,500}})?
      | {_PATH_START}(?:[A-Za-z]:\\|~/|/(?=[\w.-]{{2,40}}/))[\w./\\-]{{1,500}}))
  | (?=[\d+(−{_SYMBOLS}A-Z-])(?:  # the others begin with one of these
    (?P<iso>(?<![\w.,-])(?P<iso_y>\d{{4}})-(?P<iso_m>\d{{1,2}})-(?P<iso_d>\d{{1,2}})(?!{_WRITTEN_ON}))
  | (?P<date>(?:(?<![\w.,/-])|(?<=[./]\d{{4}}-))
      (?P<d1>\d{{1,2}})(?P<sep>[./-])(?P<d2>\d{{1,2}})(?P=sep)(?P<d3>\d{{4}}|\d{{2}})
      (?=-\d{{1,2}}(?P=sep)\d{{1,2}}(?P=sep)\d|(?!{_WRITTEN_ON}|/|[.,]\d)))
  | (?P<time>(?<![\w.,:])(?P<hour>\d{{1,2}})[:h](?P<minute>[0-5]\d)(?::(?P<second>[0-5]\d))?
      (?:[ ]?(?P<half>[AaPp])(?:[ ]?[Mm]\b|\.[ ]?[Mm]\b\.?)|(?![\w:])))
  | (?P<clock>(?<![\w.,:])(?P<clock_hour>1[0-2]|[1-9])\ ?(?P<clock_ap>[AaPp])
      (?:[Mm]\b|\ M\b|\.[Mm]\b\.?))
  | (?P<number>(?P<sign>(?<![\w)\]{INDIC}])[-−+](?=[\d{_SYMBOLS}]))?
      (?P<symbol>(?:(?<![^\W\u3040-\ud7ff])(?:{_LONGER}|(?!{_NO_CODE})(?:{_CODES}))|[{_SYMBOLS}])
        [ \u00a0\u202f]?(?=\d))?
      (?P<digits>\d++(?:[.,'’\u00a0\u202f]\d++)*+)))
    """
_TOKEN = re.compile(_EMAIL + _OTHERS, re.VERBOSE)
_TOKEN_WITHOUT_EMAIL = re.compile(_OTHERS, re.VERBOSE)  # saves 15 µs for 500 characters
# Does not match "495 123-45-67".
_SPACED_GROUPS = r"(?<![\d.,+])\d{1,3}(?: \d{3})+(?!\d|-\d\d-)"
# In languages with another mark between groups, only round numbers, and those that count something
_SURE_GROUPS = (
    r"(?<![\d.,+/(:-])(?<!\d[ -])(?<!\) )(?<!el\. )(?<!el: )(?<!\.: )[1-9]\d{0,2}"
    r"(?:(?: \d{3})*(?: 000)"
    r"|(?: \d{3}){2,}(?= ?[€$£%]| [kcm]?m(?:[²³]|/[hs])\b| [Ee]uro\b))"
    r"(?![\d:]|[ /-]\d|[.,]\d{3})"
)
_MONEY_SCALE = re.compile(
    r" ?(thousand|million|billion|trillion|crore|lakh)s?\b"
    r"|([kK]|T(?!-)|[mMbB]n?|tn)(?![^\W\u0900-\u9fff])| ([mb]n?)\b(?! [a-z])"
)
_CURRENCY_NAME_AFTER = re.compile(rf"[ \u00a0\u202f]?([\w{INDIC}]{{2,12}})(?![\w{INDIC}])")
_CURRENCY_AFTER = re.compile(
    rf"[ \u00a0\u202f]?(?:((?:{_LONGER})(?! ?\d)|[{_SYMBOLS}](?!\d)|zł\b)|({_CODES})\b)"
)
# After millions: "280 millions de $"
_SCALED_CURRENCY_AFTER = re.compile(rf"(?: d[ei](?= )| d(?=['’]))?['’]?{_CURRENCY_AFTER.pattern}")
# Indic letters after a unit of other letters are an ending; "2024 l'équipe" has an article.
_UNIT_AFTER = re.compile(
    rf"[ \u00a0\u202f]?(?!\w['’]\w)((?:(?![{INDIC}])[^\W\d_\u3040-\u9fff]){{1,12}}"
    rf"(?:/(?:(?![{INDIC}])[^\W\d_\u3040-\u9fff]){{1,4}})?[²³]?"
    rf"|[{INDIC}]{{1,12}}(?:/[^\W\d_]{{1,4}})?[²³]?(?![{INDIC}])|[%٪°′][CFcf]?)"
    rf"(?!(?![{INDIC}])[^\W\u3040-\u9fff])"
)
_ORDINAL_SIGN = re.compile(r"[ºª]")
# The full stop of an ordinal: not after a year, an amount, an item's number or grouped digits
_ORDINAL_DOT = re.compile(
    r"(?<!\d{4})(?<!^1)(?<!\n\d)(?<!\n\d\d)(?<!\d \d)(?<!\d \d\d)(?<!kr \d)(?<!kr \d\d)"
    r"\.(?= [a-zà-ÿőűşıčšž])"
)
_ORDINAL_AFTER = {
    "en": re.compile(r"(?:st|nd|rd|th|ST|ND|RD|TH)\b"),
    "fr": re.compile(r"(?:er|re|e|ème|eme)\b"),
    "nl": re.compile(r"(?:e|ste|de)\b"),
    **dict.fromkeys(("es", "it", "pt"), _ORDINAL_SIGN),
    **dict.fromkeys(("da", "fi", "hu", "no", "sl", "tr"), _ORDINAL_DOT),
}
_DECADE_AFTER = re.compile(r"['’]?s\b")
_DOT_MONTH_AFTER = re.compile(r"\. ?(?=(\w{1,12}))")
_SHORT_MONTH_AFTER = re.compile(rf"[ -]([\w{INDIC}]{{2,8}})[.॰]?,?[ -]((?:19|20)\d\d)(?![\d-])")
_RANGE_AFTER = re.compile(  # not in a house number of several parts, such as 8-2-293
    r"(?<!\d-\d)(?<!\d-\d\d)(?<!\d-\d{3})(?:-{1,3}|[–—~〜～])(?=[$€£¥₩₹]?\d)(?!\d{1,4}-\d)"
    r"|[~〜～](?=[-−]\d)"
)
# Endings in Indic scripts, which are written after digits: "5-ம்", "2024ರಲ್ಲಿ"
_ENDING_AFTER = re.compile(r"[ -]?([\u0900-\u0dff\u200c]{1,16})(?![\w\u0900-\u0dff\u200d])")
_FRACTION_AFTER = re.compile(r"/(\d{1,4})(?![^\W\u3040-\u9fff]|/|[.,]\d)")
_MONTH_BEFORE = re.compile(r"\b([A-Z][a-z]{2,8})\.? $")
_LETTER = re.compile(rf"[^\W\d_]|[{INDIC}]")
_VERSION_BEFORE = re.compile(
    r"(?:\b(?:v|ver|vers(?:ão|ões|ie|i[oó]\w*)|wersj\w+|верси\w+|संस्करण|release|build|firmware"
    r"|kernel|linux|windows|android)\.?|版本|バージョン|(?-i:OS))[ :]{0,2}$",
    re.IGNORECASE,
)
_SERIAL_BEFORE = re.compile(r"[A-Za-z][-/]?$")
SHORTEST_TELEPHONE = 6  # shorter numbers after "phone" and the like are mostly prices and models
_DICTATED = re.compile(r"(?!(?:1[5-9]|20)\d\d$)(?!\d+00$)\d{4,15}")  # no year, no round amount
# A rate, but not Dutch "t/m" for "up to", "A/B", or alternatives such as "cm/mm"
_RATE = re.compile(r"(?=.{4})(?:(?:[mµμ]?g|ml|kcal)/kg|[^/]+/(?!(?:[cm]m|mi|TB|cl|kg)$)[^/]+)")
_HALF_DAY = r"(1[0-2]|0?[1-9])(:[0-5]\d)? ?[AaPp](?:\. ?[Mm]\.|\.? ?[Mm](?![A-Za-z\d_]))"
_VULGAR_FRACTION = re.compile(r" ?[¼-¾⅐-⅞]")
_SAY_TIMES = frozenset("en de es fr it pt nl pl ar hi bn kn ml ta te zh ja".split())
_WIDE_SPACES = re.compile(r"(?<=[^\d\s])[\u00a0\u202f]| {2,}")
_SPACES = re.compile(r"[ \u00a0\u202f]+")
# Dashes, also as typewriters have them, and not the options of a command such as "--help". Most
# phonemizers hear a dash only between spaces. "a - b" is a difference, and "i--" counts down.
_TYPED = "(?<!-)-{2,4}(?![->])"
_OPTION = r"(?<= )--[a-z][\w-]*+(?:[ =.,)]|$)(?!.{0,200}\w--)"
_DASH = re.compile(
    rf"(?<=[\w.,;:!?…\"'”’»)])(?:(?<!\b\w) - | ?(?!{_OPTION}){_TYPED}(?<!\b[i-nx]--(?= )) ?"
    r"| ?(?<!—)[—―](?!—) ?)(?=\w|[\"'“‘«(¿¡]\w|[“«] \w)"
)
_DASH_AT_START = re.compile(
    rf"(?:^|(?<=[“‘«(¿¡])|(?<=[“«] )|(?<=^[\"'])|(?<= [\"'])){_TYPED} ?(?=[\w“«\"¿¡])"
)
_DASH_AT_END = re.compile(
    rf"(?<=[\w.,;:!?…\"”’»)])(?<!\b[i-nx]) ?{_TYPED}(?=[.,:!?…\"'”’»)](?!\w)|$)"
)
_SPACE_BEFORE_MARK = re.compile(r" +(?=[,.;:!?…،؟।)])")
_UNSAID = re.compile(r"[*_#~^|\\<>{}\[\]`•·§¶†‡]+")


def normalise(text: str, language: str) -> str:
    """Converts `text` (cleaned, whole sentences) to the spoken form of `language`, an ISO 639-1
    code.

    Digits are kept where no library supports the language: espeak-ng reads them.
    """
    words = words_for(language)
    text = _WIDE_SPACES.sub(" ", text)  # so that rules need only one form of a space
    text = without_notation(text, words.readings.tables["tex"], times=language in _SAY_TIMES)
    text = _ascii_digits(say_formulas(text, words))
    own_groups = _SPACED_GROUPS if words.group_mark.isspace() else _SURE_GROUPS
    if spaced := words.readings.sets.get("spaced", own_groups):
        mark = "\u202f" if words.group_mark.isspace() else words.group_mark
        text = re.sub(spaced, lambda match: match[0].replace(" ", mark), text)
    text = rewriter(language).rewrite(_with_own_signs(text, words.readings.sets))
    if language == "de":  # "um 9 am Bahnhof" is no time of the morning
        text = text.replace(" am ", "\u202fam ")
    spoken: list[str] = []
    position = 0
    token = _TOKEN if "@" in text else _TOKEN_WITHOUT_EMAIL
    while match := token.search(text, position):
        before = text[position : match.start()]
        if before.endswith("-") and _LETTER.match(before, len(before) - 2):  # as in "COVID-19"
            before = before[:-1]
        spoken.append(before)
        spoken_token, position = _say(match, words)
        if ending := _ENDING_AFTER.match(text, position):
            inflected = words.with_ending(spoken_token, ending[1])
            if not inflected and unicodedata.category(ending[1][0])[0] == "M":
                inflected = spoken_token + ending[1]  # a vowel sign cannot begin a word
            if inflected:
                spoken_token = inflected
                position = ending.end()
        if (to := words.mark("to")) and (joined := _RANGE_AFTER.match(text, position)):
            if not _letter_before(match):  # no range: "B747-400"
                spoken_token = words.with_ending(spoken_token, to) or f"{spoken_token} {to}"
            position = joined.end()
        elif text[position : position + 1] == "-" and text[position + 1 : position + 2].isalpha():
            position += 1  # as in "5-star"
        is_address = match.lastgroup in ("email", "url")
        spoken.append(
            spoken_token.replace(" ", "")
            if words.joined and not is_address
            else f" {spoken_token} "
        )
    spoken.append(text[position:])
    return _say_symbols("".join(spoken), words)


def _with_own_signs(text: str, sets: dict[str, str]) -> str:
    """Replaces the names of rupees by their sign, and drops AM and PM of times after a part of the
    day, so that the rules need only one form of each.
    """
    if ordinal := sets.get("close_ordinal"):
        text = re.sub(ordinal, r"\g<0> ", text)
    if rupee := sets.get("rupee"):
        text = re.sub(rf"(?<![\w{INDIC}]){rupee} ?(?=\d)", "₹", text)
    if day_part := sets.get("day_part"):
        text = re.sub(
            rf"(?=\d)(?:{day_part}){_HALF_DAY}", lambda time: time[1] + (time[2] or ":00"), text
        )
    return text


def _ascii_digits(text: str) -> str:
    if text.isascii():
        return text
    text = text.replace("٫", ".").replace("٬", ",").replace("−", "-")
    text = _VULGAR_FRACTION.sub(
        lambda match: " " + unicodedata.normalize("NFKC", match[0].strip()), text
    ).replace("\u2044", "/")
    return "".join(
        str(unicodedata.decimal(character)) if character.isdecimal() else character
        for character in text
    )


def _say(match: re.Match[str], words: NumberWords) -> tuple[str, int]:
    """Returns a token in words, and the position after it."""
    kind = match.lastgroup  # the outer of nested groups
    if kind in ("email", "url"):
        return _say_address(match, words)
    if kind == "number":
        return _say_number(match, words)
    end = match.end()
    if kind in ("iso", "date"):
        return _say_date(match, words) or words.telephone(match[0]), end
    again = f" {words.own.after_hour}"  # as in "15:30 Uhr"
    if words.own.after_hour and match.string.startswith(again, end):
        end += len(again)
    at_end = match[0].endswith(".") and end == len(match.string)  # it also ends the sentence
    return _say_time(match, words) + "." * at_end, end


def _say_address(match: re.Match[str], words: NumberWords) -> tuple[str, int]:
    address = match[0].rstrip(".,;:!?)'\"।॥")
    end = match.start() + len(address)
    spoken = address
    if address != match.string.strip():  # an address alone is dictated with its protocol
        spoken = re.sub(r"(?i)^https?://", "", address).rstrip("/")
    spoken = re.sub(
        rf"[^\w\s'{INDIC}]|_",
        lambda mark: f" {words.mark(mark[0]) or words_for('en').mark(mark[0])} ",
        spoken,
    )
    spelled = words.readings.sets.get("spelled", "(?!)")
    spoken = re.sub(spelled, lambda letters: " ".join(letters[0].upper()), spoken)
    return re.sub(r"[A-Za-z]+|\d+", lambda part: words.address_part(part[0]), spoken), end


def _say_date(match: re.Match[str], words: NumberWords) -> str | None:
    if match["iso"]:
        return words.date(int(match["iso_d"]), int(match["iso_m"]), int(match["iso_y"]))
    first, second, year = int(match["d1"]), int(match["d2"]), int(match["d3"])
    if len(match["d3"]) == 2:
        is_short = len(match[0]) < len("01.02.03") and words.language not in ("de", "pl", "ru")
        before = match.string[max(0, match.start() - 12) : match.start()]
        if match["sep"] == "." and (is_short or _VERSION_BEFORE.search(before)):
            return f" {words.mark('.')} ".join(map(words.integer, re.findall(r"\d+", match[0])))
        year += 2000 if year < 70 else 1900
    month_first = words.date_order.startswith("M") and match["sep"] in "/-"
    day, month = (second, first) if month_first else (first, second)
    if month > 12 >= day:  # month and day in the other order
        day, month = month, day
    return words.date(day, month, year)


def _say_time(match: re.Match[str], words: NumberWords) -> str:
    hour = int(match["hour"] or match["clock_hour"])
    minute = int(match["minute"] or 0)
    half = match["half"] or match["clock_ap"]
    if hour > 24:
        return words.telephone(match[0])
    is_of_day = bool(half) or match.string.startswith("at ", max(0, match.start() - 3))
    if match["second"] and words.language == "en" and not is_of_day:  # a duration
        numbers = (match["hour"], match["minute"], match["second"])
        units = ("duration-hour", "duration-minute", "duration-second")
        *parts, seconds = map(words.count, (str(int(number)) for number in numbers), units)
        return f"{' '.join(parts)} {words.and_word} {seconds}"
    parts_said = [words.hour(hour)]
    between = words.own.after_hour
    if words.language == "fr":
        between = words.count(str(hour), "duration-hour").rpartition(" ")[2]
    if between and (minute or words.language in ("de", "nl", "fr")):
        parts_said.append(between)
    if minute:
        oh = "oh " if words.language == "en" and minute < 10 else ""
        parts_said.append(oh + words.integer(str(minute)))
    elif words.language == "en" and not half and match["time"]:
        parts_said.append("o'clock" if hour <= 12 and hour else "hundred" if hour else "")
    if match["second"]:
        parts_said += [words.and_word, words.count(str(int(match["second"])), "duration-second")]
    if half:
        parts_said.append(f"{half.upper()} M")
    return " ".join(filter(None, parts_said))


def _say_number(match: re.Match[str], words: NumberWords) -> tuple[str, int]:
    text, end = match.string, match.end()
    number = _parse(match["digits"], words)
    if number is None:  # a list, a version, an IP address
        parts = re.findall(r"\d+", match["digits"])
        is_list = parts == match["digits"].split(",")
        between = ", " if is_list else f" {words.mark('.') or ' '} "
        return between.join(words.integer(part) for part in parts), end
    sign = "-" if match["sign"] in ("-", "−") else ""
    plus = f"{words.mark('+')} " if match["sign"] == "+" else ""
    symbol = (match["symbol"] or "").strip()
    is_own = symbol in words.own.currencies  # such as "US$"; "$" alone names no country
    currency = symbol if is_own else _CURRENCIES.get(symbol, symbol) or None
    if before := _MONTH_BEFORE.search(text, max(0, match.start() - 12), match.start()):
        is_day = number.isdecimal() and 1 <= int(number[:9]) <= 31 and words.language == "en"
        if is_day and before[1].lower() in words.months:
            suffix = _ORDINAL_AFTER["en"].match(text, end)
            return words.ordinal(int(number)), suffix.end() if suffix else end
    if (fraction := _FRACTION_AFTER.match(text, end)) and number.isdecimal() and not currency:
        return words.fraction(sign + number, fraction[1]), fraction.end()
    if match["digits"].isdecimal() and not currency and (letter := _letter_before(match)):
        # A serial number: long parts digit by digit, and no units, as in "k8s" and "f-4s"
        if words.spelled_serial.fullmatch(letter[1:] + number):
            return words.digits(number), end
        if len(number) == 4 and letter.isalpha() and letter.isupper():  # a flight, and no year
            return words.integer(number), end
        is_code = len(letter) == 1 or not text[match.start() - 3 : match.start() - 2].isalnum()
        if len(number) < 4 and is_code and text[end : end + 1].isalpha():
            return words.integer(number), end
    if _DICTATED.fullmatch(match["digits"]) and not symbol and words.dictated_end.match(text, end):
        before = words.dictated_before.search(text, max(0, match.start() - 60), match.start())
        if before and (len(number) >= SHORTEST_TELEPHONE or not before[1]):
            return words.digits(number), end
    if len(number) > LONGEST_NUMBER and number.isdecimal() and not match["digits"].isdecimal():
        return words.minus * bool(sign) + words.integer(number, longest=LONGEST_GROUPED_NUMBER), end
    counted, end = _say_counted(sign + number, currency, text, end, words)
    return plus + counted, end


def _letter_before(match: re.Match[str]) -> str:
    """Returns the letter before a serial number and the mark between them, such as "B-"."""
    letter = _SERIAL_BEFORE.search(match.string, max(0, match.start() - 2), match.start())
    return letter[0] if letter else ""


def _say_counted(
    number: str, currency: str | None, text: str, end: int, words: NumberWords
) -> tuple[str, int]:
    """Speaks a number with its suffix, if any: money, a unit, an ordinal or decade mark."""
    millions = words.millions.match(text, end)
    if millions and not currency:
        after = _SCALED_CURRENCY_AFTER.match(text, millions.end())
        if after:
            currency = _CURRENCIES.get(after[1] or "", after[2])
            return words.scaled(number, millions[1], currency), after.end()
    if currency:
        if millions:
            return words.scaled(number, millions[1], currency), millions.end()
        name = words.currency_name("100", currency)
        if scale := _MONEY_SCALE.match(text, end):
            if scale[1]:
                return f"{words.decimal(number)} {scale[1]} {name}", scale.end()
            letter = (scale[2] or scale[3])[0].lower()
            return words.scaled_money(number, letter, currency), scale.end()
        return words.money(number, currency), end
    if after := _CURRENCY_AFTER.match(text, end):
        return words.money(number, _CURRENCIES.get(after[1] or "", after[2])), after.end()
    # Without hundredths the written name of a currency is kept.
    if re.fullmatch(r"-?\d+\.\d\d", number) and (after := _CURRENCY_NAME_AFTER.match(text, end)):
        name = after[1].lower()
        for code, names in words.own.currencies.items():
            if name in names.written:
                return words.money(number, code), after.end()
    whole = number.isdecimal()
    if whole and len(number) <= 2 and (month := _SHORT_MONTH_AFTER.match(text, end)):
        if (name := month[1].lower().rstrip("॰")) in words.short_months:
            date = words.date(int(number), words.months[name], int(month[2]))
            return date or words.integer(number), month.end() if date else end
    if whole and len(number) <= 9:
        if ordinal := _say_ordinal(int(number), text, end, words):
            return ordinal
    if words.language == "en" and whole and len(number) in (2, 4) and number.endswith("0"):
        if decade := _DECADE_AFTER.match(text, end):
            year = words.year(int(number))
            return (f"{year[:-1]}ies" if year.endswith("y") else f"{year}s"), decade.end()
    after = None if words.not_unit.match(text, end) else _UNIT_AFTER.match(text, end)
    if after and (unit := words.unit(after[1])):
        return words.count(number, unit), after.end()
    if after and _RATE.fullmatch(after[1]):
        above, _, below = after[1].partition("/")
        if (unit := words.unit(above)) and words.unit(below):
            if per := divisor(below, "1", words):
                return f"{words.count(number, unit)} {per}", after.end()
    is_year = whole and len(number) == 4 and 1500 <= int(number) <= 2099 and number[1:] != "000"
    if is_year and text.endswith(number, 0, end):  # a number with a mark in it is not a year
        return words.year(int(number)), end
    decimal = words.decimal(number)
    return words.read(decimal, "counted") if millions and words.spells else decimal, end


def _say_ordinal(number: int, text: str, end: int, words: NumberWords) -> tuple[str, int] | None:
    pattern = _ORDINAL_AFTER.get(words.language)
    if pattern and (mark := pattern.match(text, end)):
        ordinal = words.ordinal(number)
        if mark[0] == "ª":
            ordinal = re.sub(r"o\b", "a", ordinal)
        return ordinal, mark.end()
    if words.language in ("de", "pl") and number <= 31:
        dot = _DOT_MONTH_AFTER.match(text, end)
        if dot and dot[1].lower() in words.months:
            return words.day(number), dot.end()
    return None


def _parse(digits: str, words: NumberWords) -> str | None:
    """Parses a number in the language's notation to `1234.56`; None if it is no single number."""
    marks = [character for character in digits if not character.isdecimal()]
    if not marks:
        return digits
    groups = re.split(r"[^\d]", digits)
    last = marks[-1]
    grouped = all(len(group) in (2, 3) for group in groups[1:-1]) and len(groups[0]) <= 3
    if len(set(marks)) == 1:
        is_group = grouped and len(groups[-1]) == 3 and groups[0] != "0"
        if is_group and (len(marks) > 1 or last != words.decimal_mark):
            return "".join(groups)
        return f"{groups[0]}.{groups[1]}" if len(marks) == 1 and last in ".," else None
    if len(set(marks[:-1])) == 1 and last in ".," and last not in marks[:-1] and grouped:
        return f"{''.join(groups[:-1])}.{groups[-1]}"
    return None


def _say_symbols(text: str, words: NumberWords) -> str:
    if "&" in text and words.and_word:
        text = text.replace("&", f" {words.and_word} ")
    for mark in "+=@":
        text = text.replace(mark, f" {words.mark(mark)} ")
    text = _SPACES.sub(" ", _UNSAID.sub(" ", text)).strip()
    if "-" in text or "—" in text or "―" in text:
        text = _DASH.sub(" — ", _DASH_AT_START.sub("", _DASH_AT_END.sub("—", text)))
    return _SPACE_BEFORE_MARK.sub("", text)
