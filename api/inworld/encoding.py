"""The audio encodings of Inworld's API: a flush is one file, or messages that stand alone."""

from collections.abc import Mapping
from typing import Literal

from pipelines.audio.encode.encoder import AudioEncoder, wav_header
from pipelines.audio.encode.formats import EncoderFormat, open_encoder

InworldEncoding = Literal["LINEAR16", "PCM", "WAV", "MP3", "OGG_OPUS", "FLAC", "MULAW"]

_FORMATS: Mapping[InworldEncoding, EncoderFormat] = {
    "LINEAR16": "wav_messages",
    "PCM": "pcm",
    "WAV": "wav_stream",
    "MP3": "mp3",
    "OGG_OPUS": "ogg",
    "FLAC": "flac",
    "MULAW": "mulaw",
}
SLOW: frozenset[InworldEncoding] = frozenset({"MP3", "OGG_OPUS", "FLAC"})


def open_inworld_encoder(encoding: InworldEncoding, sample_rate_hz: int) -> AudioEncoder:
    """LINEAR16 messages have a WAV header each, those of WAV only the first after a flush."""
    return open_encoder(_FORMATS[encoding], sample_rate_hz)


def joined(encoding: InworldEncoding, sample_rate_hz: int, parts: list[bytes]) -> bytes:
    """All chunks of a text as one file. `parts` are of PCM where that is LINEAR16 or WAV."""
    data = b"".join(parts)
    if encoding in ("LINEAR16", "WAV"):
        return wav_header(sample_rate_hz, len(data)) + data
    return data
