"""Voice reports as the fitting writes them."""

import base64
import io
from functools import cache

import av
import numpy as np

from pipelines.voices.report import (
    Judged,
    Pitch,
    Samples,
    Spectrum,
    StockSimilarity,
    VoiceReport,
)


@cache
def opus_tone(hz: float) -> str:
    """A sine of one second as Ogg Opus in base64."""
    target = io.BytesIO()
    time_s = np.arange(24_000) / 24_000
    frame = av.AudioFrame.from_ndarray(
        (0.3 * np.sin(2 * np.pi * hz * time_s)).astype(np.float32)[None], "flt", "mono"
    )
    frame.sample_rate = 24_000
    with av.open(target, "w", format="ogg") as container:
        stream = container.add_stream("libopus", rate=24_000)
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return base64.b64encode(target.getvalue()).decode()


def full_report(sentence: str = "The river runs past the old mill.") -> VoiceReport:
    """With every optional part."""
    hz_bins = [60.0 * 2 ** (step / 8) for step in range(21)]
    hz = [float(50 * 1.12**step) for step in range(45)]

    def bell(middle: float, width: float) -> list[float]:
        heights = np.exp(-(((np.arange(20) - middle) / width) ** 2))
        return [float(share) for share in heights / heights.sum()]

    return VoiceReport(
        evaluations=320,
        seconds=642.5,
        similarity_curve=[(n * 10, 0.86 - 0.14 * 0.9**n) for n in range(1, 33)],
        stock=[
            StockSimilarity(voice=f"am_voice{n}", name=f"Name {n}", similarity=0.74 - 0.006 * n)
            for n in range(54)
        ],
        pitch=Pitch(
            hz_bins=hz_bins, source=bell(8, 3), clone=bell(9, 2.5), source_hz=117, clone_hz=121
        ),
        spectrum=Spectrum(
            hz=hz,
            source_db=[-12 * np.log10(one / 300) ** 2 + 6 for one in hz],
            clone_db=[-13 * np.log10(one / 330) ** 2 + 6 for one in hz],
        ),
        judged=Judged(
            similarity=0.852,
            stock_similarity=0.731,
            recordings_similarity=0.967,
            second_similarity=0.41,
            stock_second_similarity=0.187,
            recordings_second_similarity=0.9,
            wer=0.021,
            stock_wer=0.018,
            dnsmos=3.71,
            stock_dnsmos=3.82,
        ),
        samples=Samples(sentence=sentence, source=opus_tone(120), clone=opus_tone(125)),
    )
