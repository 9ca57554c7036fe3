"""The report of a voice as one page of HTML and SVG, without scripts or other addresses."""

import base64
import hashlib
import math
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from configs.settings import BRAND
from pipelines.text.language_names import name_language
from pipelines.voices.service import StoredReport

FOLDER = Path(__file__).resolve().parent / "report_static"

_STYLE = (FOLDER / "report.css").read_text(encoding="utf-8")
_STYLE_SUM = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
HEADERS = {
    "Content-Security-Policy": (
        f"default-src 'none'; style-src 'sha256-{_STYLE_SUM}'; media-src data:; "
        "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    ),
    "Referrer-Policy": "no-referrer",  # the address of the page is its credential
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "private, no-store",
}


def report_page(kept: StoredReport) -> str:
    """HTML, to be sent with HEADERS; a few milliseconds."""
    return _template.render(
        brand=BRAND,
        style=Markup(_STYLE),
        voice=kept.voice,
        language_name=name_language(kept.voice.language).name,
        report=kept.report,
        recordings=kept.samples,
    )


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def _moment(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M UTC")


def _histogram(shares: Sequence[float], edges: Sequence[float]) -> list[tuple[float, float]]:
    """The outline of a histogram as points."""
    bins = zip(edges[:-1], edges[1:], shares, strict=True)
    steps = [point for low, high, share in bins for point in ((low, share), (high, share))]
    return [(edges[0], 0.0), *steps, (edges[-1], 0.0)]


def _on_log_axis(values: Sequence[float], hz: Sequence[float]) -> list[tuple[float, float]]:
    return [(math.log10(at), value) for at, value in zip(hz, values, strict=True) if at > 0]


def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "duration": _duration,
        "moment": _moment,
        "histogram": _histogram,
        "on_log_axis": _on_log_axis,
        "log10": math.log10,
    }
    return made


_template = _environment().get_template("page.html")
