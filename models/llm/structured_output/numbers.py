"""Derives numbers between two bounds, digit by digit."""

from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any

from models.llm.structured_output.ast import EMPTY, GrammarBuilder, Node, SchemaError

MAX_DIGITS = 15  # integer digits that a double holds exactly
LARGEST = 10**MAX_DIGITS  # larger bounds are ignored
MAX_DECIMALS = 6


def bounded(schema: dict[str, Any], builder: GrammarBuilder, *, whole: bool) -> Node:
    """Derives numbers within the bounds of the schema. Raises SchemaError."""
    least = _bound(schema, "minimum")
    above = _bound(schema, "exclusiveMinimum")
    most = _bound(schema, "maximum")
    below = _bound(schema, "exclusiveMaximum")
    open_low = above is not None and (least is None or above >= least)
    open_high = below is not None and (most is None or below <= most)
    low = above if open_low else least
    high = below if open_high else most
    if not whole:
        return _NumberCompiler(builder).decimals(low, high, (open_low, open_high))
    if low is not None and open_low:
        low = low.to_integral_value(ROUND_FLOOR) + 1
    if high is not None and open_high:
        high = high.to_integral_value(ROUND_CEILING) - 1
    return _NumberCompiler(builder).integers(low, high)


def _bound(schema: dict[str, Any], key: str) -> Decimal | None:
    value = schema.get(key)
    if value is None:
        return None
    return Decimal(str(max(-LARGEST, min(LARGEST, value))))


class _NumberCompiler:
    """Compiler of ranges of numbers to nodes in `builder`."""

    def __init__(self, builder: GrammarBuilder) -> None:
        self._builder = builder

    def integers(self, least: Decimal | None, most: Decimal | None) -> Node:
        """Derives integers from `least` to `most`, both included. Raises SchemaError if none."""
        if least is not None or most is not None:
            return self._scaled(least, most, 0)
        build = self._builder
        more = build.repeat(self._digit(0, 9), 0, MAX_DIGITS - 1)
        digits = build.choice(build.text("0"), build.sequence(self._digit(1, 9), more))
        return build.sequence(build.optional(build.text("-")), digits)

    def decimals(
        self, least: Decimal | None, most: Decimal | None, open_ends: tuple[bool, bool]
    ) -> Node:
        """Derives decimals between the bounds; an open end is excluded. Raises SchemaError."""
        if least is None and most is None:
            build = self._builder
            fraction = build.repeat(self._digit(0, 9), 1, MAX_DECIMALS)
            fraction = build.sequence(build.text("."), fraction)
            return build.sequence(self.integers(None, None), build.optional(fraction))
        decimals = MAX_DECIMALS
        step = Decimal(1).scaleb(-decimals)
        if least is not None and open_ends[0]:
            least = _ceil(least, decimals) if _ceil(least, decimals) > least else least + step
        if most is not None and open_ends[1]:
            most = _floor(most, decimals) if _floor(most, decimals) < most else most - step
        return self._scaled(least, most, decimals)

    def _scaled(self, least: Decimal | None, most: Decimal | None, decimals: int) -> Node:
        """Derives numbers with at most this many decimals, as integers with a point inserted."""
        limit = 10 ** (MAX_DIGITS + decimals) - 1
        low = -limit if least is None else int(_ceil(least, decimals).scaleb(decimals))
        high = limit if most is None else int(_floor(most, decimals).scaleb(decimals))
        low, high = max(low, -limit), min(high, limit)
        if low > high:
            raise SchemaError("no number lies between the bounds")
        ways: list[Node] = []
        if low < 0:
            negative = self._positive(max(1, -high), -low, decimals)
            ways.append(self._builder.sequence(self._builder.text("-"), negative))
        if high >= 0:
            ways.append(self._positive(max(0, low), high, decimals))
        return self._builder.choice(*ways)

    def _positive(self, low: int, high: int, decimals: int) -> Node:
        ways = []
        widest = max(len(str(high)), decimals + 1)
        for width in range(decimals + 1, widest + 1):
            first = 10 ** (width - 1) if width > decimals + 1 else 0
            begin, end = max(low, first), min(high, 10**width - 1)
            if begin <= end:
                ways.append(self._between(f"{begin:0{width}}", f"{end:0{width}}", decimals))
        return self._builder.choice(*ways)

    def _between(self, low: str, high: str, decimals: int) -> Node:
        """Derives digit strings of one width, with the point before the last `decimals` digits.
        Trailing zeros after the point can be omitted."""
        build, width = self._builder, len(low)
        if not width:
            return EMPTY
        if width == decimals:
            fraction = build.sequence(build.text("."), self._digits(low, high, decimals))
            return fraction if int(low) else build.optional(fraction)
        if width < decimals and not int(low):
            if set(high) == {"9"}:
                return build.repeat(self._digit(0, 9), 0, width)
            return build.optional(self._digits(low, high, decimals))
        return self._digits(low, high, decimals)

    def _digits(self, low: str, high: str, decimals: int) -> Node:
        """Derives the first digit and, by `_between`, the rest."""
        build, width = self._builder, len(low)
        if width > decimals and set(low) == {"0"} and set(high) == {"9"}:
            whole = width - decimals
            free = build.repeat(self._digit(0, 9), whole, whole)
            return build.sequence(free, self._between(low[whole:], high[whole:], decimals))
        first, last = int(low[0]), int(high[0])
        rests: dict[tuple[str, str], list[int]] = {}  # first digits by the range of the rest
        for digit in range(first, last + 1):
            least = low[1:] if digit == first else "0" * (width - 1)
            most = high[1:] if digit == last else "9" * (width - 1)
            rests.setdefault((least, most), []).append(digit)
        ways = (
            build.sequence(self._digit(digits[0], digits[-1]), self._between(*rest, decimals))
            for rest, digits in rests.items()
        )
        return build.choice(*ways)

    def _digit(self, first: int, last: int) -> Node:
        if first == last:
            return self._builder.text(str(first))
        return self._builder.char_set([(ord(str(first)), ord(str(last)))])


def _ceil(bound: Decimal, decimals: int) -> Decimal:
    return bound.quantize(Decimal(1).scaleb(-decimals), ROUND_CEILING)


def _floor(bound: Decimal, decimals: int) -> Decimal:
    return bound.quantize(Decimal(1).scaleb(-decimals), ROUND_FLOOR)
