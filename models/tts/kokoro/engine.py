"""Kokoro-82M: the voices of the Quality tier, in all languages that Kokoro speaks.

https://huggingface.co/hexgrad/Kokoro-82M is StyleTTS 2 (Li et al., 2023) with a decoder of iSTFTNet
(Kaneko et al., 2022). ONNX Runtime computes the plan, from symbols to frames with durations;
OpenVINO runs the vocoder. The vocoder runs on the whole sentence, because its norms average over
all of it: windows differ audibly (2 to 6 dB between log-mel spectra, where the published graph's
own rounding makes 1 dB). So a long piece is computed in short steps, with an empty chunk after
each.
"""

import bisect
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from configs.schema.models.tts import KokoroConfig
from models.audio import AudioChunk, Pcm, Span, symbols_of_words, timed
from models.errors import InvalidEngineRequest, UnknownVoice, WeightsCorrupt
from models.runtimes.onnx import open_session, run
from models.runtimes.openvino import OpenVinoModel, Values, tensor
from models.tts.base import SynthesisRequest, TTSCapabilities, TTSEngine, VoiceTable
from models.tts.espeak_ng import espeak_installed
from models.tts.kokoro.phonemes import SYMBOL_IDS, WITHOUT_ESPEAK, from_ipa, known, phonemizer_for
from models.tts.trimming import sounding
from models.tts.voice_pack import STYLE_SHAPE, VoiceCache, VoicePack, read_pack
from models.weights.store import WeightStore

MAX_SYMBOLS = 120  # about 7 s; the model takes 510, but memory grows with the length of a piece
SAMPLE_RATE = 24_000  # Hz
WARM_UP = "Ready."
TIMBRE, PROSODY = slice(0, 128), slice(128, 256)  # the halves of a style row
FRAME_S = 0.025  # unit of the durations
DURATIONS_LAG_S = 0.1  # measured in the audio: a symbol begins that much before its frames
KEPT_SILENCE = 8  # frames
MOST_FRAMES = 12  # frames per symbol, on average
MORE_FRAMES = 80  # frames of the pauses at both ends
# Each new input length of the vocoder costs 0.1 s once, and 14 MB of memory permanently.
STEP = 16
LENGTHS: tuple[int, ...] = (*range(24, 96, 8), *range(96, 289, STEP))  # frames
STEPS_A_FRAME = 120  # steps of the excitation source per frame


