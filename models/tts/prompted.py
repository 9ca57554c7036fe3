"""Base of engines that continue a recording in its voice, frame by frame."""

from abc import abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any, Protocol
from zlib import crc32

import numpy as np

from configs.schema.models.tts import VoiceConfig
from models.audio import AudioChunk, Pcm
from models.base import PackKind
from models.errors import UnknownVoice, UnsupportedLanguage
from models.tts.base import SynthesisRequest, TTSCapabilities, TTSEngine, VoiceTable
from models.tts.trimming import streamed_sentence
from models.tts.voice_pack import VoiceCache
from models.tts.voice_prompt import READERS

FIRST_FRAMES = 3  # frames of 80 ms in the first chunk
NEXT_FRAMES = 6  # frames in a later chunk


class PromptedModel(Protocol):
    """Networks of a prompted engine. Calls block; thread-safe."""

    sample_rate: int
    device: str

    def prepare(self, prompt: Any, /) -> Any:
        """Encodes a voice for the networks. Raises EngineLost after `close`."""

    def close(self) -> None:
        """Frees the memory, the GPU's too; later calls raise EngineLost."""


class PromptedEngine(TTSEngine):
    """Engine whose requests have a pack of `models.tts.voice_prompt`, or a voice of the model."""

    def __init__(
        self,
        model: PromptedModel,
        languages: tuple[str, ...],
        pack: PackKind,
        voices: Iterable[VoiceConfig] = (),
        engine: str = "",
        max_concurrency: int = 1,
    ) -> None:
        self._prompted = model
        self._voices = VoiceTable(voices, engine)
        self.capabilities = TTSCapabilities(
            sample_rate=model.sample_rate,
            languages=languages,
            streaming=True,
            takes_voice_packs=True,
            pack=pack,
            max_concurrency=max_concurrency,
            device=model.device,
        )
        self._prompts = _prompts(model, pack)

    def __del__(self) -> None:
        # A swapped model is freed with the last request that refers to it.
        if hasattr(self, "_prompts"):  # false if loading failed
            self.close()

    def close(self) -> None:
        self._prompts = _prompts(self._prompted, self.capabilities.pack)
        self._prompted.close()

    def forget_voice(self, digest: str) -> None:
        self._prompts.forget(digest)

    def synthesize(self, request: SynthesisRequest) -> Generator[AudioChunk, None, None]:
        """Synthesises deterministically. Yields an empty chunk after each frame of 80 ms."""
        voice = self._own_voice(request) if request.pack is None else None
        languages = self.capabilities.languages
        if request.language not in languages:
            raise UnsupportedLanguage(
                f"the model speaks {', '.join(languages)}, not {request.language!r}"
            )
        seed = crc32(request.voice.encode())
        if request.pack is not None:
            voice, seed = self._prompts.take(request.pack), int(request.pack.digest[:8], 16)
        if not any(letter.isalnum() for letter in request.text):
            return
        pieces = self._pieces(voice, request, crc32(request.text.encode(), seed))
        yield from streamed_sentence(pieces, self.capabilities.sample_rate, request)

    def _own_voice(self, request: SynthesisRequest) -> Any:
        """Returns the prepared voice of the model that a request names. Raises UnknownVoice."""
        raise UnknownVoice(f"no voice {request.voice!r}; this model has no voices of its own")

    @abstractmethod
    def _pieces(self, voice: Any, request: SynthesisRequest, seed: int) -> Iterator[Pcm]:
        """Yields received audio in chunks, and an empty array for each frame in between."""


def _prompts(model: PromptedModel, pack: PackKind) -> VoiceCache[Any]:
    """Makes a cache of prepared prompts, without a reference to the engine: no cycle."""
    return VoiceCache(lambda data: model.prepare(READERS[pack](data)))


def in_chunks(
    frames: Iterator[Any], decode: Callable[[list[Any], int], Pcm]
) -> Generator[Pcm, None, None]:
    """Decodes frames in chunks; `decode` gets all frames and the index of the first new one."""
    received: list[Any] = []
    first = 0
    for frame in frames:
        received.append(frame)
        if len(received) - first >= (NEXT_FRAMES if first else FIRST_FRAMES):
            yield decode(received, first)
            first = len(received)
        else:
            yield np.zeros(0, np.float32)
    if len(received) > first:
        yield decode(received, first)
