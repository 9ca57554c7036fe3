"""Voices behind an OpenAI-compatible address: servers of Chatterbox, F5, Fish, XTTS or Kokoro,
another Antiphon, a hosted API. The format is that of OpenAI's speech:
https://platform.openai.com/docs/api-reference/audio."""

import struct
from collections.abc import AsyncGenerator, Generator, Iterator
from typing import Any

from configs.schema.models.tts import UpstreamTTSConfig
from models.audio import AudioChunk, Pcm, find_samples, pcm16_to_float
from models.errors import UnsupportedLanguage
from models.runtimes.upstream import BlockingUpstream
from models.tts.base import SynthesisRequest, TTSCapabilities, TTSEngine, VoiceTable
from models.tts.trimming import streamed_sentence
from models.weights.store import WeightStore

MOST_S = 30.0  # longest audio of an answer, and more per letter
MOST_S_PER_LETTER = 0.5  # slow speech has ten letters a second
MOST_HEADER = 4096  # bytes
SLOWEST, FASTEST = 0.25, 4.0  # range of OpenAI's `speed`
KINDS = (
    "audio/pcm",
    "audio/l16",
    "audio/raw",
    "audio/wav",
    "audio/wave",
    "application/octet-stream",
)


class UpstreamVoices(BlockingUpstream, TTSEngine):
    """Text-to-speech engine that forwards requests to an upstream service."""

    def __init__(self, config: UpstreamTTSConfig, weights: WeightStore) -> None:
        BlockingUpstream.__init__(self, config)
        self._voices = VoiceTable(config.voices, config.engine)
        self._names = {entry.key: entry.voice or entry.key for entry in config.voices}
        self._config: UpstreamTTSConfig = config
        self.capabilities = TTSCapabilities(
            sample_rate=config.sample_rate,
            languages=self._voices.languages,
            streaming=True,
            native_speed=config.speed,
            crosses_languages=config.crosses_languages,
            max_concurrency=config.parallel,
        )

    def synthesize(self, request: SynthesisRequest) -> Generator[AudioChunk, None, None]:
        if not self._config.crosses_languages:
            self._voices.speaking(request.voice, request.language)
        elif request.language not in self._voices.languages:
            raise UnsupportedLanguage(f"the model does not speak {request.language!r}")
        body = self._body(request)
        if any(letter.isalnum() for letter in request.text):
            most_s = MOST_S + MOST_S_PER_LETTER * len(request.text)
            pieces = self._pieces(body, round(2 * most_s * self._config.sample_rate))
            yield from streamed_sentence(pieces, self._config.sample_rate, request)

    def _body(self, request: SynthesisRequest) -> dict[str, Any]:
        """Builds the body of a request. Raises UnknownVoice."""
        voice = self._names[self._voices[request.voice].key]
        given: dict[str, Any] = {"voice": voice, "input": request.text}
        if self._config.speed:
            given["speed"] = min(max(request.speed, SLOWEST), FASTEST)
        form = {"model": self._config.model, "response_format": self._config.response_format}
        return {**form, **given, **self._config.fields}

    def _pieces(self, body: dict[str, Any], most: int) -> Iterator[Pcm]:
        """Yields at most `most` bytes of audio as samples."""
        config = self._config
        answer = self._retried(
            lambda: self._in_time(
                self._samples(body, most), first_s=config.first_audio_s, idle_s=config.idle_s
            )
        )

        async def step() -> bytes | None:
            return await anext(answer, None)

        async def close() -> None:
            await answer.aclose()

        rest = b""
        try:
            while (piece := self._wait(step())) is not None:
                whole = rest + piece
                rest = whole[len(whole) // 2 * 2 :]
                yield pcm16_to_float(whole[: len(whole) // 2 * 2])
        finally:
            self._wait(close())

    async def _samples(self, body: dict[str, Any], most: int) -> AsyncGenerator[bytes, None]:
        """Yields 16-bit samples of a single attempt. Raises EngineError."""
        begun: bytes | None = b""
        left = most
        has_end = False
        async with self._sent("audio/speech", json=body) as answer:
            kind = answer.headers.get("Content-Type", KINDS[0]).partition(";")[0].lower()
            if kind.replace("x-", "") not in KINDS:
                raise self._failed(f"sends {kind[:40]!r}, not audio in PCM")
            async for piece in answer.aiter_raw():
                if begun is not None:
                    begun += piece
                    if (samples := self._without_header(begun, most)) is None:
                        continue
                    begun = None
                    piece, left = samples
                    has_end = left < most
                if len(piece) > left and not has_end:
                    raise self._failed("sends an endless answer")
                if piece := piece[:left]:  # other parts of a WAV may follow its samples
                    yield piece
                left -= len(piece)
        if begun is not None:
            raise self._failed("sends no audio")

    def _without_header(self, begun: bytes, most: int) -> tuple[bytes, int] | None:
        """Strips a WAV header from the first bytes of an answer. Returns the samples so far and the
        number of bytes to expect at most, or None while the header is incomplete. Raises EngineLost
        for WAV in another format."""
        if not begun.startswith(b"RIFF"[: len(begun)]):
            return begun, most
        if (header := find_samples(begun[:MOST_HEADER])) is not None:
            form, at, size = header
            shape = struct.unpack_from("<2xHI6xH", form) if len(form) >= 16 else None
            if shape != (1, self._config.sample_rate, 16):
                raise self._failed(f"sends WAV with (channels, Hz, bits) of {shape}")
            return begun[at:], size if 0 < size < most else most
        if len(begun) >= MOST_HEADER:
            raise self._failed("sends a WAV that cannot be read")
        return None
