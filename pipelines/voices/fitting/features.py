"""Features of a signal: its speech, level, spectrum and pitch, measured the same for all voices.

A speaker's recordings are split into a part that a fit uses, and one that is held out."""

import asyncio
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.audio import Pcm
from models.speaker.base import (
    EMBEDDING_SIZE,
    SPEAKER_SAMPLE_RATE,
    Embedding,
    Embeddings,
    SpeakerEncoder,
)
from models.speaker.mel import Mels, mel_spectrum
from pipelines.audio.decode.decoder import AudioDecoder
from pipelines.audio.measures import pitches_hz
from pipelines.temporary_directories import (
    RECORDINGS,
    delete_leftover_directories,
    temporary_directory,
)

LEVEL_DBFS = -30.0  # embeddings depend on loudness, which does not depend on the speaker
DELIVERED_DBFS = -15.0  # level of speech at -16 LUFS, as `enhance` makes it; measured -14 to -15.5
SOUND_SIZE = 2 * EMBEDDING_SIZE
FRAME_SAMPLES = SPEAKER_SAMPLE_RATE // 50
LOUD_PERCENTILE, SOFT_PERCENTILE = 95, 10
SPEECH_RANGE_DB = 30.0  # range of speech below its loud parts
SILENT = 1e-10  # power
HELD_OUT_SHARE = 0.25  # the end of each recording
MIN_PIECE_S = 1.6  # what an embedding needs
# So long only for a busy machine: uploads that cannot be decoded were refused before.
DECODED_WITHIN_S = 3600.0


@dataclass(frozen=True, slots=True)
class TargetSpeaker:
    embedding: Embedding  # [512] as `embed_both`, of the recordings that the fit may use
    held_out: Embedding  # [512], of the recordings that only rate the result
    second: Embeddings  # [2, 256], of both, by the encoder that the search does not use
    spectrum: NDArray[np.float32]  # mean power of the speech in each mel band
    pitches: NDArray[np.float32]  # Hz, of frames that have one
    excerpt: Pcm  # the longest recording, for the report


def analyse(
    recordings: Sequence[Pcm], encoder: SpeakerEncoder, second: SpeakerEncoder
) -> TargetSpeaker:
    """Measures signals at SPEAKER_SAMPLE_RATE; blocking, about a second a minute."""
    used, kept = [], []
    for pcm in recordings:
        cut = len(pcm) - int(len(pcm) * HELD_OUT_SHARE)
        if len(pcm) - cut < MIN_PIECE_S * SPEAKER_SAMPLE_RATE:
            cut = len(pcm)  # too short to be split
        used.append(pcm[:cut])
        if cut < len(pcm):
            kept.append(pcm[cut:])
    kept = kept or used
    embedding, held_out = (embed_both(map(at_level, some), some, encoder) for some in (used, kept))
    seconds = np.stack([second.embed_signals(some) for some in (used, kept)])
    used = [at_level(pcm) for pcm in used]
    speech = np.concatenate([pcm[spoken(pcm)] for pcm in used])
    spectra = np.concatenate([speech_frames(mel_spectrum(pcm)) for pcm in used])
    return TargetSpeaker(
        embedding=embedding,
        held_out=held_out,
        second=seconds,
        spectrum=mean_spectrum(spectra),
        pitches=pitches_hz(speech),
        excerpt=max(used, key=len),
    )


def embed_both(level: Iterable[Pcm], heard: Iterable[Pcm], encoder: SpeakerEncoder) -> Embedding:
    """Embed signals both at LEVEL_DBFS and as they are heard: [512] of length 1, whose cosine is
    the mean of the two cosines."""
    both = [encoder.embed_signals(signals) for signals in (level, heard)]
    return np.asarray(np.concatenate(both) / np.sqrt(2), np.float32)


def decode_all(recordings: Sequence[bytes], sample_rate: int = SPEAKER_SAMPLE_RATE) -> list[Pcm]:
    """Decode recordings to signals at that rate, in a worker process. Raises InvalidAudio."""
    with ThreadPoolExecutor(1) as thread:  # the caller may have an event loop
        return thread.submit(lambda: asyncio.run(_decode_all(recordings, sample_rate))).result()


async def _decode_all(recordings: Sequence[bytes], sample_rate: int) -> list[Pcm]:
    delete_leftover_directories(RECORDINGS)
    with temporary_directory(RECORDINGS) as folder:
        async with AudioDecoder(timeout_s=DECODED_WITHIN_S) as decoder:
            decoded = []
            for index, content in enumerate(recordings):
                path = folder / str(index)
                path.write_bytes(content)
                audio = await decoder.decode(path, sample_rate=sample_rate)
                decoded.append(np.array(audio.pcm))  # not mapped: a fit keeps no file on disk
            return decoded


def at_level(pcm: Pcm, dbfs: float = LEVEL_DBFS) -> Pcm:
    """Brings the root mean square of a signal's speech to a level; silence is unchanged."""
    power = float(np.square(pcm[spoken(pcm)]).mean(dtype=np.float64)) if len(pcm) else 0.0
    if power <= SILENT:
        return pcm
    return np.asarray(pcm * (10 ** (dbfs / 20) / power**0.5), np.float32)


def spoken(pcm: Pcm) -> NDArray[np.bool_]:
    """Marks the samples at SPEAKER_SAMPLE_RATE that are within speech, by level alone."""
    frames = len(pcm) // FRAME_SAMPLES
    if not frames:
        return np.ones(len(pcm), np.bool_)
    powers = np.square(pcm[: frames * FRAME_SAMPLES].reshape(frames, -1)).mean(axis=1)
    loud = np.repeat(_loud(powers), FRAME_SAMPLES)
    return np.pad(loud, (0, len(pcm) - len(loud)), "edge")


def speech_frames(mels: Mels) -> Mels:
    """Selects the frames of speech, by level alone."""
    return mels[_loud(mels.sum(axis=1))]


def mean_spectrum(mels: Mels) -> NDArray[np.float32]:
    """Computes the mean power in each band, normalised to a sum of 1."""
    spectrum = mels.mean(axis=0, dtype=np.float64)
    return np.asarray(spectrum / max(float(spectrum.sum()), SILENT), np.float32)


def pitch_statistics(pitches: NDArray[np.float32]) -> tuple[float, float]:
    """Return level and range: the median of the logarithm, and half the span from the 15th to the
    85th percentile. Both are NaN if no frame has a pitch."""
    if not len(pitches):
        return np.nan, np.nan
    low, median, high = np.log(np.percentile(pitches, (15, 50, 85)))
    return float(median), float(high - low) / 2


def _loud(powers: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Marks the powers that are nearer to the loud parts than to the noise between them."""
    levels = 10 * np.log10(powers + SILENT)
    loud, soft = np.percentile(levels, (LOUD_PERCENTILE, SOFT_PERCENTILE))
    return np.asarray(levels >= max(loud - SPEECH_RANGE_DB, min((loud + soft) / 2, loud - 10)))
