"""Charts as SVG that stands in a page: no scripts, no foreign addresses, colours by class.

Words of others are escaped.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

WIDTH, HEIGHT = 640, 280
LEFT, RIGHT, TOP, BOTTOM = 54, 12, 28, 44  # room around the plot
BAR_HEIGHT, BAR_GAP, NAME_WIDTH = 17, 6, 150
TICKS = 6
LETTER = 7.6  # px of one in a legend, on average

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Series:
    """One line. `kind` is the class that colours it: source, clone, stock or plain."""

    name: str
    kind: str
    points: Sequence[Point]
    filled: bool = False  # down to the axis
    dotted: bool = False  # its points are shown


@dataclass(frozen=True, slots=True)
class Axis:
    """What one direction shows. Without `span`, all that the lines have."""

    name: str
    span: tuple[float, float] | None = None
    is_logarithmic: bool = False
    ticks: Sequence[float] | None = None  # None: round numbers

    def place(self, values: Sequence[float], start: float, end: float) -> Callable[[float], float]:
        """Where a value lies between the pixels `start` and `end`."""
        low, high = self.span or (min(values), max(values))
        low, high = self._scaled(low), self._scaled(high)
        stretch = (end - start) / ((high - low) or 1.0)
        return lambda value: start + (self._scaled(value) - low) * stretch

    def marks(self, values: Sequence[float]) -> list[float]:
        low, high = self.span or (min(values), max(values))
        return [tick for tick in self.ticks or round_ticks(low, high) if low <= tick <= high]

    def _scaled(self, value: float) -> float:
        return math.log10(max(value, 1e-9)) if self.is_logarithmic else value


def round_ticks(low: float, high: float, most: int = TICKS) -> list[float]:
    """Up to `most` numbers like 0.2 or 50 that lie in between."""
    if not high > low:
        return [low]
    raw = (high - low) / most
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= raw * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [number * step for number in range(first, last + 1)]


def lines(title: str, series: Sequence[Series], x: Axis, y: Axis) -> Markup:
    """Lines over common axes; nothing when no line has two points."""
    shown = [one for one in series if len(one.points) > 1]
    if not shown:
        return Markup()
    xs = [at for one in shown for at, _ in one.points]
    ys = [at for one in shown for _, at in one.points]
    to_x, to_y = x.place(xs, LEFT, WIDTH - RIGHT), y.place(ys, HEIGHT - BOTTOM, TOP)
    parts = [_grid(x, xs, to_x, y, ys, to_y)]
    for one in shown:
        places = [(to_x(at_x), to_y(at_y)) for at_x, at_y in one.points]
        if one.filled:
            floor = HEIGHT - BOTTOM
            area = [(places[0][0], floor), *places, (places[-1][0], floor)]
            parts.append(
                Markup('<polygon class="area {}" points="{}"/>').format(one.kind, _points(area))
            )
        parts.append(
            Markup('<polyline class="line {}" points="{}"/>').format(one.kind, _points(places))
        )
        if one.dotted:
            dot = Markup('<circle class="dot {}" cx="{:.1f}" cy="{:.1f}" r="2.5"/>')
            parts += [dot.format(one.kind, *place) for place in places]
    parts.append(_legend(shown))
    return _svg(title, HEIGHT, parts)


def steps(edges: Sequence[float], shares: Sequence[float]) -> list[Point]:
    """The outline of a histogram, to be drawn as a line."""
    outline: list[Point] = []
    for low, high, share in zip(edges[:-1], edges[1:], shares, strict=True):
        outline += [(low, share), (high, share)]
    return outline


def bars(title: str, values: Sequence[tuple[str, float, str]]) -> Markup:
    """One bar for each (name, value, kind), from 0 to 1, with its number; nothing without any."""
    if not values:
        return Markup()
    height = len(values) * (BAR_HEIGHT + BAR_GAP) + 2 * BAR_GAP
    room = WIDTH - NAME_WIDTH - RIGHT - 44
    parts = []
    for number, (name, value, kind) in enumerate(values):
        top = BAR_GAP + number * (BAR_HEIGHT + BAR_GAP)
        length = room * min(max(value, 0.0), 1.0)
        middle = top + BAR_HEIGHT * 0.75
        parts += [
            Markup('<text class="name" x="{}" y="{:.1f}">{}</text>').format(
                NAME_WIDTH - 8, middle, _short(name)
            ),
            Markup('<rect class="bar {}" x="{}" y="{}" width="{:.1f}" height="{}"/>').format(
                kind, NAME_WIDTH, top, length, BAR_HEIGHT
            ),
            Markup('<text class="value" x="{:.1f}" y="{:.1f}">{:.2f}</text>').format(
                NAME_WIDTH + length + 6, middle, value
            ),
        ]
    return _svg(title, height, parts)


def _grid(
    x: Axis,
    xs: Sequence[float],
    to_x: Callable[[float], float],
    y: Axis,
    ys: Sequence[float],
    to_y: Callable[[float], float],
) -> Markup:
    floor = HEIGHT - BOTTOM
    rule = Markup('<line class="grid" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>')
    label = Markup('<text class="{}" x="{:.1f}" y="{:.1f}">{}</text>')
    parts = []
    for tick in x.marks(xs):
        at = to_x(tick)
        parts += [
            rule.format(at, floor, at, floor + 4),
            label.format("tick-x", at, floor + 19, _number(tick)),
        ]
    for tick in y.marks(ys):
        at = to_y(tick)
        parts += [
            rule.format(LEFT, at, WIDTH - RIGHT, at),
            label.format("tick-y", LEFT - 7, at + 4, _number(tick)),
        ]
    parts += [
        label.format("axis-x", (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 5, x.name),
        label.format("axis-y", 4, 14, y.name),
    ]
    return Markup().join(parts)


def _legend(series: Sequence[Series]) -> Markup:
    """At the top on the right, the first one outermost left."""
    parts = []
    end = float(WIDTH - RIGHT)
    for one in reversed(series):
        end -= len(one.name) * LETTER
        parts += [
            Markup('<line class="line {}" x1="{:.1f}" y1="10" x2="{:.1f}" y2="10"/>').format(
                one.kind, end - 22, end - 6
            ),
            Markup('<text class="legend" x="{:.1f}" y="14">{}</text>').format(end, one.name),
        ]
        end -= 34
    return Markup().join(parts)


def _svg(title: str, height: float, parts: Sequence[Markup]) -> Markup:
    head = Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}">')
    return head.format(WIDTH, height, title) + Markup().join(parts) + Markup("</svg>")


def _points(places: Sequence[Point]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in places)


def _short(name: str) -> Markup:
    return escape(name if len(name) <= 22 else name[:21] + "…")


def _number(value: float) -> str:
    """Without an exponent or digits that say nothing."""
    text = f"{value:.6g}"
    return text.replace("-", "−") if "e" not in text else f"{value:.0f}"
