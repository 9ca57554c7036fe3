"""Which voice does the recogniser read best in each language?

Speaks the sentences of `sentences.yaml` with every candidate, has whisper-base write them down and
counts what came back wrong. Run `python -m benchmarks.tts_languages [LANGUAGE ...]`; results of the
other languages are kept. The table goes to tts_languages.md, the figures to tts_languages.json.
"""

import argparse
import json
import unicodedata
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jiwer
import numpy as np
from babel import Locale
from faster_whisper import WhisperModel
from pypinyin import lazy_pinyin

from configs.load import load_yaml
from configs.settings import weights_dir
from configs.tts_schema import EspeakConfig, EspeakVoiceConfig
from models.audio import Pcm, resample
from models.info import VoiceInfo
from models.loading import load_tts
from models.tts.base import SynthesisRequest, TTSEngine
from models.tts.espeak import EspeakEngine
from models.tts.japanese import japanese_phonemes
from models.weights.store import WeightStore

FOLDER = Path(__file__).parent
LISTENING_HZ = 16_000
PAUSE_S = 0.35
ESPEAK_NAMES = {"en": "en-us", "pt": "pt-br", "zh": "cmn"}
LATIN_TRIALS = ("ff_siwis", "if_sara", "af_heart", "im_nicola", "em_alex", "am_michael")
INDIC_TRIALS = ("hf_alpha", "hf_beta", "hm_omega", "hm_psi")
INDIC = ("bn", "gu", "kn", "ml", "mr", "pa", "ta", "te")
EXTRA_TRIALS: dict[str, tuple[str, ...]] = {
    "fr": ("im_nicola", "em_alex")
}  # it has no man of its own
BLOCKS = {0x0980: "bn", 0x0A00: "pa", 0x0A80: "gu", 0x0B80: "ta", 0x0C00: "te", 0x0C80: "kn"}
BLOCKS |= {0x0D00: "ml"}
DEVANAGARI = 0x0900


@cache
def referee() -> WhisperModel:
    folder = WeightStore(weights_dir()).folder("whisper-base")
    return WhisperModel(str(folder), compute_type="int8", cpu_threads=2)


def listen(pcm: Pcm, language: str) -> str:
    """What whisper-base writes; `pcm` is float32 [n] at LISTENING_HZ."""
    segments, _ = referee().transcribe(
        pcm,
        language=language,
        beam_size=1,
        condition_on_previous_text=False,
        no_speech_threshold=None,
    )
    return " ".join(segment.text for segment in segments)


def speak(engine: TTSEngine, voice: str, language: str, sentences: list[str]) -> Pcm:
    """The sentences with pauses between them, float32 [n] at LISTENING_HZ."""
    pause = np.zeros(round(PAUSE_S * engine.sample_rate), np.float32)
    pieces = []
    for sentence in sentences:
        request = SynthesisRequest(text=sentence, voice=voice, language=language)
        pieces += [*(chunk.pcm for chunk in engine.synthesize(request)), pause]
    return resample(np.concatenate(pieces), engine.sample_rate, LISTENING_HZ)


def plain(text: str, language: str) -> str:
    """Lower-case letters only; Chinese as pinyin and Japanese as sounds, so spelling is free."""
    if language == "ja":
        return japanese_phonemes(text, str.lower).replace(" ", "").strip(".,")
    folded = unicodedata.normalize("NFC", text).lower().replace("'", " ").replace("’", " ")
    letters = "".join(c if unicodedata.category(c)[0] in "LMN" else " " for c in folded)
    if language == "zh":
        return " ".join(lazy_pinyin("".join(letters.split())))
    return " ".join(letters.split())


def as_devanagari(text: str) -> str:
    """Indic scripts share one layout, so a shift of the block transliterates them."""
    return "".join(
        chr(ord(c) - block + DEVANAGARI) if (block := ord(c) & ~0x7F) in BLOCKS else c for c in text
    )


def score(pcm: Pcm, sentences: list[str], language: str) -> dict[str, Any]:
    said = " ".join(sentences)
    heard = listen(pcm, language)
    reference, hypothesis = plain(said, language), plain(heard, language)
    result: dict[str, Any] = {
        "cer": round(jiwer.cer(reference, hypothesis), 4),
        "wer": round(jiwer.wer(reference, hypothesis), 4),
        "heard": heard.strip(),
    }
    if language in INDIC:
        # whisper-base has hardly learnt these languages, but writes down their sounds as Hindi
        hindi = plain(listen(pcm, "hi"), "hi")
        result["cer_as_hindi"] = round(jiwer.cer(as_devanagari(reference), hindi), 4)
    return result


