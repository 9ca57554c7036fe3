"""espeak-ng through ctypes: text to phonemes, and its own voices, in one process-wide instance.

The voices are formant synthesis, for languages that other engines here lack or pronounce badly.
espeak-ng is GPL-3.0 and optional: only the extra `espeak` installs it, and nothing imports it
before it is used.
"""

import ctypes
import re
from collections.abc import Generator
from functools import lru_cache, partial
from importlib.util import find_spec
from threading import Lock

import numpy as np
from pydantic import TypeAdapter

from configs.load import load_yaml
from configs.schema.models.tts import EspeakConfig
from models.audio import AudioChunk, Pcm
from models.errors import EngineError, UnsupportedFeature, UnsupportedLanguage
from models.registry import once
from models.tts.arabic import with_vowels
from models.tts.base import SynthesisRequest, TTSCapabilities, TTSEngine, VoiceTable
from models.tts.english import with_letters
from models.tts.trimming import whole_sentence
from models.weights.store import WeightStore

SYNCHRONOUS = 2  # audio goes to the callback before the call returns
DONT_EXIT = 0x8000  # a missing data file raises an error instead of ending the process
UTF8 = 1
MNEMONICS = 0x100  # text between [[ and ]] is spoken as phonemes
IPA = 0x02
TIE = 0x80 | ord("͡") << 8  # joins the letters of one phoneme
RATE, PITCH_RANGE = 1, 4
NORMAL_WORDS_A_MINUTE = 175
NORMAL_RANGE = 50
MAX_DATA_PATH_BYTES = 150  # espeak-ng keeps its path in a small buffer
SynthCallback = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p
)

_OTHER_PUNCTUATION = str.maketrans(
    {"।": ". ", "॥": ". ", "۔": ".", "،": ",", "؛": ";", "؟": "?", "«": "“", "»": "”"}
    | {"„": "“", "¿": "", "¡": "", "\u200b": ""}
)
_PUNCTUATION = re.compile(r"([;:,.!?—…“”\"()]+)(?=\s|$)|(?<!\S)([“\"(]+)|\s([—–-])\s")
_WIDE_VOICES = ("cmn", "yue", "hak", "ja", "ko")  # others say "Chinese letter" for an ideograph
_WIDE = re.compile("[\u1100-\u11ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]+")
_STRESS = re.compile(r"([ˈˌ])([^ˈˌ\saeiouyæøœɐɑɒɔɘəɚɛɜɝɞɤɨɪɯɵɶʉʊʌʏᵻᵿ]+)")
_LANGUAGE_SWITCH = re.compile(r"\([^()]*\)")  # how espeak-ng marks words that it reads as foreign


