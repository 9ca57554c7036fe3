"""The report of a voice as a page that needs nothing else: no scripts, no foreign addresses."""

import base64
import hashlib
from datetime import datetime
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from api.native.voices.charts import Axis, Series, bars, lines, steps
from configs.settings import BRAND
from pipelines.text.language_names import name_language
from pipelines.voices.report import ReportedRating, VoiceReport
from pipelines.voices.service import KeptReport

FOLDER = Path(__file__).resolve().parent / "report_static"
NEAREST = 8  # stock voices that are shown at once
HZ_TICKS = (60, 125, 250, 500, 1000, 2000, 4000, 8000)

_STYLE = (FOLDER / "report.css").read_text(encoding="utf-8")
_STYLE_SUM = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
HEADERS = {
    "Content-Security-Policy": (
        f"default-src 'none'; style-src 'sha256-{_STYLE_SUM}'; media-src data:; "
        "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    ),
    "Referrer-Policy": "no-referrer",  # the address of the page is what lets one in
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "private, no-store",
}


def report_page(kept: KeptReport) -> str:
    """HTML, to be sent with HEADERS; a few milliseconds."""
    voice, report = kept.voice, kept.report
    nearest = report.stock[:NEAREST]
    return _template.render(
        brand=BRAND,
        style=Markup(_STYLE),
        voice={
            "name": voice.name,
            "language_name": name_language(voice.language).name,
            "gender": voice.gender,
            "created": _moment(voice.created_at),
            "finished": None if voice.finished_at is None else _moment(voice.finished_at),
            "status": voice.status,
            "reason": voice.reason,
        },
        report=report,
        judged=[] if report.judged is None else _judged(report.judged),
        curve=_curve(report),
        stock=_stock(report, len(nearest)),
        all_stock=_stock(report, len(report.stock)) if len(report.stock) > NEAREST else None,
        pitch=_pitch(report),
        pitch_note=_pitch_note(report),
        spectrum=_spectrum(report),
        recordings=kept.samples,
    )


def _judged(judged: ReportedRating) -> list[dict[str, str]]:
    def row(name: str, style: str, clone: float | None, stock: float | None) -> dict[str, str]:
        values = {"clone": clone, "stock": stock}
        return {
            "name": name,
            **{key: "–" if value is None else style.format(value) for key, value in values.items()},
        }

    return [
        row("Similarity", "{:.3f}", judged.similarity, judged.stock_similarity),
        row("Wrong words", "{:.1%}", judged.wer, judged.stock_wer),
        row("Quality", "{:.2f}", judged.dnsmos, judged.stock_dnsmos),
    ]


def _curve(report: VoiceReport) -> Markup:
    found = [(float(number), value) for number, value in report.similarity_curve]
    series = [Series("best so far", "clone", found, dotted=len(found) <= 60)]
    if found and report.stock:
        best = report.stock[0].similarity
        ends = (found[0][0], found[-1][0])
        series.append(Series("nearest stock voice", "stock", [(at, best) for at in ends]))
    values = [value for one in series for _, value in one.points]
    span = (min(values) - 0.02, max(values) + 0.02) if values else None
    return lines("Similarity by candidate", series, Axis("candidate"), Axis("similarity", span))


def _stock(report: VoiceReport, count: int) -> Markup:
    shown = [(one.name or one.voice, one.similarity, "plain") for one in report.stock[:count]]
    if report.judged is not None and shown:
        shown.insert(0, ("this voice", report.judged.similarity, "clone"))
    return bars("Similarity of the stock voices with the speaker", shown)


def _pitch(report: VoiceReport) -> Markup:
    pitch = report.pitch
    if pitch is None:
        return Markup()
    series = [
        Series("recordings", "source", steps(pitch.hz_bins, pitch.source), filled=True),
        Series("voice", "clone", steps(pitch.hz_bins, pitch.clone), filled=True),
    ]
    top = max((*pitch.source, *pitch.clone, 1e-6))
    heard = Axis("share of voiced frames", (0.0, top * 1.05))
    return lines("Pitch of recordings and voice", series, Axis("Hz"), heard)


def _pitch_note(report: VoiceReport) -> str:
    pitch = report.pitch
    if pitch is None or pitch.source_hz is None or pitch.clone_hz is None:
        return ""
    return (
        f"Median {pitch.source_hz:.0f} Hz in the recordings, {pitch.clone_hz:.0f} Hz in the voice."
    )


def _spectrum(report: VoiceReport) -> Markup:
    spectrum = report.spectrum
    if spectrum is None:
        return Markup()
    positive = [at for at, hz in enumerate(spectrum.hz) if hz > 0]

    def of(values: list[float]) -> list[tuple[float, float]]:
        return [(spectrum.hz[at], values[at]) for at in positive]

    series = [
        Series("recordings", "source", of(spectrum.source_db)),
        Series("voice", "clone", of(spectrum.clone_db)),
    ]
    hz = Axis("Hz", is_logarithmic=True, ticks=HZ_TICKS)
    return lines("Long-term spectra of recordings and voice", series, hz, Axis("dB"))


def _moment(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M UTC")


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def _environment() -> Environment:
    made = Environment(loader=FileSystemLoader(FOLDER), autoescape=True, undefined=StrictUndefined)
    made.filters["duration"] = _duration
    return made


_template = _environment().get_template("page.html")
