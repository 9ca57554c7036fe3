"""Names of currencies: as written after an amount, and as spoken where num2words has none."""

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import NamedTuple

# Currencies whose name is written after an amount. "Pounds" are left out: they are also a weight.
_NAMES: Mapping[str, Mapping[str, str]] = {
    "en": {"EUR": "euro euros", "USD": "dollar dollars", "INR": "rupee rupees"},
    "de": {"EUR": "euro euros", "USD": "dollar", "CHF": "franken"},
    "fr": {"EUR": "euro euros", "USD": "dollar dollars", "CHF": "franc francs"},
    "es": {"EUR": "euro euros", "USD": "dólar dólares", "MXN": "peso pesos", "CHF": "francos"},
    "it": {"EUR": "euro", "USD": "dollaro dollari", "CHF": "franchi"},
    "pt": {"EUR": "euro euros", "USD": "dólar dólares", "BRL": "real reais"},
    "nl": {"EUR": "euro", "USD": "dollar"},
    "pl": {
        "EUR": "euro",
        "USD": "dolar dolary dolarów dolara",
        "PLN": "złoty złote złotych złotego",
    },
    "hi": {"INR": "रुपये रुपए रुपया रूपये", "USD": "डॉलर", "EUR": "यूरो"},
}
_CODES = {
    language: {name: code for code, names in known.items() for name in names.split()}
    for language, known in _NAMES.items()
}
_WORD_AFTER = re.compile(r"[ \u00a0\u202f]?([\w\u0900-\u097f]{2,12})(?![\w\u0900-\u097f])")


class CurrencyForms(NamedTuple):
    """What one and several of a currency and of its hundredths are called."""

    unit: str
    units: str
    hundredth: str
    hundredths: str


# What num2words lacks, or says as in another country or without its plural.
_FORMS: Mapping[tuple[str, str], CurrencyForms] = {
    ("en", "EUR"): CurrencyForms("euro", "euros", "cent", "cents"),
    ("de", "CHF"): CurrencyForms("Franken", "Franken", "Rappen", "Rappen"),
    ("fr", "CHF"): CurrencyForms("franc", "francs", "centime", "centimes"),
    ("it", "CHF"): CurrencyForms("franco", "franchi", "centesimo", "centesimi"),
    ("pt", "BRL"): CurrencyForms("real", "reais", "centavo", "centavos"),
    ("pt", "EUR"): CurrencyForms("euro", "euros", "centavo", "centavos"),
    ("pt", "USD"): CurrencyForms("dólar", "dólares", "centavo", "centavos"),
    ("hi", "INR"): CurrencyForms("रुपया", "रुपए", "पैसा", "पैसे"),
    ("hi", "USD"): CurrencyForms("डॉलर", "डॉलर", "सेंट", "सेंट"),
    ("hi", "EUR"): CurrencyForms("यूरो", "यूरो", "सेंट", "सेंट"),
}


def forms_of(language: str, currency: str) -> CurrencyForms | None:
    """The names of the ISO 4217 `currency` where they are not left to num2words."""
    return _FORMS.get((language, currency))


def named_after(text: str, position: int, number: str, language: str) -> tuple[str, int] | None:
    """The currency whose name follows `number`, and where reading goes on.

    Only for amounts with hundredths: without them the name as it is written is right.
    """
    if not re.fullmatch(r"-?\d+\.\d\d", number):
        return None
    match = _WORD_AFTER.match(text, position)
    code = _CODES.get(language, {}).get(match[1].lower()) if match else None
    return (code, match.end()) if match and code else None


def split_amount(amount: Decimal) -> tuple[int, int]:
    """Units and hundredths of an amount without its sign."""
    units, hundredths = divmod(int(abs(amount) * 100), 100)
    return units, hundredths
