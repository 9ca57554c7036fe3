"""Derives numbers between two bounds, digit by digit."""

from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any

from models.llm.structured_output.ast import EMPTY, GrammarBuilder, Node, SchemaError

MAX_DIGITS = 15  # integer digits that a double holds exactly
LARGEST = 10**MAX_DIGITS  # larger bounds are ignored
MAX_DECIMALS = 6


def bounded(schema: dict[str, Any], builder: GrammarBuilder, *, whole: bool) -> Node:
    """Derives numbers within the bounds of the schema. Raises SchemaError."""
    decimals = 0 if whole else MAX_DECIMALS

    def scaled(key: str, rounding: str) -> int:
        """Returns a bound in units of the last decimal."""
        exact = Decimal(str(max(-LARGEST, min(LARGEST, schema[key]))))
        return int(exact.scaleb(decimals).to_integral_value(rounding))

    lows: list[int] = []
    if schema.get("minimum") is not None:
        lows.append(scaled("minimum", ROUND_CEILING))
    if schema.get("exclusiveMinimum") is not None:
        lows.append(scaled("exclusiveMinimum", ROUND_FLOOR) + 1)
    highs: list[int] = []
    if schema.get("maximum") is not None:
        highs.append(scaled("maximum", ROUND_FLOOR))
    if schema.get("exclusiveMaximum") is not None:
        highs.append(scaled("exclusiveMaximum", ROUND_CEILING) - 1)
    compiler = _NumberCompiler(builder, decimals)
    if not (lows or highs):
        return compiler.unbounded()
    limit = 10 ** (MAX_DIGITS + decimals) - 1
    return compiler.between(max([-limit, *lows]), min([limit, *highs]))


class _NumberCompiler:
    """Compiler of ranges of numbers, given as integers without their point, to nodes."""

    def __init__(self, builder: GrammarBuilder, decimals: int) -> None:
        self._builder = builder
        self._decimals = decimals

    def unbounded(self) -> Node:
        build = self._builder
        more = build.repeat(self._digit(0, 9), 0, MAX_DIGITS - 1)
        digits = build.choice(build.text("0"), build.sequence(self._digit(1, 9), more))
        number = build.sequence(build.optional(build.text("-")), digits)
        if not self._decimals:
            return number
        decimals = build.repeat(self._digit(0, 9), 1, self._decimals)
        return build.sequence(number, build.optional(build.sequence(build.text("."), decimals)))

    def between(self, low: int, high: int) -> Node:
        """Derives the numbers from `low` to `high`, both in units of the last decimal (1.5 is
        1_500_000). Raises SchemaError if there is none."""
        if low > high:
            raise SchemaError("no number lies between the bounds")
        ways: list[Node] = []
        if low < 0:
            negative = self._positive(max(1, -high), -low)
            ways.append(self._builder.sequence(self._builder.text("-"), negative))
        if high >= 0:
            ways.append(self._positive(max(0, low), high))
        return self._builder.choice(*ways)

    def _positive(self, low: int, high: int) -> Node:
        ways = []
        shortest = self._decimals + 1
        for width in range(shortest, max(len(str(high)), shortest) + 1):
            first = 10 ** (width - 1) if width > shortest else 0
            begin, end = max(low, first), min(high, 10**width - 1)
            if begin <= end:
                ways.append(self._rest(f"{begin:0{width}}", f"{end:0{width}}"))
        return self._builder.choice(*ways)

    def _rest(self, low: str, high: str) -> Node:
        """Derives digits of one width, with a point before the decimals, whose trailing zeros can
        be omitted."""
        build, width, decimals = self._builder, len(low), self._decimals
        if not width:
            return EMPTY
        if width == decimals:
            fraction = build.sequence(build.text("."), self._digits(low, high))
            return fraction if int(low) else build.optional(fraction)
        if width < decimals and not int(low):
            if set(high) == {"9"}:
                return build.repeat(self._digit(0, 9), 0, width)
            return build.optional(self._digits(low, high))
        return self._digits(low, high)

    def _digits(self, low: str, high: str) -> Node:
        """Derives the first digit and, by `_rest`, the rest."""
        build, width = self._builder, len(low)
        if width > self._decimals and set(low) == {"0"} and set(high) == {"9"}:
            whole = width - self._decimals
            free = build.repeat(self._digit(0, 9), whole, whole)
            return build.sequence(free, self._rest(low[whole:], high[whole:]))
        first, last = int(low[0]), int(high[0])
        rests: dict[tuple[str, str], list[int]] = {}  # first digits by the range of the rest
        for digit in range(first, last + 1):
            least = low[1:] if digit == first else "0" * (width - 1)
            most = high[1:] if digit == last else "9" * (width - 1)
            rests.setdefault((least, most), []).append(digit)
        ways = (
            build.sequence(self._digit(digits[0], digits[-1]), self._rest(*rest))
            for rest, digits in rests.items()
        )
        return build.choice(*ways)

    def _digit(self, first: int, last: int) -> Node:
        if first == last:
            return self._builder.text(str(first))
        return self._builder.char_set([(ord(str(first)), ord(str(last)))])