class EspeakLibrary:
    """The loaded library. Its state is global, so a lock covers every call."""

    def __init__(self, library_path: str, data_path: str) -> None:
        if len(data_path.encode()) > MAX_DATA_PATH_BYTES:
            raise EngineError("espeak-ng cannot use a data folder whose path is that long")
        self._lock = Lock()
        self._library = ctypes.CDLL(library_path)
        self._library.espeak_TextToPhonemes.restype = ctypes.c_char_p
        self._library.espeak_TextToPhonemes.argtypes = [
            ctypes.POINTER(ctypes.c_char_p),
            ctypes.c_int,
            ctypes.c_int,
        ]
        self._library.espeak_Synth.argtypes = [
            ctypes.c_char_p,
            ctypes.c_size_t,
            ctypes.c_uint,
            ctypes.c_int,
            ctypes.c_uint,
            ctypes.c_uint,
            ctypes.c_void_p,
            ctypes.c_void_p,
        ]
        self.sample_rate: int = self._library.espeak_Initialize(
            SYNCHRONOUS, 0, data_path.encode(), DONT_EXIT
        )
        if self.sample_rate <= 0:
            raise EngineError("espeak-ng did not start")
        self._pieces: list[Pcm] = []
        self._callback = SynthCallback(self._collect)  # referenced: the library has only a pointer
        self._library.espeak_SetSynthCallback(self._callback)
        self._voice = ""

    def phonemes(self, text: str, voice: str, *, tie: bool = False) -> str:
        """Returns IPA of `text` with its punctuation; `tie` joins the letters of a phoneme with
        `͡`. Raises UnsupportedLanguage when there is no such voice."""
        joined = ""
        gap = ""
        with self._lock:
            self._choose(voice)
            readable = _readable(text, voice).translate(_OTHER_PUNCTUATION)
            parts = _PUNCTUATION.split(readable)
            for index, part in enumerate(parts):
                kind = index % 4  # 0: words; 1 to 3: the groups of the expression
                if part is None or not part.strip():
                    continue
                if kind == 0:
                    joined += gap + self._read(part, tie)
                elif kind == 1:
                    joined += part
                else:
                    joined += gap + ("—" if kind == 3 else part)
                gap = "" if kind == 2 else " "
        return joined

    def speak(self, text: str, voice: str, *, speed: float, liveliness: float) -> Pcm:
        """Speaks `text`: float32 [n] at `sample_rate`; `liveliness` scales the pitch range. Raises
        UnsupportedLanguage when there is no such voice."""
        encoded = _readable(text, voice).encode()
        with self._lock:
            self._choose(voice)
            self._set(RATE, round(NORMAL_WORDS_A_MINUTE * speed))
            self._set(PITCH_RANGE, round(min(100.0, NORMAL_RANGE * liveliness)))
            self._pieces = []
            failed = self._library.espeak_Synth(
                encoded, len(encoded) + 1, 0, 1, 0, UTF8 | MNEMONICS, None, None
            )
            pieces, self._pieces = self._pieces, []
        if failed:
            raise EngineError("espeak-ng could not speak the text")
        return np.concatenate(pieces) if pieces else np.zeros(0, np.float32)

    def _collect(self, samples: "ctypes._Pointer[ctypes.c_short]", count: int, _: int) -> int:
        if samples and count > 0:
            pcm16 = np.ctypeslib.as_array(samples, shape=(count,))
            self._pieces.append(pcm16.astype(np.float32) / 32768.0)
        return 0

    def _choose(self, voice: str) -> None:
        if voice != self._voice:
            if self._library.espeak_SetVoiceByName(voice.encode()) != 0:
                raise UnsupportedLanguage(f"espeak-ng has no voice {voice!r}")
            self._voice = voice

    def _set(self, parameter: int, value: int) -> None:
        self._library.espeak_SetParameter(parameter, value, 0)

    def _read(self, words: str, tie: bool) -> str:
        left = ctypes.c_char_p(words.encode())
        clauses = []
        while left.value is not None:
            clause = self._library.espeak_TextToPhonemes(
                ctypes.byref(left), UTF8, IPA | (TIE if tie else 0)
            )
            clauses.append(clause.decode() if clause else "")
        return _LANGUAGE_SWITCH.sub("", " ".join(clauses).replace("͡(", "(")).strip()


def _readable(text: str, voice: str) -> str:
    if voice.startswith("en"):
        text = with_letters(text)
    if voice.startswith("ar"):
        text = with_vowels(text)
    return text if voice.startswith(_WIDE_VOICES) else _WIDE.sub(" ", text)


def stress_before_vowels(ipa: str) -> str:
    """Moves stress marks from the syllable to its vowel, where espeak-ng expects them."""
    return _STRESS.sub(r"\2\1", ipa)


def espeak_installed() -> bool:
    """Whether the extra `espeak` is installed; does not load it."""
    return find_spec("espeakng_loader") is not None


@once  # the library is global: two first calls at once would initialise it while it reads
def espeak_library() -> EspeakLibrary:
    """Return the library of this process. Raises UnsupportedFeature if it is not installed."""
    try:
        import espeakng_loader
    except ImportError:
        raise UnsupportedFeature("espeak-ng is not installed; add the extra `espeak`") from None
    return EspeakLibrary(espeakng_loader.get_library_path(), espeakng_loader.get_data_path())


class EspeakEngine(TTSEngine):
    """All voices of the configuration, from one copy of the library."""

    def __init__(self, config: EspeakConfig, weights: WeightStore) -> None:
        """`weights` is unused: the library brings its data."""
        self._library = espeak_library()
        self._voices = VoiceTable(config.voices, config.engine)
        self.capabilities = TTSCapabilities(
            sample_rate=self._library.sample_rate,
            languages=self._voices.languages,
            native_speed=True,
            phonemes=True,
        )
        self._library_voices = {voice.key: voice.espeak for voice in config.voices}

    def synthesize(self, request: SynthesisRequest) -> Generator[AudioChunk, None, None]:
        voice = self._voices.speaking(request.voice, request.language)
        pcm = self._library.speak(
            request.symbols(str, _mnemonics),
            self._library_voices[voice.key],
            speed=request.speed,
            liveliness=1.0 / request.stability,
        )
        yield whole_sentence(pcm, self.capabilities.sample_rate, request)

    def phonemes(self, request: SynthesisRequest) -> str:
        read = partial(self._library.phonemes, voice=self._library_voices[request.voice])
        return request.symbols(read, stress_before_vowels)


@lru_cache(maxsize=1000)
def _mnemonics(ipa: str) -> str:
    table = load_yaml(TypeAdapter(dict[str, str]), "espeak_phonemes")
    return f"[[{''.join(table.get(sign, sign) for sign in stress_before_vowels(ipa))}]]"
