"""Voice packs of a recording, with and without its transcript."""

import io
from typing import Any

import numpy as np
import pytest

from models.errors import WeightsCorrupt
from models.tts.voice_pack import MOST_BYTES, STYLE_SHAPE, VoicePack, read_pack, write_pack
from models.tts.voice_prompt import (
    MAX_PROMPT_S,
    MAX_TRANSCRIPT,
    PROMPT_SAMPLE_RATE,
    READERS,
    VoicePrompt,
    read_prompt,
    write_prompt,
)

NOISE = np.random.default_rng(1).uniform(-1, 1, 3 * PROMPT_SAMPLE_RATE).astype(np.float32)
PROMPT = VoicePrompt(NOISE, "Grüße, and hello.", "en")


def written(**parts: object) -> bytes:
    whole = {"prompt": np.zeros(48_000, np.int16), "transcript": "Hello.", "language": "en"}
    arrays: dict[str, Any] = {name: np.array(part) for name, part in (whole | parts).items()}
    target = io.BytesIO()
    np.savez(target, **arrays)
    return target.getvalue()


def test_a_written_voice_prompt_is_read_back_unchanged() -> None:
    read = read_prompt(write_prompt(PROMPT))
    assert np.allclose(read.pcm, NOISE, atol=1e-4) and read.pcm.dtype == np.float32
    assert (read.transcript, read.language) == (PROMPT.transcript, PROMPT.language)
    assert write_prompt(PROMPT) == write_prompt(PROMPT)


def test_the_longest_voice_prompt_is_below_the_size_limit() -> None:
    pcm = np.zeros(int(MAX_PROMPT_S * PROMPT_SAMPLE_RATE), np.float32)
    data = write_prompt(VoicePrompt(pcm, "w" * MAX_TRANSCRIPT, "en"))
    assert len(data) < MOST_BYTES
    read_prompt(data)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "cannot be read"),
        (b"PK\x03\x04 no archive", "cannot be read"),
        (b"x" * 2_000_000, "too large"),
        (write_prompt(PROMPT)[:-40], "cannot be read"),
        (write_pack(VoicePack(np.zeros(STYLE_SHAPE, np.float32))), "another kind of engine"),
        (written(prompt=np.zeros((2, 24_000), np.int16)), "not mono"),
        (written(prompt=np.zeros(48_000, np.float32)), "not mono"),
        (written(prompt=np.zeros(1_000, np.int16)), "s long"),
        (written(prompt=np.zeros(500_000, np.int16)), "s long"),
        (written(transcript=7), "is not text"),
        (written(transcript=["a", "b"]), "is not text"),
        (written(transcript="w" * 1001), "characters"),
        (written(transcript=np.array({"a": 1}, object)), "cannot be read"),
    ],
)
def test_an_invalid_voice_prompt_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(WeightsCorrupt, match=why):
        read_prompt(data)


def test_only_engines_that_need_transcripts_demand_them() -> None:
    for silent in ("", " "):
        data = written(transcript=silent)
        assert read_prompt(data).transcript == ""
        with pytest.raises(WeightsCorrupt, match="no transcript of its recording"):
            READERS["transcribed recording"](data)


def test_reading_a_voice_prompt_as_a_style_pack_is_refused() -> None:
    with pytest.raises(WeightsCorrupt, match="another kind of engine"):
        read_pack(write_prompt(PROMPT))
