"""Every output format by name, and the encoder that writes it."""

from collections.abc import Mapping
from typing import Literal, cast

from pipelines.audio.encode.encoder import AudioEncoder, MulawEncoder, PcmEncoder
from pipelines.audio.encode.files import FileEncoder, FileFormat
from pipelines.audio.encode.ogg_opus import OpusMessageEncoder

StreamFormat = Literal["mp3", "wav", "pcm", "ogg", "flac"]
EncoderFormat = FileFormat | Literal["pcm", "mulaw", "wav_stream", "wav_messages", "opus_messages"]
AudioEncoding = Literal["LINEAR16", "PCM", "MULAW", "ULAW", "OGG_OPUS"]
"""The names of /ws/tts."""

FALLBACK: tuple[AudioEncoding, int] = ("LINEAR16", 16_000)
_SOCKET_RATES: Mapping[str, tuple[int, ...]] = {
    "LINEAR16": (8000, 16_000, 24_000, 48_000),
    "PCM": (8000, 16_000, 24_000, 48_000),
    "MULAW": (8000,),
    "ULAW": (8000,),
    "OGG_OPUS": (24_000,),
}
_SOCKET_FORMATS: Mapping[AudioEncoding, EncoderFormat] = {
    "LINEAR16": "pcm",
    "PCM": "pcm",
    "MULAW": "mulaw",
    "ULAW": "mulaw",
    "OGG_OPUS": "opus_messages",
}


def open_encoder(encoder_format: EncoderFormat, sample_rate: int) -> AudioEncoder:
    """An encoder of a stream. A codec that lacks `sample_rate`, in Hz, takes the next above it.

    Files begin with the first chunk and end with a flush. `wav_stream` has a header after each
    flush, `wav_messages` one on each message; `opus_messages` are Ogg files that decode alone.
    """
    match encoder_format:
        case "pcm":
            return PcmEncoder(sample_rate)
        case "wav_stream":
            return PcmEncoder(sample_rate, wav_header_on="first")
        case "wav_messages":
            return PcmEncoder(sample_rate, wav_header_on="each")
        case "mulaw":
            return MulawEncoder(sample_rate)
        case "opus_messages":
            return OpusMessageEncoder(sample_rate)
        case _:
            return FileEncoder(encoder_format, sample_rate)


def usable_pair(encoding: str, sample_rate: int) -> tuple[AudioEncoding, int]:
    """The pair itself when /ws/tts has that encoding at that rate, else LINEAR16 at 16 kHz."""
    if sample_rate in _SOCKET_RATES.get(encoding, ()):
        return cast(AudioEncoding, encoding), sample_rate
    return FALLBACK


def open_socket_encoder(encoding: AudioEncoding, sample_rate: int) -> AudioEncoder:
    """An encoder of /ws/tts. Raises ValueError for a pair that `usable_pair` would change.

    Takes well under 1 ms a second of raw samples, 3 ms of Opus.
    """
    if usable_pair(encoding, sample_rate) != (encoding, sample_rate):
        raise ValueError(f"{encoding} cannot be at {sample_rate} Hz")
    return open_encoder(_SOCKET_FORMATS[encoding], sample_rate)