class KokoroEngine(TTSEngine):
    """Kokoro-82M: one graph, and a style pack for each voice."""

    def __init__(self, config: KokoroConfig, weights: WeightStore) -> None:
        packs = weights.folder(config.voice_weights) / "voices"
        graphs = weights.converted(config.weights)
        self._plan = open_session(graphs.pop("plan.onnx"), config.threads)
        with ThreadPoolExecutor(config.threads) as pool:  # each part loads on one thread
            open_part = partial(OpenVinoModel, threads=config.threads)
            self._parts = list(pool.map(open_part, graphs.values()))
        offered = [
            voice
            for voice in config.voices
            if voice.language in WITHOUT_ESPEAK or espeak_installed()
        ]
        self._voices = VoiceTable(offered, config.engine)
        self._styles = {
            voice.key: read_voice_pack(packs / f"{voice.pack or voice.key}.bin")
            for voice in offered
        }
        self.capabilities = TTSCapabilities(
            sample_rate=SAMPLE_RATE,
            languages=self._voices.languages,
            word_times=True,
            native_speed=True,
            # It puts a syllable before a short line that is slow: of 50 lines of one to three words
            # at 0.7, a recogniser heard 13 right, and 40 of the same lines spoken at 1.0 and
            # stretched.
            slowest_speed=1.0,
            takes_voice_packs=True,
            phonemes=True,
            crosses_languages=True,  # a timbre works in all languages, not only its training one
            # Two have 1.2 times the throughput of one, which leaves cores idle between operators.
            max_concurrency=2,
        )
        self._packs = VoiceCache(read_pack)
        # Loads the English dictionary, and lets the runtimes reorder the weights.
        list(self.synthesize(SynthesisRequest(WARM_UP, offered[0].key, "en")))

    def synthesize(self, request: SynthesisRequest) -> Generator[AudioChunk, None, None]:
        """Speaks the language of the request with any voice (cross-lingual)."""
        pack = self._pack_of(request)
        phonemize = phonemizer_for(request.language, british=pack.british)
        phonemes = self.phonemes(request)
        words: Sequence[Span] = ()
        if request.timings:
            words = symbols_of_words(
                request.text, phonemes, lambda word: len(known(phonemize(word)).replace(" ", ""))
            )
        at = 0
        for piece in split_phonemes(phonemes, MAX_SYMBOLS):
            at = phonemes.index(piece, at)
            inside = [span.moved(-at) for span in words if at <= span.first < at + len(piece)]
            yield from self._speak(piece, pack, request, inside)
            at += len(piece)

    def phonemes(self, request: SynthesisRequest) -> str:
        british = self._pack_of(request).british
        read = phonemizer_for(request.language, british=british)
        convert = partial(from_ipa, language=request.language, british=british)
        return known(request.symbols(read, convert))

    def forget_voice(self, digest: str) -> None:
        self._packs.forget(digest)

    def _pack_of(self, request: SynthesisRequest) -> VoicePack:
        """Returns the voice pack of the request, or that of its voice."""
        if request.pack is not None:
            return self._packs.take(request.pack)
        british = self._voices[request.voice].accent == "British"
        return VoicePack(self._styles[request.voice], british=british)

    def warm_up(self) -> Generator[AudioChunk, None, None]:
        """Synthesises silence of each usual length, so that the compiler caches its kernels. Yields
        empty chunks for progress, and one with audio after each length."""
        for frames in LENGTHS:
            yield from self._vocode(
                {
                    "features": tensor(np.zeros((1, 514, 1, frames), np.float32)),
                    "source": tensor(np.zeros((1, 22, 1, frames * STEPS_A_FRAME + 1), np.float32)),
                    "share": tensor(np.zeros(1, np.float32)),
                    "style": tensor(np.zeros((1, TIMBRE.stop), np.float32)),
                }
            )
            yield AudioChunk(np.zeros(1, np.float32), SAMPLE_RATE)

    def release_memory(self) -> None:
        for part in self._parts:
            part.release_memory()

    def _speak(
        self, phonemes: str, pack: VoicePack, request: SynthesisRequest, words: Sequence[Span]
    ) -> Generator[AudioChunk, None, None]:
        """Synthesises at most MAX_SYMBOLS; `words` has indices into `phonemes`."""
        empty = AudioChunk(np.zeros(0, np.float32), SAMPLE_RATE)
        row = _style_row(pack.style, len(phonemes), request.stability)
        durations, features, source = run(  # results are in the order of PLAN_OUTPUTS
            self._plan,
            {
                "tokens": np.array([[0, *(SYMBOL_IDS[s] for s in phonemes), 0]], np.int64),
                "style": row,
                "speed": np.array([request.speed], np.float32),
            },
            request.interruption,
        )
        if durations.sum() * request.speed > MOST_FRAMES * durations.size + MORE_FRAMES:
            raise InvalidEngineRequest(
                "the voice pack gives no speech: it does not describe a speaker"
            )
        yield empty
        values, lead_frames = sounding_part(durations, features, source)
        values["style"] = tensor(row[:, TIMBRE])
        pcm = yield from self._vocode(values)
        if pack.filter is not None:
            from scipy.signal import oaconvolve  # takes 45 MB, for custom voices only

            pcm = oaconvolve(pcm, pack.filter, mode="same").astype(np.float32)
        start, end = sounding(pcm, SAMPLE_RATE)
        starts_s = np.cumsum(durations.reshape(-1)) * FRAME_S
        starts_s -= lead_frames * FRAME_S + start / SAMPLE_RATE + DURATIONS_LAG_S
        times = timed(words, starts_s.tolist())
        yield AudioChunk(np.clip(pcm[start:end], -1.0, 1.0), SAMPLE_RATE, tuple(times))

    def _vocode(self, values: Values) -> Generator[AudioChunk, None, Pcm]:
        """Computes audio, float32 [n], from the values of `sounding_part` and a style."""
        empty = AudioChunk(np.zeros(0, np.float32), SAMPLE_RATE)
        for index, part in enumerate(self._parts):
            run = part.run(values)
            while True:
                try:
                    next(run)
                except StopIteration as done:
                    values |= done.value
                    break
                yield empty
            needed = {name for later in self._parts[index + 1 :] for name in later.input_names}
            values = {name: values[name] for name in values if name in needed | {"audio"}}
            if "audio" not in values:
                yield empty
        return np.asarray(values["audio"].data).reshape(-1)


