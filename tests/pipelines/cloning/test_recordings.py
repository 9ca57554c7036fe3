"""What a fit hears of its recordings."""

import pytest

from models.speaker.base import SPEAKER_SAMPLE_RATE
from pipelines.cloning import recordings
from pipelines.decoding import JOB_TIMEOUT_S
from pipelines.errors import InvalidAudio
from tests.pipelines.recordings import recording, wav


def test_recordings_have_the_time_that_a_busy_service_leaves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An upload has less: somebody waits for it, and it competes on equal terms."""
    sent = wav(recording(1, 10))
    (pcm,) = recordings.decode_all([sent])
    assert len(pcm) == 10 * SPEAKER_SAMPLE_RATE
    assert recordings.DECODED_WITHIN_S > 10 * JOB_TIMEOUT_S
    monkeypatch.setattr(recordings, "DECODED_WITHIN_S", 0.001)
    with pytest.raises(InvalidAudio):
        recordings.decode_all([sent])
