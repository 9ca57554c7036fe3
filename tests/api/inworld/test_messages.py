"""Audio encodings and voices of Inworld's API."""

import io

import av
import numpy as np
import pytest

from api.callers import Caller
from api.inworld.messages import FORMATS, InworldEncoding, Voicing, open_stream
from api.services import Services
from configs.load import load_yaml
from configs.schema.models.tts import KokoroConfig
from models.audio import AudioChunk, Pcm
from pipelines.accounts.authentication import ALL_SCOPES, Principal
from pipelines.audio.encode.encoder import AudioEncoder
from pipelines.audio.encode.formats import open_encoder
from pipelines.billing.operation import Operation
from tests.api.openai.test_speech import described, with_speakers

TIME_S = np.arange(24_000) / 24_000
TONE: Pcm = (0.3 * np.sin(2 * np.pi * 440 * TIME_S)).astype(np.float32)


def encoded(encoder: AudioEncoder) -> list[bytes]:
    """One second of the tone, encoded in tenths and flushed."""
    parts = [
        part
        for start in range(0, 24_000, 2400)
        for part in encoder.encode(AudioChunk(TONE[start : start + 2400], 24_000))
    ]
    return [*parts, *encoder.flush()]


def seconds(data: bytes) -> float:
    with av.open(io.BytesIO(data), "r") as container:
        frames = list(container.decode(audio=0))
        return sum((frame.samples / frame.sample_rate for frame in frames), 0.0)


@pytest.mark.parametrize("encoding", ["OGG_OPUS", "FLAC", "WAV"])  # MP3 goes on
def test_each_flush_is_encoded_as_a_complete_file(encoding: InworldEncoding) -> None:
    encoder = open_encoder(FORMATS[encoding], 16_000)
    for _ in range(2):
        parts = encoded(encoder)
        assert len(parts) > 2
        assert seconds(b"".join(parts)) == pytest.approx(1.0, abs=0.06)
    assert encoder.flush() == []


@pytest.mark.parametrize("rate", [8000, 16_000, 22_050, 24_000, 44_100, 48_000])
def test_pcm_and_mulaw_have_the_requested_sample_rate(rate: int) -> None:
    assert len(b"".join(encoded(open_encoder(FORMATS["PCM"], rate)))) == pytest.approx(
        2 * rate, abs=4
    )
    assert len(b"".join(encoded(open_encoder(FORMATS["MULAW"], rate)))) == pytest.approx(
        rate, abs=2
    )


@pytest.mark.parametrize(("name", "gender"), [("Alex", "male"), ("Sarah", "female")])
async def test_inworlds_names_win_over_voices_here_of_another_language(
    services: Services, name: str, gender: str
) -> None:
    kokoro = described(load_yaml(KokoroConfig, "tts/kokoro"))
    speech = with_speakers(services, quality=kokoro).speech
    caller = Caller(Principal(1, 1, "w", "free", ALL_SCOPES, None), Operation(), speech)
    voice = (await open_stream(Voicing(voice_id=name), caller)).voice
    assert (voice.language, voice.info.gender, voice.is_stand_in) == ("en", gender, True)
