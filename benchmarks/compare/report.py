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
    better: str  # "more" or "less"


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


def as_table(results: Mapping[str, Figures]) -> str:
    """A line for each model."""
    columns = _columns(results)
    rows = [("MODEL", *(column.head for column in columns.values()))]
    for name, figures in results.items():
        rows.append((name, *(_text(figures.get(key), column) for key, column in columns.items())))
    return table(rows)


def as_svg(results: Mapping[str, Figures], title: str) -> str:
    """Groups of bars, one for each figure, in two columns."""
    columns = _columns(results)
    drawn = []
    group = HEAD_HEIGHT + BAR_HEIGHT * len(results)
    width = NAME_WIDTH + BAR_WIDTH + 90
    for place, (key, column) in enumerate(columns.items()):
        left = width * (place % 2) + 12
        top = group * (place // 2) + 36
        most = max(figures.get(key) or 0.0 for figures in results.values()) or 1.0
        head = f"{column.head} ({column.better} is better)"
        drawn.append(f'<text x="{left}" y="{top + 20}" font-weight="bold">{escape(head)}</text>')
        for row, (name, figures) in enumerate(results.items()):
            x = left + NAME_WIDTH
            y = top + 30 + BAR_HEIGHT * row
            value = figures.get(key)
            length = round(BAR_WIDTH * (value or 0.0) / most)
            colour = COLOURS[row % len(COLOURS)]
            drawn += [
                f'<text x="{left}" y="{y + 14}">{escape(name[-26:])}</text>',
                f'<rect x="{x}" y="{y}" width="{length}" height="16" fill="{colour}"/>',
                f'<text x="{x + length + 6}" y="{y + 14}">{_text(value, column)}</text>',
            ]
    height = group * -(-len(columns) // 2) + 48
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{2 * width}" height="{height}" '
    head += 'font-family="sans-serif" font-size="13">'
    white = '<rect width="100%" height="100%" fill="white"/>'
    about = f'<text x="12" y="24" font-size="15">{escape(title)}</text>'
    return "\n".join((head, white, about, *drawn, "</svg>\n"))


def _columns(results: Mapping[str, Figures]) -> dict[str, Column]:
    """The columns for which at least one model has a figure."""
    present = {key for figures in results.values() for key in figures}
    return {key: column for key, column in COLUMNS.items() if key in present}


def _text(value: float | None, column: Column) -> str:
    return "-" if value is None else f"{value:.{column.digits}f}"
