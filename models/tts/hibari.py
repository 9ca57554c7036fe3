"""Hibari: small English voices distilled from Kokoro, 100 times faster than real time."""

from collections.abc import Generator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from hibari import SAMPLE_RATE, Hibari
from hibari.dsp import synth
from hibari.voices import VOICES
from numpy.typing import NDArray

from configs.schema.models.tts import HibariConfig
from models.audio import AudioChunk, Pcm, Span, symbols_of_words, timed
from models.runtimes.onnx import open_session, run
from models.tts.base import SynthesisRequest, TTSCapabilities, TTSEngine, VoiceTable
from models.tts.english import EnglishPhonemizer
from models.tts.homographs import ContextG2P
from models.tts.kokoro.phonemes import from_ipa
from models.tts.trimming import sounding
from models.weights.store import WeightStore

DURATIONS_LAG_S = 0.1  # same as in Kokoro, from which the voices are distilled
SEED = 0  # seed of the breath noise, so that all replicas synthesise a request identically
DURATIONS = "/Clip_output_0"  # tensor of the graph with the frames of each symbol, float32 [1, n]


class HibariEngine(TTSEngine):
    """The voice inside the installed package; its pronunciation rules need no GPL code."""

    capabilities = TTSCapabilities(
        sample_rate=SAMPLE_RATE,
        languages=("en",),
        word_times=True,
        native_speed=True,
        phonemes=True,
        max_concurrency=2,  # a short sentence runs beside a long one of another tenant
    )

    def __init__(self, config: HibariConfig, weights: WeightStore) -> None:
        """`weights` is unused: the library brings its own."""
        self._voices = VoiceTable(config.voices, config.engine)
        self._models = {
            key: Hibari(
                voice=key,
                threads=config.threads,
                g2p=EnglishPhonemizer(ContextG2P(british=VOICES[key]["british"])),
            )
            for key in self._voices
        }
        for model in self._models.values():
            model.sess = open_session(_with_durations(Path(model.model_path)), config.threads)
        for key in self._voices:  # loads the dictionary, which would delay the first request
            list(self.synthesize(SynthesisRequest("Ready.", key, "en")))

    def phonemes(self, request: SynthesisRequest) -> str:
        g2p = self._models[self._voices[request.voice].key].g2p
        return request.symbols(g2p, partial(from_ipa, language="en", british=g2p.british))

    def synthesize(self, request: SynthesisRequest) -> Generator[AudioChunk, None, None]:
        voice = self._voices.speaking(request.voice, request.language)
        model = self._models[voice.key]
        noise = np.random.default_rng(SEED)
        at = 0  # offset of the sentence in the text
        for sentence in model.split_sentences(request.text):
            at = max(at, request.text.find(sentence, at))
            pieces = [
                "".join(symbol for symbol in piece if symbol in model.vocab)
                for piece in self._pieces(model, request, at, at + len(sentence))
            ]
            words: list[Span] = []
            if request.timings:
                words = symbols_of_words(
                    sentence,
                    " ".join(pieces),
                    lambda word: len("".join(model.phonemize(word)).replace(" ", "")),
                )
            first = 0
            for piece in pieces:
                inside = [
                    span.moved(symbols=-first, letters=at)
                    for span in words
                    if first <= span.first < first + len(piece)
                ]
                pcm, starts_s = _spoken(model, piece, request, noise)
                start, end = sounding(pcm, SAMPLE_RATE)
                starts_s -= start / SAMPLE_RATE + DURATIONS_LAG_S
                pcm = np.clip(pcm[start:end], -1.0, 1.0)
                times = timed(inside, starts_s.tolist())
                yield AudioChunk(pcm, SAMPLE_RATE, tuple(times))
                first += len(piece) + 1
            at += len(sentence)

    def _pieces(self, model: Hibari, request: SynthesisRequest, at: int, end: int) -> list[str]:
        """Phonemizes a sentence into pieces that the model takes."""
        given = tuple((a - at, b - at, ipa) for a, b, ipa in request.phonemes if at <= a < end)
        sentence = replace(request, text=request.text[at:end], phonemes=given)
        return [self.phonemes(sentence)] if given else model.phonemize(sentence.text)


def _spoken(
    model: Hibari, symbols: str, request: SynthesisRequest, noise: np.random.Generator
) -> tuple[Pcm, NDArray[np.float64]]:
    """Returns speech, float32 [n], and the starts and end of symbols (s), float64 [symbols + 1]."""
    ids = model.ids(symbols)
    if len(ids) < 3:  # only the pads at both ends
        return np.zeros(0, np.float32), np.zeros(1)
    speed = np.array([request.speed], np.float32)
    inputs: dict[str, NDArray[Any]] = {"ids": np.array([ids], np.int64), "speed": speed}
    *spectra, durations = run(model.sess, inputs, request.interruption)
    pcm: Pcm = synth(*(value[0] for value in spectra), noise)
    frames = np.cumsum(durations.reshape(-1), dtype=np.float64)
    return pcm, frames / frames[-1] * len(pcm) / SAMPLE_RATE


def _with_durations(path: Path) -> bytes:
    """Loads the graph of `path` with its durations as another output."""
    graph = onnx.load(path)
    graph.graph.output.append(
        onnx.helper.make_tensor_value_info(DURATIONS, onnx.TensorProto.FLOAT, None)
    )
    return bytes(graph.SerializeToString())
