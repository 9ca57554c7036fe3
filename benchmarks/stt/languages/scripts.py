"""The characters that are recognised wrongly in each language, and those of another script.

`python -m benchmarks.stt.languages.scripts` has the default voice of each language, or espeak-ng
where it has none, say the sentences of `sentences.yaml`, and transcribes each with whisper-base
here and with faster-whisper. `--speech FOLDER` adds recordings: a line of its `speech.tsv` has a
file, the code of a language and the text. `--results FILE` keeps each transcript, so that a run can
be continued.
Chinese is compared as pinyin, Japanese by its sounds. `character_errors` of `configs/stt` has the
figures from which `GET /stt/languages` grades languages.
"""

import argparse
import json
import unicodedata
import zlib
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import jiwer
import numpy as np
from faster_whisper.audio import decode_audio

from benchmarks.harness.report import hardware
from benchmarks.tts.languages import (
    ESPEAK_NAMES,
    LISTENING_HZ,
    SENTENCES_FILE,
    listen,
    plain,
    speak,
)
from configs.load import load_yaml
from configs.schema.models.tts import EspeakConfig, EspeakVoiceConfig
from configs.schema.voices import VoicesConfig
from configs.settings import weights_dir
from models.audio import Pcm
from models.registry import STT, TTS, load_model
from models.scripts import letters_outside
from models.stt.base import TranscriptionRequest
from models.tts.base import TTSEngine
from models.tts.espeak_ng import EspeakEngine
from models.weights.store import WeightStore

LANGUAGES = "hi bn gu kn ml mr pa te ta ur ar fa th el ru uk he zh ja ko".split()
LONGEST_S = 30
VOICES = load_yaml(VoicesConfig, "voices").defaults
SENTENCES: dict[str, list[str]] = load_yaml(dict[str, list[str]], str(SENTENCES_FILE))
WAYS = ("faster-whisper", "here")
Clip = tuple[str, str, str]  # its name, language and text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("languages", nargs="*", default=LANGUAGES)
    parser.add_argument("--sentences", type=int, default=8, help="how many of each language")
    parser.add_argument("--speech", type=Path, help="a folder with recordings and speech.tsv")
    parser.add_argument("--results", type=Path, default=Path("scripts.jsonl"))
    options = parser.parse_args()
    store = WeightStore(weights_dir())
    engine, _ = load_model(STT, "stt/whisper_base", store)
    kept = _read(options.results)
    for name, language, text in _clips(options.languages, options.sentences, options.speech):
        if (name, WAYS[-1]) in kept:
            continue
        pcm = _recorded(options.speech / name) if "." in name else _spoken(store, language, text)
        (transcript,) = engine.transcribe(
            [TranscriptionRequest(pcm, language, speech=((0, len(pcm)),))]
        )
        heard = " ".join(segment.text for segment in transcript.segments)
        for way, written in zip(WAYS, (listen(pcm, language), heard), strict=True):
            kept[name, way] = {"language": language, "text": text, "heard": written}
            row = {"clip": name, "way": way, **kept[name, way]}
            with options.results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
    print(hardware())
    print(table(kept))


def table(kept: dict[tuple[str, str], dict[str, str]]) -> str:
    """Character errors and letters of the own script: all, and of two halves that a hash tells."""
    rows = defaultdict[tuple[str, str, str], list[tuple[str, str]]](list)
    for (name, way), row in kept.items():
        kind = "speech" if "." in name else "voices"
        rows[row["language"], kind, way].append((row["text"], row["heard"]))
    lines = [
        "| language | | clips | "
        + " | ".join(f"{way}: CER, script" for way in WAYS)
        + " | halves |",
        "|---|---|---|---|---|---|",
    ]
    for language, kind, way in list(rows):
        if way != WAYS[-1]:
            continue
        halves = [
            [pair for pair in rows[language, kind, way] if zlib.crc32(pair[0].encode()) % 2 == half]
            for half in (0, 1)
        ]
        figures = [
            f"{errors(pairs, language):.1%}, {share(pairs, language):.1%}"
            for pairs in (rows[language, kind, one] for one in WAYS)
        ]
        both = " / ".join(f"{errors(half, language):.0%}" if half else "-" for half in halves)
        count = len(rows[language, kind, way])
        lines.append(f"| {language} | {kind} | {count} | {' | '.join(figures)} | {both} |")
    return "\n".join(lines)


def errors(pairs: list[tuple[str, str]], language: str) -> float:
    texts, heard = ([plain(text, language) for text in side] for side in zip(*pairs, strict=True))
    return float(jiwer.cer(texts, heard))


def share(pairs: list[tuple[str, str]], language: str) -> float:
    """The share of letters that are of the language's scripts; Latin ones are not."""
    foreign = letters_outside(frozenset({language}))
    letters = [one for _, heard in pairs for one in heard if unicodedata.category(one)[0] == "L"]
    own = [one for one in letters if ord(one) >= 0x250 and not foreign.match(one)]
    return len(own) / len(letters) if letters else 1.0


def _clips(languages: list[str], sentences: int, speech: Path | None) -> Iterator[Clip]:
    for language in languages:
        for number, text in enumerate(SENTENCES[language][:sentences]):
            yield f"{language}-{number}", language, text
    if speech is not None:
        for line in (speech / "speech.tsv").read_text("utf-8").splitlines():
            name, language, text = line.split("\t")
            if language in languages:
                yield name, language, text


def _spoken(store: WeightStore, language: str, text: str) -> Pcm:
    engine, key = _voice(store, language)
    return speak(engine, key, language, [text])


@cache
def _voice(store: WeightStore, language: str) -> tuple[TTSEngine, str]:
    if (voice := VOICES.get(language)) is not None:
        return _engine(store, voice.engine), voice.key
    name = ESPEAK_NAMES.get(language, language)
    voices = (
        EspeakVoiceConfig(key=name, name=name, language=language, gender="male", espeak=name),
    )
    config = load_yaml(EspeakConfig, "tts/espeak").model_copy(update={"voices": voices})
    return EspeakEngine(config, store), name


@cache
def _engine(store: WeightStore, name: str) -> TTSEngine:
    return load_model(TTS, f"tts/{name}", store)[0]


def _recorded(path: Path) -> Pcm:
    return np.asarray(decode_audio(str(path), LISTENING_HZ), np.float32)[: LONGEST_S * LISTENING_HZ]


def _read(results: Path) -> dict[tuple[str, str], dict[str, str]]:
    if not results.exists():
        return {}
    rows = map(json.loads, results.read_text("utf-8").splitlines())
    return {(row.pop("clip"), row.pop("way")): row for row in rows}


if __name__ == "__main__":
    main()
