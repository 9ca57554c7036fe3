"""Kokoro-82M, int8, on ONNX Runtime: the Quality voices, in every language they can speak."""

from collections.abc import Generator, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from configs.tts_schema import KokoroConfig
from models.audio import AudioChunk
from models.errors import UnknownVoice, WeightsCorrupt
from models.info import VoiceInfo
from models.onnx_session import open_session
from models.tts.base import SynthesisRequest
from models.tts.espeak_library import espeak_installed
from models.tts.kokoro_alphabet import SYMBOL_IDS
from models.tts.kokoro_phonemes import WITHOUT_ESPEAK, known, phonemizer_for
from models.tts.silence import trim
from models.tts.voices import voice_table
from models.weights.store import WeightStore

MAX_SYMBOLS = 400  # the model takes 510, but hurries and drops words near the end of that
STYLE_SHAPE = (510, 256)  # a row for each number of symbols
PROSODY = slice(128, 256)  # the half of a style row that shapes melody; the other is timbre


class KokoroEngine:
    """One graph and a style pack for each voice."""

    sample_rate = 24_000
    native_speed = True
    crosses_languages = True  # a timbre is not bound to the language that it was learnt in

    def __init__(self, config: KokoroConfig, weights: WeightStore) -> None:
        packs = weights.folder(config.voice_weights) / "voices"
        self._session = open_session(weights.folder(config.weights) / "kokoro.onnx", config.threads)
        offered = [
            voice
            for voice in config.voices
            if voice.language in WITHOUT_ESPEAK or espeak_installed()
        ]
        self._voices = voice_table(offered, config.engine)
        self._styles = {
            voice.key: read_voice_pack(packs / f"{voice.pack or voice.key}.bin")
            for voice in offered
        }
        for piece in self.synthesize(SynthesisRequest("Ready.", offered[0].key, "en")):
            del piece  # the first run allocates memory and loads the English dictionary

    def voices(self) -> Sequence[VoiceInfo]:
        return tuple(self._voices.values())

    def synthesize(self, request: SynthesisRequest) -> Generator[AudioChunk, None, None]:
        """Speaks in the language of the request with any voice: the timbre crosses languages."""
        voice = self._voices[request.voice]
        style = self._styles[request.voice]  # float32 [510, 256]
        phonemize = phonemizer_for(request.language, british=voice.accent == "British")
        for phonemes in split_phonemes(known(phonemize(request.text)), MAX_SYMBOLS):
            pcm = self._session.run(
                None,
                {
                    "tokens": np.array([[0, *(SYMBOL_IDS[s] for s in phonemes), 0]], np.int64),
                    "style": _style_row(style, len(phonemes), request.stability),
                    "speed": np.array([request.speed], np.float32),
                },
            )[0]  # float32 [n]
            yield AudioChunk(np.clip(trim(pcm, self.sample_rate), -1.0, 1.0), self.sample_rate)


def read_voice_pack(path: Path) -> NDArray[np.float32]:
    """The style rows of a pack, float32 [510, 256]. Raises UnknownVoice or WeightsCorrupt."""
    try:
        style = np.fromfile(path, dtype="<f4")
    except FileNotFoundError:
        raise UnknownVoice(f"there is no voice pack {path.stem!r}") from None
    if style.size != STYLE_SHAPE[0] * STYLE_SHAPE[1] or not np.isfinite(style).all():
        raise WeightsCorrupt(f"voice pack {path.stem!r} is not float32 {STYLE_SHAPE}")
    return style.reshape(STYLE_SHAPE)


def split_phonemes(phonemes: str, limit: int) -> Iterator[str]:
    """Pieces of at most `limit` symbols, cut after a clause if there is one, else after a word."""
    rest = phonemes.strip()
    while len(rest) > limit:
        head = rest[: limit + 1]
        cut = max(head.rfind(mark) + 1 for mark in (". ", "! ", "? ", "; ", ": ", ", ", "— "))
        if cut < limit // 4:
            cut = head.rfind(" ")
        if cut <= 0:
            cut = limit
        yield rest[:cut].strip()
        rest = rest[cut:].strip()
    if any(symbol.isalpha() for symbol in rest):
        yield rest


def _style_row(style: NDArray[np.float32], symbols: int, stability: float) -> NDArray[np.float32]:
    """The row for that many symbols, float32 [1, 256].

    Rows differ in melody; `stability` draws them to their mean, or away from it below 1.
    """
    row = style[min(symbols, STYLE_SHAPE[0]) - 1 : min(symbols, STYLE_SHAPE[0])].copy()
    if stability != 1.0:
        mean = style[:, PROSODY].mean(axis=0)
        row[:, PROSODY] = mean + (row[:, PROSODY] - mean) / stability
    return row
