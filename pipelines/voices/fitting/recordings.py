"""The speaker of a fit: features of their recordings, decoded and split into used and held out."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.audio import Pcm
from models.speaker.base import SPEAKER_SAMPLE_RATE, Embedding, SpeakerEncoder
from models.speaker.mel import mel_spectrum
from pipelines.audio.decode.decoder import AudioDecoder
from pipelines.audio.measures import pitches_hz
from pipelines.temporary_directories import delete_leftover_directories, temporary_directory
from pipelines.voices.fitting.features import (
    at_level,
    mean_spectrum,
    speech_frames,
    spoken,
)

FOLDERS = "recordings"
HELD_OUT_SHARE = 0.25  # the end of each recording
MIN_PIECE_S = 1.6  # what an embedding needs
# Undecodable uploads were refused before; this allows for a busy machine.
DECODED_WITHIN_S = 3600.0


@dataclass(frozen=True, slots=True)
class TargetSpeaker:
    """One person's voice."""

    embedding: Embedding  # of what the fit may use
    held_out: Embedding  # of what only rates the result
    spectrum: NDArray[np.float32]  # mean power of the speech in each mel band
    pitches: NDArray[np.float32]  # Hz, of frames that have one
    excerpt: Pcm  # the longest recording, for the report


def analyse(recordings: Sequence[Pcm], encoder: SpeakerEncoder) -> TargetSpeaker:
    """Measures signals at SPEAKER_SAMPLE_RATE; blocking, about a second a minute."""
    used, kept = [], []
    for pcm in recordings:
        cut = len(pcm) - int(len(pcm) * HELD_OUT_SHARE)
        if len(pcm) - cut < MIN_PIECE_S * SPEAKER_SAMPLE_RATE:
            cut = len(pcm)  # too short to be split
        used.append(at_level(pcm[:cut]))
        if cut < len(pcm):
            kept.append(at_level(pcm[cut:]))
    embedding = encoder.embed_signals(used)
    held_out = encoder.embed_signals(kept) if kept else embedding
    speech = np.concatenate([pcm[spoken(pcm)] for pcm in used])
    spectra = np.concatenate([speech_frames(mel_spectrum(pcm)) for pcm in used])
    return TargetSpeaker(
        embedding=embedding,
        held_out=held_out,
        spectrum=mean_spectrum(spectra),
        pitches=pitches_hz(speech),
        excerpt=max(used, key=len),
    )


def decode_all(recordings: Sequence[bytes], sample_rate: int = SPEAKER_SAMPLE_RATE) -> list[Pcm]:
    """Signals at that rate, decoded in a worker process. Raises InvalidAudio."""
    with ThreadPoolExecutor(1) as thread:  # the caller may have an event loop
        return thread.submit(lambda: asyncio.run(_decode_all(recordings, sample_rate))).result()


async def _decode_all(recordings: Sequence[bytes], sample_rate: int) -> list[Pcm]:
    delete_left_recordings()
    with temporary_directory(FOLDERS) as folder:
        async with AudioDecoder(timeout_s=DECODED_WITHIN_S) as decoder:
            decoded = []
            for index, content in enumerate(recordings):
                path = folder / str(index)
                path.write_bytes(content)
                audio = await decoder.decode(path, sample_rate=sample_rate)
                decoded.append(audio.pcm)
            return decoded


def delete_left_recordings() -> None:
    """Those of killed processes, so that no recording stays unencrypted on disk."""
    delete_leftover_directories(FOLDERS)
