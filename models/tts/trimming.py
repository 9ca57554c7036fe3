"""Trims the silence before and after a sentence, and adds word times."""

from collections.abc import Generator, Iterator

import numpy as np

from models.audio import AudioChunk, Pcm, spread
from models.tts.base import SynthesisRequest

THRESHOLD = 0.01  # share of the peak: -40 dB
FRAME_S = 0.01
LEAD_S = 0.03
TAIL_S = 0.12
SILENT = 0.003  # share of full scale (-50 dB), while the peak is not known yet


def sounding(pcm: Pcm, sample_rate: int) -> tuple[int, int]:
    """Finds start and end of the speech in samples, with margins; equal when all is silent."""
    frame = round(FRAME_S * sample_rate)
    count = len(pcm) // frame
    if count == 0:
        return 0, len(pcm)
    peaks = np.abs(pcm[: count * frame]).reshape(count, frame).max(axis=1)
    loud = np.flatnonzero(peaks > THRESHOLD * peaks.max())
    if len(loud) == 0:
        return 0, 0
    start = int(loud[0]) * frame - round(LEAD_S * sample_rate)
    end = int(loud[-1] + 1) * frame + round(TAIL_S * sample_rate)
    return max(0, start), min(end, len(pcm))


def whole_sentence(pcm: Pcm, sample_rate: int, request: SynthesisRequest) -> AudioChunk:
    """Trims the audio of a request into one chunk, for engines without durations."""
    pcm = np.clip(pcm[slice(*sounding(pcm, sample_rate))], -1.0, 1.0)
    words = spread(request.text, len(pcm) / sample_rate) if request.timings else ()
    return AudioChunk(pcm, sample_rate, tuple(words))


def streamed_sentence(
    pieces: Iterator[Pcm], sample_rate: int, request: SynthesisRequest
) -> Generator[AudioChunk, None, None]:
    """Trims the audio of a request as it comes. Word times are known only after the last piece, so
    with them all audio is in the last chunk."""
    pieces = without_ends(pieces, sample_rate)
    if not request.timings:
        yield from (AudioChunk(pcm, sample_rate) for pcm in pieces)
        return
    trimmed = [np.zeros(0, np.float32)]
    for pcm in pieces:
        trimmed.append(pcm)
        yield AudioChunk(trimmed[0], sample_rate)
    whole = np.concatenate(trimmed)
    yield AudioChunk(whole, sample_rate, tuple(spread(request.text, len(whole) / sample_rate)))


def without_ends(pieces: Iterator[Pcm], sample_rate: int) -> Iterator[Pcm]:
    """Trims silence at both ends; silence within is held until more speech follows it."""
    lead, tail = round(LEAD_S * sample_rate), round(TAIL_S * sample_rate)
    held = np.zeros(0, np.float32)  # silence that may be a pause or the end of the speech
    begun = False
    for piece in pieces:
        loud = np.flatnonzero(np.abs(piece) > SILENT)
        if not len(loud):
            held = np.concatenate([held, piece])
            yield np.zeros(0, np.float32)
            continue
        first, end = len(held) + int(loud[0]), len(held) + int(loud[-1]) + 1
        whole = np.clip(np.concatenate([held, piece]), -1.0, 1.0)
        yield whole[0 if begun else max(0, first - lead) : end]
        held, begun = whole[end:], True
    if begun:
        yield held[:tail]
