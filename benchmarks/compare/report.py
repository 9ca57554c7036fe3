"""The comparison as a table and as a picture: a bar for each model and figure."""

from collections.abc import Mapping
from html import escape
from typing import NamedTuple

from antiphon.cli.service import table
from benchmarks.compare.measure import Figures

BAR_HEIGHT, BAR_WIDTH, NAME_WIDTH, HEAD_HEIGHT = 22, 320, 180, 44
COLOURS = ("#3b6ea5", "#c7762e", "#4f8f5b", "#8a5aa8", "#a8474b", "#6b7280")


class Column(NamedTuple):
    head: str
    digits: int
    better: str  # of two figures


COLUMNS = {
    "right": Column("RIGHT ANSWERS, %", 0, "more"),
    "valid": Column("VALID JSON, %", 0, "more"),
    "rate": Column("TOKENS/s", 1, "more"),
    "speed": Column("SPEED, x real time", 1, "more"),
    "first": Column("FIRST SOUND OR TOKEN, ms", 0, "less"),
    "wer": Column("WORD ERRORS, %", 1, "less"),
    "quality": Column("DNSMOS, 1 to 5", 2, "more"),
    "memory": Column("MEMORY, MiB", 0, "less"),
    "load": Column("LOADED IN, s", 1, "less"),
}


def as_table(found: Mapping[str, Figures]) -> str:
    """A line for each model."""
    columns = _columns(found)
    rows = [("MODEL", *(one.head for one in columns.values()))]
    for name, figures in found.items():
        rows.append((name, *(_shown(figures.get(key), one) for key, one in columns.items())))
    return table(rows)


def as_svg(found: Mapping[str, Figures], title: str) -> str:
    """Groups of bars, one for each figure, in two columns."""
    columns, drawn = _columns(found), []
    group, width = HEAD_HEIGHT + BAR_HEIGHT * len(found), NAME_WIDTH + BAR_WIDTH + 90
    for place, (key, column) in enumerate(columns.items()):
        left, top = width * (place % 2) + 12, group * (place // 2) + 36
        most = max(figures.get(key) or 0.0 for figures in found.values()) or 1.0
        head = f"{column.head} ({column.better} is better)"
        drawn.append(f'<text x="{left}" y="{top + 20}" font-weight="bold">{escape(head)}</text>')
        for row, (name, figures) in enumerate(found.items()):
            y, x, value = top + 30 + BAR_HEIGHT * row, left + NAME_WIDTH, figures.get(key)
            length, colour = round(BAR_WIDTH * (value or 0.0) / most), COLOURS[row % len(COLOURS)]
            drawn += [
                f'<text x="{left}" y="{y + 14}">{escape(name[-26:])}</text>',
                f'<rect x="{x}" y="{y}" width="{length}" height="16" fill="{colour}"/>',
                f'<text x="{x + length + 6}" y="{y + 14}">{_shown(value, column)}</text>',
            ]
    height = group * -(-len(columns) // 2) + 48
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{2 * width}" height="{height}" '
    head += 'font-family="sans-serif" font-size="13">'
    white = '<rect width="100%" height="100%" fill="white"/>'
    about = f'<text x="12" y="24" font-size="15">{escape(title)}</text>'
    return "\n".join((head, white, about, *drawn, "</svg>\n"))


def _columns(found: Mapping[str, Figures]) -> dict[str, Column]:
    """Those of the figures that a model has."""
    known = {key for figures in found.values() for key in figures}
    return {key: column for key, column in COLUMNS.items() if key in known}


def _shown(value: float | None, column: Column) -> str:
    return "-" if value is None else f"{value:.{column.digits}f}"