def candidates(language: str, engines: dict[str, TTSEngine]) -> Iterator[tuple[str, VoiceInfo]]:
    """Engine and voice of everything worth hearing in `language`."""
    for name in ("hibari", "vits"):
        for voice in engines[name].voices():
            if voice.language == language:
                yield name, voice
    trained = [voice for voice in engines["kokoro"].voices() if ":" not in voice.key]
    for voice in trained:
        if voice.language == language:
            yield "kokoro", voice
    trials = EXTRA_TRIALS.get(language, ())
    if language in INDIC:
        trials = INDIC_TRIALS
    elif language not in {voice.language for voice in trained}:
        trials = LATIN_TRIALS
    by_key = {voice.key: voice for voice in trained}
    for key in trials:
        yield "kokoro", by_key[key]
    name = ESPEAK_NAMES.get(language, language)
    trial = load_yaml(EspeakConfig, "tts/espeak").model_copy(
        update={
            "voices": tuple(
                EspeakVoiceConfig(
                    key=variant, name=variant, language=language, gender=gender, espeak=variant
                )
                for variant, gender in ((f"{name}+f2", "female"), (name, "male"))
            )
        }
    )
    engines["espeak"] = EspeakEngine(trial, WeightStore(weights_dir()))
    for voice in engines["espeak"].voices():
        yield "espeak", voice


def merit(row: dict[str, Any]) -> float:
    """Lower is better: errors in characters, heard both ways where there are two."""
    if "cer_as_hindi" in row:
        return float(row["cer"] + row["cer_as_hindi"]) / 2
    return float(row["cer"])


def table(results: dict[str, list[dict[str, Any]]]) -> str:
    lines = [
        "# Which voice the recogniser reads best",
        "",
        "Made by `python -m benchmarks.tts_languages`. Each voice spoke the sentences of"
        " `sentences.yaml`; whisper-base (greedy, language given) wrote them down. CER and WER are"
        " the shares of characters and words that came back wrong. Chinese is compared as pinyin,"
        " Japanese by its sounds. whisper-base has hardly learnt eight of the Indian languages, so"
        " those are also heard as Hindi and compared in Devanagari; the mean of both counts.",
        "",
        "| language | engine | voice | gender | CER | WER | CER as Hindi |",
        "|---|---|---|---|---|---|---|",
    ]
    for language in sorted(results):
        name = Locale("en").languages[language]
        for rank, row in enumerate(sorted(results[language], key=merit)):
            key = f"**{row['voice']}**" if rank == 0 else row["voice"]
            hindi = f"{row['cer_as_hindi']:.1%}" if "cer_as_hindi" in row else ""
            lines.append(
                f"| {language} {name} | {row['engine']} | {key} | {row['gender']}"
                f" | {row['cer']:.1%} | {row['wer']:.1%} | {hindi} |"
            )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("languages", nargs="*", help="ISO 639-1 codes; all when none is named")
    parser.add_argument("--sentences", type=int, default=8, help="how many of each language")
    arguments = parser.parse_args()
    sentences: dict[str, list[str]] = load_yaml(
        dict[str, list[str]], str(FOLDER / "sentences.yaml")
    )
    store = WeightStore(weights_dir())
    engines = {name: load_tts(f"tts/{name}", store)[0] for name in ("hibari", "vits", "kokoro")}
    figures = FOLDER / "tts_languages.json"
    results = json.loads(figures.read_text(encoding="utf-8")) if figures.exists() else {}
    for language in arguments.languages or sentences:
        rows = []
        said = sentences[language][: arguments.sentences]
        for name, voice in candidates(language, engines):
            pcm = speak(engines[name], voice.key, language, said)
            row = {"engine": name, "voice": voice.key, "gender": voice.gender}
            rows.append(row | score(pcm, said, language))
            print(language, rows[-1])
        results[language] = sorted(rows, key=merit)
        figures.write_text(
            json.dumps(results, ensure_ascii=False, indent=1, sort_keys=True) + "\n",
            encoding="utf-8",
        )
        (FOLDER / "tts_languages.md").write_text(table(results), encoding="utf-8")


if __name__ == "__main__":
    main()
