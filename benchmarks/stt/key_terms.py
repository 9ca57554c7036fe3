"""How many rare names are recognised with and without key terms, and how many are invented.

`python -m benchmarks.stt.key_terms` has voices of the service say the sentences of
`key_terms.yaml`, each name twice, and the sentences of `passages.yaml`, which have none of the
names. The names of both halves are the key terms of every request, most of which are not said.
On half of the names thresholds may be tuned (`--half tuned`), the other half is held out.
"""

import argparse
import time
from dataclasses import dataclass
from pathlib import Path

import jiwer
import numpy as np
import yaml

from benchmarks.hardware import hardware
from benchmarks.stt.file import plain_words
from benchmarks.stt.lost_speech import VOICES, spoken
from configs.settings import weights_dir
from models.audio import Pcm, resample
from models.registry import STT, TTS, load_model
from models.stt.base import STT_SAMPLE_RATE, STTEngine, TranscriptionRequest
from models.stt.options import RecognitionOptions
from models.tts.base import SynthesisRequest
from models.weights.store import WeightStore


@dataclass(frozen=True, slots=True)
class Said:
    name: str  # empty: none is said
    text: str
    pcm: Pcm


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--half", choices=list(VOICES), default="held_out")
    parser.add_argument("--verbose", action="store_true", help="print the names that are missed")
    arguments = parser.parse_args()
    store = WeightStore(weights_dir())
    halves = yaml.safe_load(Path(__file__).with_name("key_terms.yaml").read_text("utf-8"))
    terms = dict.fromkeys(
        name for half in halves.values() for kind in ("names", "fillers") for name in half[kind]
    )
    named = _speak(store, arguments.half, **halves[arguments.half])
    others = [Said("", one.text, one.pcm) for one in spoken(store, arguments.half)]
    engine, _ = load_model(STT, "stt/whisper_base", store)
    print(hardware())
    ways = {
        "without": RecognitionOptions(),
        f"{len(terms)} key terms": RecognitionOptions(keyterms=tuple(terms)),
        "the same as a prompt": RecognitionOptions(prompt=", ".join(terms)),
    }
    for way, options in ways.items():
        began = time.perf_counter()
        heard = [_hear(engine, one, options) for one in [*named, *others]]
        elapsed_s = time.perf_counter() - began
        pairs = list(zip([*named, *others], heard, strict=True))
        missed = [pair for pair in pairs if pair[0].name.casefold() not in pair[1].casefold()]
        invented = sum(
            term.casefold() in text.casefold() and term.casefold() not in one.text.casefold()
            for term in terms
            for one, text in pairs
        )
        errors = [
            jiwer.wer(
                [plain_words(one.text, "en") for one, _ in some],
                [plain_words(text, "en") for _, text in some],
            )
            for some in (pairs[: len(named)], pairs[len(named) :])
        ]
        print(
            f"{way}: {len(named) - len(missed)} of {len(named)} names, {invented} invented, word"
            f" errors {errors[0]:.1%}, without names {errors[1]:.1%}, {elapsed_s:.1f} s"
        )
        for one, text in missed if arguments.verbose else ():
            print(f"    {one.name}: {text}")


def _speak(
    store: WeightStore, half: str, names: list[str], sentences: list[str], fillers: list[str]
) -> list[Said]:
    """Each name in two sentences, by two voices."""
    engine, _ = load_model(TTS, "tts/kokoro", store)
    said = []
    for number, name in enumerate(names):
        for time_ in (0, 1):
            text = sentences[(number + 2 * time_) % len(sentences)].replace("{}", name)
            voice = VOICES[half][(number + time_) % 2]
            request = SynthesisRequest(text=text, voice=voice, language="en")
            pcm = np.concatenate([chunk.pcm for chunk in engine.synthesize(request)])
            pcm = resample(pcm, engine.capabilities.sample_rate, STT_SAMPLE_RATE)
            said.append(Said(name, text, pcm))
    return said


def _hear(engine: STTEngine, one: Said, options: RecognitionOptions) -> str:
    (transcript,) = engine.transcribe([TranscriptionRequest(one.pcm, "en", options=options)])
    return " ".join(segment.text for segment in transcript.segments)


if __name__ == "__main__":
    main()
