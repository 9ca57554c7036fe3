"""Every output format by name, and the encoder that writes it."""

from collections.abc import Mapping
from functools import partial
from typing import Literal, cast

from models.audio import encode_g711
from pipelines.audio.encode.encoder import AudioEncoder, FileEncoder, FileFormat, SampleEncoder
from pipelines.audio.encode.ogg_opus import OpusMessageEncoder

StreamFormat = Literal["mp3", "wav", "pcm", "ogg", "flac"]
EncoderFormat = (
    FileFormat
    | Literal["pcm", "pcm_float", "mulaw", "alaw", "wav_stream", "wav_messages", "opus_messages"]
)
AudioEncoding = Literal["LINEAR16", "PCM", "MULAW", "ULAW", "OGG_OPUS"]
"""Names of encodings on /ws/tts."""

FALLBACK: tuple[AudioEncoding, int] = ("LINEAR16", 16_000)
_PCM_RATES = (8000, 16_000, 24_000, 48_000)
_OF_SOCKETS: Mapping[str, tuple[EncoderFormat, tuple[int, ...]]] = {
    "LINEAR16": ("pcm", _PCM_RATES),
    "PCM": ("pcm", _PCM_RATES),
    "MULAW": ("mulaw", (8000,)),
    "ULAW": ("mulaw", (8000,)),
    "OGG_OPUS": ("opus_messages", (24_000,)),
}


def open_encoder(
    encoder_format: EncoderFormat, sample_rate: int, bit_rate: int | None = None
) -> AudioEncoder:
    """Open an encoder of a stream.

    A codec that lacks `sample_rate` (Hz) takes the next rate above it; lossy codecs have a
    `bit_rate`. Files begin with the first chunk and end with a flush. `wav_stream` has a header
    after each flush, `wav_messages` on each message; `opus_messages` are Ogg files."""
    match encoder_format:
        case "pcm":
            return SampleEncoder(sample_rate)
        case "pcm_float":
            return SampleEncoder(sample_rate, lambda pcm: pcm.astype("<f4").tobytes())
        case "wav_stream":
            return SampleEncoder(sample_rate, wav_header_on="first")
        case "wav_messages":
            return SampleEncoder(sample_rate, wav_header_on="each")
        case "mulaw" | "alaw":
            return SampleEncoder(sample_rate, partial(encode_g711, law=encoder_format))
        case "opus_messages":
            return OpusMessageEncoder(sample_rate)
        case _:
            return FileEncoder(encoder_format, sample_rate, bit_rate=bit_rate)


def usable_pair(encoding: str, sample_rate: int) -> tuple[AudioEncoding, int]:
    """Return the pair itself if /ws/tts has that encoding at that rate, else LINEAR16 at 16 kHz."""
    if encoding in _OF_SOCKETS and sample_rate in _OF_SOCKETS[encoding][1]:
        return cast(AudioEncoding, encoding), sample_rate
    return FALLBACK


def open_socket_encoder(encoding: AudioEncoding, sample_rate: int) -> AudioEncoder:
    """Open an encoder of /ws/tts. Raises ValueError for a pair that `usable_pair` would change. A
    second of raw samples takes well under 1 ms, and of Opus 3 ms."""
    encoder_format, rates = _OF_SOCKETS[encoding]
    if sample_rate not in rates:
        raise ValueError(f"{encoding} cannot be at {sample_rate} Hz")
    return open_encoder(encoder_format, sample_rate)