def sounding_part(
    durations: NDArray[np.int64], features: NDArray[np.float32], source: NDArray[np.float32]
) -> tuple[Values, int]:
    """Cuts the silence before the speech; returns the vocoder's input and the frames cut off. The
    first symbol is a pad of a third of a second. The norms of the vocoder still include the frames
    that are cut off, so that the loudness of a short word does not change."""
    frames = features.shape[2]
    lead = max(0, int(durations.flat[0]) - KEPT_SILENCE)
    spare = _usual_length(frames - lead) - (frames - lead)
    lead, spare = max(0, lead - spare), max(0, spare - lead)  # spare frames shorten the cut first
    share = lead / (frames + spare)  # the spare frames repeat the last one, which is silent
    return {
        "features": tensor(_lengthened(features[:, :, lead:], spare)),
        "source": tensor(_lengthened(source[:, :, lead * STEPS_A_FRAME :], spare * STEPS_A_FRAME)),
        "share": tensor(np.array([share], np.float32)),
    }, lead


def _usual_length(frames: int) -> int:
    """Rounds up to one of LENGTHS, or to a multiple of STEP beyond them."""
    at = bisect.bisect_left(LENGTHS, frames)
    return LENGTHS[at] if at < len(LENGTHS) else frames + -frames % STEP


def _lengthened(values: NDArray[np.float32], steps: int) -> NDArray[np.float32]:
    """Pads [1, channels, n] to [1, channels, 1, n + steps] by repeating the last step."""
    return np.pad(values, ((0, 0), (0, 0), (0, steps)), "edge")[:, :, None]


def read_voice_pack(path: Path) -> NDArray[np.float32]:
    """Reads the style rows of a pack, float32 [510, 256]. Raises UnknownVoice or WeightsCorrupt.
    Memory-mapped: the rows of all voices are 40 MB, and a request reads a single row."""
    try:
        style = np.fromfile(path, dtype="<f4")
    except FileNotFoundError:
        raise UnknownVoice(f"there is no voice pack {path.stem!r}") from None
    if style.size != STYLE_SHAPE[0] * STYLE_SHAPE[1] or not np.isfinite(style).all():
        raise WeightsCorrupt(f"voice pack {path.stem!r} is not float32 {STYLE_SHAPE}")
    return np.memmap(path, dtype="<f4", mode="r", shape=STYLE_SHAPE)


def split_phonemes(phonemes: str, limit: int) -> Iterator[str]:
    """Splits into pieces of at most `limit` symbols, after a clause if possible, else a word."""
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
    """Returns the style row for that many symbols, float32 [1, 256]. Rows differ in intonation;
    `stability` moves a row towards their mean, or away from it below 1."""
    row = style[min(symbols, STYLE_SHAPE[0]) - 1 : min(symbols, STYLE_SHAPE[0])].copy()
    if stability != 1.0:
        mean = style[:, PROSODY].mean(axis=0)
        row[:, PROSODY] = mean + (row[:, PROSODY] - mean) / stability
    return row
