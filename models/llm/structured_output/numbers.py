"""Numbers between two bounds, digit by digit."""

from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

from models.llm.structured_output.rules import SchemaError, literal

MAX_DIGITS = 15  # before the point: what a double holds exactly
DECIMALS = 2  # of a bounded number, unless its bounds have more
MAX_DECIMALS = 6

INTEGER = f'"-"? ("0" | [1-9] [0-9]{{0,{MAX_DIGITS - 1}}})'
NUMBER = f'{INTEGER} ("." [0-9]{{1,{MAX_DECIMALS}}})?'


def integers(least: Decimal | None, most: Decimal | None) -> str:
    """Whole numbers from `least` to `most`, both allowed. Raises SchemaError when there is none."""
    return INTEGER if least is None and most is None else _scaled(least, most, 0)


def numbers(least: Decimal | None, most: Decimal | None, open_ends: tuple[bool, bool]) -> str:
    """Decimals between the bounds; an open end is not allowed itself. Raises SchemaError."""
    if least is None and most is None:
        return NUMBER
    given = [bound for bound in (least, most) if bound is not None]
    decimals = min(max(DECIMALS, *(_decimals(bound) for bound in given)), MAX_DECIMALS)
    step = Decimal(1).scaleb(-decimals)
    if least is not None and open_ends[0]:
        least = _up(least, decimals) if _up(least, decimals) > least else least + step
    if most is not None and open_ends[1]:
        most = _down(most, decimals) if _down(most, decimals) < most else most - step
    return _scaled(least, most, decimals)


def _scaled(least: Decimal | None, most: Decimal | None, decimals: int) -> str:
    """All numbers of this many decimals: whole numbers with a point in them."""
    limit = 10 ** (MAX_DIGITS + decimals) - 1
    low = -limit if least is None else int(_up(least, decimals).scaleb(decimals))
    high = limit if most is None else int(_down(most, decimals).scaleb(decimals))
    low, high = max(low, -limit), min(high, limit)
    if low > high:
        raise SchemaError("no number lies between the bounds")
    ways: list[str] = []
    if low < 0:
        ways.append(f'"-" ({_positive(max(1, -high), -low, decimals)})')
    if high >= 0:
        ways.append(_positive(max(0, low), high, decimals))
    return " | ".join(ways)


def _positive(low: int, high: int, decimals: int) -> str:
    ways = []
    for width in range(decimals + 1, len(str(high)) + 1 if high >= 10**decimals else decimals + 2):
        first = 10 ** (width - 1) if width > decimals + 1 else 0
        begin, end = max(low, first), min(high, 10**width - 1)
        if begin <= end:
            ways.append(_between(f"{begin:0{width}}", f"{end:0{width}}", decimals))
    return " | ".join(ways)


def _between(low: str, high: str, decimals: int) -> str:
    """Digit strings of one width; the point stands before the last `decimals` digits."""
    width = len(low)
    if not width:
        return '""'
    point = '"." ' if width == decimals else ""
    if low == high:
        return point + _digits(low, decimals)
    if set(low) == {"0"} and set(high) == {"9"}:
        return point + _any_digits(width, decimals)
    if low[0] == high[0]:
        return f"{point}{literal(low[0])} ({_between(low[1:], high[1:], decimals)})"
    ways = []
    first, last = int(low[0]), int(high[0])
    if set(low[1:]) - {"0"}:
        ways.append(f"{literal(low[0])} ({_between(low[1:], '9' * (width - 1), decimals)})")
        first += 1
    if set(high[1:]) - {"9"}:
        ways.append(f"{literal(high[0])} ({_between('0' * (width - 1), high[1:], decimals)})")
        last -= 1
    if first <= last:
        ways.append(f"[{first}-{last}] {_any_digits(width - 1, decimals, after=True)}".rstrip())
    return f"{point}({' | '.join(ways)})"


def _digits(digits: str, decimals: int) -> str:
    """These digits; a point before the first of them has been written."""
    if 0 < decimals < len(digits):
        return literal(f"{digits[:-decimals]}.{digits[-decimals:]}")
    return literal(digits)


def _any_digits(width: int, decimals: int, *, after: bool = False) -> str:
    """`width` digits; `after` others, so that a point may come first."""
    if not width:
        return ""
    if 0 < decimals < width or (after and decimals == width):
        before = width - decimals
        head = f"[0-9]{{{before}}} " if before else ""
        return f'{head}"." [0-9]{{{decimals}}}'
    return f"[0-9]{{{width}}}"


def _decimals(bound: Decimal) -> int:
    exponent = bound.normalize().as_tuple().exponent
    return max(0, -exponent) if isinstance(exponent, int) else 0


def _up(bound: Decimal, decimals: int) -> Decimal:
    return bound.quantize(Decimal(1).scaleb(-decimals), ROUND_CEILING)


def _down(bound: Decimal, decimals: int) -> Decimal:
    return bound.quantize(Decimal(1).scaleb(-decimals), ROUND_FLOOR)
