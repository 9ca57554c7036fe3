"""Recordings of people, the library faster-whisper, and word errors."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jiwer
import numpy as np
from faster_whisper import WhisperModel
from faster_whisper.audio import decode_audio

from benchmarks.harness.speech import Sentence, plain_words, store, trimmed
from models.audio import Pcm
from models.stt.base import STT_SAMPLE_RATE

SUFFIXES = (".wav", ".flac", ".mp3", ".ogg", ".m4a")


def audio_files(folder: Path) -> list[Path]:
    """The recordings of a folder and of those in it, in the order of their paths."""
    return sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES)


def read_pcm(path: Path) -> Pcm:
    """A recording, float32 [n] at STT_SAMPLE_RATE."""
    return np.asarray(decode_audio(str(path), sampling_rate=STT_SAMPLE_RATE), np.float32)


def speaker_folders(folder: Path, only: Sequence[str] | None = None) -> list[Path]:
    """The folders of recordings of one speaker each, or those with the names of `only`."""
    folders = sorted(path for path in folder.iterdir() if path.is_dir())
    return [path for path in folders if not only or path.name in only]


def recordings_by_speaker(folder: Path, only: Sequence[str] | None) -> dict[str, list[Pcm]]:
    """Recordings without the silence at their ends, by the names of the speakers' folders."""
    return {
        speaker.name: [trimmed(read_pcm(path)) for path in audio_files(speaker)]
        for speaker in speaker_folders(folder, only)
    }


def word_error_rate(
    texts: Sequence[str], transcripts: Sequence[str], language: str = "en"
) -> float:
    """The share of words of the texts that the transcripts have wrong."""
    rate: float = jiwer.wer(
        [plain_words(text, language) for text in texts],
        [plain_words(transcript, language) for transcript in transcripts],
    )
    return rate


def faster_whisper(**options: Any) -> WhisperModel:
    """The library's recogniser with the weights of whisper-base."""
    folder = str(store().folder("whisper-base"))
    return WhisperModel(
        folder, **{"compute_type": "int8", "cpu_threads": 2, "local_files_only": True, **options}
    )


def transcribe_plainly(model: WhisperModel, pcm: Pcm, language: str = "en", **options: Any) -> str:
    """The transcript of the library, by default with a beam of 5."""
    segments, _ = model.transcribe(
        pcm, language=language, condition_on_previous_text=False, **{"beam_size": 5, **options}
    )
    return " ".join(segment.text.strip() for segment in segments)


def recorded_sentences(folder: Path, half: str, *, longest_s: float = 12.0) -> list[Sentence]:
    """The short recordings of the speakers of a half, with the texts of faster-whisper."""
    speakers = speaker_folders(folder)
    middle = (len(speakers) + 1) // 2
    model = faster_whisper()
    sentences = []
    for speaker in speakers[:middle] if half == "tuned" else speakers[middle:]:
        for path in audio_files(speaker):
            pcm = trimmed(read_pcm(path))
            if len(pcm) < longest_s * STT_SAMPLE_RATE:
                sentences.append(Sentence(speaker.name, pcm, transcribe_plainly(model, pcm)))
    return sentences
