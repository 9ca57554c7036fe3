"""Decoding of the recordings of a voice fit."""

import tempfile
from pathlib import Path

import pytest

from models.speaker.base import SPEAKER_SAMPLE_RATE
from pipelines.audio.decode.decoder import JOB_TIMEOUT_S
from pipelines.errors import InvalidAudio
from pipelines.voices.fitting import features as recordings
from tests.pipelines.voices.recordings import recording, wav


def test_decoding_for_a_fit_has_a_long_timeout_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """An upload has a shorter timeout: a client waits for it."""
    sent = wav(recording(1, 10))
    (pcm,) = recordings.decode_all([sent])
    assert len(pcm) == 10 * SPEAKER_SAMPLE_RATE
    assert recordings.DECODED_WITHIN_S > 10 * JOB_TIMEOUT_S
    monkeypatch.setattr(recordings, "DECODED_WITHIN_S", 0.001)
    with pytest.raises(InvalidAudio):
        recordings.decode_all([sent])


def test_decoding_deletes_temporary_folders_of_killed_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "antiphon-recordings-left").mkdir()
    recordings.decode_all([wav(recording(1, 10))])
    assert list(tmp_path.iterdir()) == []
