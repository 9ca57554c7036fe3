"""The decoder against the hostile corpus."""

from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

from pipelines.audio.decode.decoder import AudioDecoder
from pipelines.errors import AudioTooLong, FileTooLarge, InvalidAudio
from tests.hostile.corpus import FULL, Hostile, corpus
from tests.stopwatch import stopwatch

MAX_SECONDS = 10.0
REFUSALS = (InvalidAudio, AudioTooLong, FileTooLarge)


@pytest.fixture
async def decoder() -> AsyncIterator[AudioDecoder]:
    async with AudioDecoder(workers=1) as made:
        yield made


async def decoding_fault(decoder: AudioDecoder, hostile: Hostile, folder: Path) -> str | None:
    """Decodes a file; returns what the decoder did wrong, or None."""
    path = folder / "0"
    path.write_bytes(hostile.data)
    refusal = ""
    try:
        with stopwatch() as waited_s:
            audio = await decoder.decode(path)
        valid = np.isfinite(audio.pcm).all() and (np.abs(audio.pcm) <= 1).all()
        if not valid:
            return f"{hostile.name}: samples outside [-1, 1]"
    except REFUSALS as error:
        refusal = str(error) or "no message"
    if list(folder.iterdir()) != [path]:
        return f"{hostile.name}: left a file"
    if waited_s() > MAX_SECONDS:
        return f"{hostile.name}: took more than {MAX_SECONDS} s"
    if hostile.good is True and refusal:
        return f"{hostile.name}: refused ({refusal})"
    if hostile.good is False and not refusal:
        return f"{hostile.name}: accepted"
    return None


@pytest.mark.timeout(7200 if FULL else 300)
async def test_every_hostile_file_is_decoded_or_refused_within_its_limits(
    decoder: AudioDecoder, tmp_path: Path
) -> None:
    await decoder.start()
    process = await decoder._process.start()
    wrong = [await decoding_fault(decoder, hostile, tmp_path) for hostile in corpus()]
    assert [one for one in wrong if one] == []
    assert await decoder._process.start() is process  # nothing killed it
