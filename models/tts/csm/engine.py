"""CSM-1B: voice cloning from a recording with its transcript. GPU profile.

The model is Sesame's (https://github.com/SesameAILabs/csm), over the codec Mimi (Défossez et al.,
"Moshi", 2024).

Chosen among the cloning models of the transformers library: it takes a recording with its
transcript and any text, its codec is causal, so that speech can be streamed, and its weights are
Apache-2.0. Of the others there, Dia's codec is not causal, Higgs Audio is several times as large
and has a licence of its own, and VibeVoice and Pocket TTS take no transcript.
"""

import math
from collections.abc import Generator, Iterator
from zlib import crc32

import numpy as np

from configs.schema.models.tts import CsmConfig
from models.audio import AudioChunk, Pcm, spread
from models.errors import UnknownVoice, UnsupportedLanguage
from models.tts.base import SynthesisRequest, TTSCapabilities, TTSEngine, VoiceTable
from models.tts.csm.network import CsmModel, Tensor, joined
from models.tts.csm.voice_prompt import read_prompt
from models.tts.trimming import LEAD_S, TAIL_S
from models.tts.voice_pack import VoiceCache
from models.weights.store import WeightStore

FIRST_FRAMES, NEXT_FRAMES = 3, 6  # the length of chunks, in frames of 80 ms
# Slow speech has ten letters a second; a longer synthesis has run away and is cut off.
SLOWEST_S, LONGEST_PAUSE_S = 0.15, 2.0
SILENT = 0.003  # of full scale: -50 dB


class CsmEngine(TTSEngine):
    """Has no voices of its own: each request has a pack of `models.tts.csm.voice_prompt`."""

    _voices = VoiceTable()

    def __init__(self, config: CsmConfig, weights: WeightStore) -> None:
        self._model = CsmModel(weights.folder(config.weights), config.device, config.dtype)
        self.capabilities = TTSCapabilities(
            sample_rate=self._model.sample_rate,
            languages=config.languages,
            streaming=True,
            takes_voice_packs=True,
            device=self._model.device,
        )
        self._temperature = config.temperature
        self._top_k = config.top_k
        self._prompts = _prompts(self._model)

    def __del__(self) -> None:
        # A swapped model is freed with the last request that refers to it.
        if hasattr(self, "_model"):  # false if loading failed
            self.close()

    def close(self) -> None:
        """Frees the memory, the GPU's too; running requests raise EngineLost."""
        self._prompts = _prompts(self._model)
        self._model.close()

    def forget_voice(self, digest: str) -> None:
        self._prompts.forget(digest)

    def synthesize(self, request: SynthesisRequest) -> Generator[AudioChunk, None, None]:
        """Deterministic for a request. Yields an empty chunk after each frame of 80 ms."""
        if request.pack is None:
            raise UnknownVoice(f"no voice {request.voice!r}; this model has only voices of packs")
        languages = self.capabilities.languages
        if request.language not in languages:
            raise UnsupportedLanguage(
                f"the model speaks {', '.join(languages)}, not {request.language!r}"
            )
        prompt = self._prompts.take(request.pack)
        if not any(letter.isalnum() for letter in request.text):
            return
        seconds = LONGEST_PAUSE_S + SLOWEST_S * len(request.text)
        frames = self._model.speak(
            prompt,
            request.text,
            most_frames=math.ceil(seconds * self._model.frame_rate),
            temperature=self._temperature / math.sqrt(request.stability),  # 0.73 to 1.16
            top_k=self._top_k,
            seed=crc32(request.text.encode(), int(request.pack.digest[:8], 16)),
        )
        pieces = _without_ends(self._audio_pieces(frames), self.capabilities.sample_rate)
        if not request.timings:
            yield from (AudioChunk(pcm, self.capabilities.sample_rate) for pcm in pieces)
            return
        made: list[Pcm] = []
        for pcm in pieces:  # word times are known only after the last piece
            made.append(pcm)
            yield AudioChunk(np.zeros(0, np.float32), self.capabilities.sample_rate)
        whole = joined(made)
        words = spread(request.text, len(whole) / self.capabilities.sample_rate)
        yield AudioChunk(whole, self.capabilities.sample_rate, tuple(words))

    def _audio_pieces(self, frames: Iterator[Tensor]) -> Iterator[Pcm]:
        """Decoded audio in chunks; an empty array for each frame in between."""
        made: list[Tensor] = []
        heard = 0
        for frame in frames:
            made.append(frame)
            if len(made) - heard >= (NEXT_FRAMES if heard else FIRST_FRAMES):
                yield self._model.sound(made, heard)
                heard = len(made)
            else:
                yield np.zeros(0, np.float32)
        if len(made) > heard:
            yield self._model.sound(made, heard)


def _prompts(model: CsmModel) -> VoiceCache[Tensor]:
    """A cache of prepared prompts; without a reference to the engine, which would be a cycle."""
    return VoiceCache(lambda data: model.prepare(read_prompt(data)))


def _without_ends(pieces: Iterator[Pcm], sample_rate: int) -> Iterator[Pcm]:
    """Trims silence at both ends; silence within is held until more speech follows it."""
    lead, tail = round(LEAD_S * sample_rate), round(TAIL_S * sample_rate)
    held = np.zeros(0, np.float32)  # silence that may end the speech, or be a pause in it
    begun = False
    for piece in pieces:
        loud = np.flatnonzero(np.abs(piece) > SILENT)
        if not len(loud):
            held = np.concatenate([held, piece])
            yield np.zeros(0, np.float32)
            continue
        first, end = len(held) + int(loud[0]), len(held) + int(loud[-1]) + 1
        whole = np.clip(np.concatenate([held, piece]), -1.0, 1.0)
        yield whole[0 if begun else max(0, first - lead) : end]
        held, begun = whole[end:], True
    if begun:
        yield held[:tail]
