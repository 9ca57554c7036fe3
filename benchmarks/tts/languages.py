"""Intelligibility of voices: which one does Whisper transcribe best in each language?

Speaks the sentences of `sentences.yaml` with every candidate, transcribes them with whisper-base
and counts the errors. Run `python -m benchmarks.tts.languages [LANGUAGE ...]`; results of the
other languages are kept. The table goes to languages.md, the figures to languages.json.
"""

import json
import unicodedata
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jiwer
import numpy as np
from babel import Locale
from faster_whisper import WhisperModel
from faster_whisper.audio import pad_or_trim
from faster_whisper.tokenizer import Tokenizer
from pypinyin import lazy_pinyin

from benchmarks.harness.recordings import faster_whisper
from benchmarks.harness.report import begin, parser
from benchmarks.harness.speech import SENTENCES_FILE, store, voices
from configs.load import load_yaml
from configs.schema.models.tts import EspeakConfig, EspeakVoiceConfig
from models.audio import Pcm, resample
from models.base import VoiceInfo
from models.tts.base import SynthesisRequest, TTSEngine
from models.tts.espeak_ng import EspeakEngine
from models.tts.kokoro.phonemes import japanese_phonemes

FOLDER = Path(__file__).parent
LISTENING_HZ = 16_000
PAUSE_S = 0.35
UNREAD = 1 / 3  # character error rate above which a transcript is mostly a guess
ESPEAK_NAMES = {"en": "en-us", "pt": "pt-br", "zh": "cmn"}
LATIN_TRIALS = ("ff_siwis", "if_sara", "im_nicola", "em_alex")
INDIC_TRIALS = ("hf_alpha", "hm_omega")
ENGLISH = ("af_heart", "am_michael", "bf_emma", "bm_george")  # of 28
INDIC = ("bn", "gu", "kn", "ml", "mr", "pa", "ta", "te")
EXTRA_TRIALS: dict[str, tuple[str, ...]] = {
    "fr": ("im_nicola", "em_alex")
}  # a language without a male voice of its own
HEAD = """# Which voice the recogniser reads best

Made by `python -m benchmarks.tts.languages`. Each voice spoke the sentences of `sentences.yaml`; \
whisper-base (greedy, language given) wrote them down. CER and WER are the shares of characters \
and words that came back wrong. Chinese is compared as pinyin, Japanese by its sounds. Likelihood \
is how probable the model finds the true text when it hears the voice (geometric mean of the \
tokens). It ranks voices whose CER is above a third, since whisper-base has hardly learnt to write \
several Indian languages. In Bengali, Kannada, Punjabi and Telugu, the model finds other sentences \
as likely as the true ones, so the ranking says little. This table compares voices. \
How well a language is recognised is in `docs/api.md`: the service keeps Whisper to the script of \
a language, and this comparison does not.

| language | engine | voice | gender | CER | WER | likelihood |
|---|---|---|---|---|---|---|
"""


@cache
def referee() -> WhisperModel:
    return faster_whisper()


def listen(pcm: Pcm, language: str) -> str:
    """The transcript of whisper-base; `pcm` is float32 [n] at LISTENING_HZ."""
    segments, _ = referee().transcribe(
        pcm,
        language=language,
        beam_size=1,
        temperature=0.0,
        condition_on_previous_text=False,
        no_speech_threshold=None,
    )
    return " ".join(segment.text for segment in segments)


def speak(engine: TTSEngine, voice: str, language: str, sentences: Sequence[str]) -> Pcm:
    """The sentences with pauses between them, float32 [n] at LISTENING_HZ."""
    pause = np.zeros(round(PAUSE_S * engine.capabilities.sample_rate), np.float32)
    pieces = []
    for sentence in sentences:
        request = SynthesisRequest(text=sentence, voice=voice, language=language)
        pieces += [*(chunk.pcm for chunk in engine.synthesize(request)), pause]
    return resample(np.concatenate(pieces), engine.capabilities.sample_rate, LISTENING_HZ)


def plain(text: str, language: str) -> str:
    """Lower-case letters only; Chinese as pinyin and Japanese as phonemes, without spelling."""
    if language == "ja":
        return japanese_phonemes(text, str.lower).replace(" ", "").strip(".,")
    folded = unicodedata.normalize("NFC", text).lower().replace("'", " ").replace("’", " ")
    letters = "".join(c if unicodedata.category(c)[0] in "LMN" else " " for c in folded)
    if language == "zh":
        return " ".join(lazy_pinyin("".join(letters.split())))
    return " ".join(letters.split())


def likelihood(pcm: Pcm, text: str, language: str) -> float:
    """The mean token probability of `text` given `pcm` by whisper-base, 0 to 1.

    It ranks voices even in languages that the model transcribes badly.
    """
    model = referee()
    tokenizer = Tokenizer(model.hf_tokenizer, True, task="transcribe", language=language)
    features = model.feature_extractor(pcm[: 30 * LISTENING_HZ])
    frames = features.shape[-1]
    encoded = model.encode(pad_or_trim(features))
    tokens = tokenizer.encode(" " + text)
    aligned = model.model.align(encoded, tokenizer.sot_sequence, [tokens], frames)[0]
    return float(np.exp(np.mean(np.log(np.maximum(aligned.text_token_probs, 1e-9)))))


def score(pcm: Pcm, sentences: Sequence[str], language: str) -> dict[str, Any]:
    text = " ".join(sentences)
    transcript = listen(pcm, language)
    reference = plain(text, language)
    hypothesis = plain(transcript, language)
    return {
        "cer": round(jiwer.cer(reference, hypothesis), 4),
        "wer": round(jiwer.wer(reference, hypothesis), 4),
        "likelihood": round(likelihood(pcm, text, language), 4),
        "heard": transcript.strip(),
    }


def espeak_voices(language: str, names: dict[str, str]) -> EspeakEngine:
    """espeak-ng with voices of a language, by their names; each with its gender."""
    listed = tuple(
        EspeakVoiceConfig(key=name, name=name, language=language, gender=gender, espeak=name)
        for name, gender in names.items()
    )
    config = load_yaml(EspeakConfig, "tts/espeak").model_copy(update={"voices": listed})
    return EspeakEngine(config, store())


def candidates(language: str) -> Iterator[tuple[str, TTSEngine, VoiceInfo]]:
    """Name of the engine, engine and voice of every candidate in `language`."""
    for name in ("hibari", "vits"):
        engine, _ = voices(f"tts/{name}")
        for voice in engine.voices():
            if voice.language == language:
                yield name, engine, voice
    kokoro, _ = voices("tts/kokoro")
    trained = {voice.key: voice for voice in kokoro.voices() if ":" not in voice.key}
    for voice in trained.values():
        if voice.language == language and (language != "en" or voice.key in ENGLISH):
            yield "kokoro", kokoro, voice
    trials = EXTRA_TRIALS.get(language, ())
    if language in INDIC:
        trials = INDIC_TRIALS
    elif language not in {voice.language for voice in trained.values()}:
        trials = LATIN_TRIALS
    for key in trials:
        yield "kokoro", kokoro, trained[key]
    name = ESPEAK_NAMES.get(language, language)
    espeak = espeak_voices(language, {f"{name}+f2": "female", name: "male"})
    for voice in espeak.voices():
        yield "espeak", espeak, voice


def merit(row: dict[str, Any]) -> tuple[float, float]:
    """Sort key, lower is better: character errors up to UNREAD, then likelihood."""
    return min(float(row["cer"]), UNREAD), -float(row["likelihood"])


def table(results: dict[str, list[dict[str, Any]]]) -> str:
    lines = []
    for language in sorted(results):
        name = Locale("en").languages[language]
        for rank, row in enumerate(sorted(results[language], key=merit)):
            key = row["voice"] if rank else f"**{row['voice']}**"
            lines.append(
                f"| {language} {name} | {row['engine']} | {key} | {row['gender']}"
                f" | {row['cer']:.1%} | {row['wer']:.1%} | {row['likelihood']:.3f} |\n"
            )
    return HEAD + "".join(lines)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("languages", nargs="*", help="ISO 639-1 codes; all when none is named")
    options.add_argument("--sentences", type=int, default=8, help="how many of each language")
    arguments = begin(options)
    sentences: dict[str, list[str]] = load_yaml(dict[str, list[str]], str(SENTENCES_FILE))
    figures = FOLDER / "languages.json"
    results = json.loads(figures.read_text(encoding="utf-8")) if figures.exists() else {}
    for language in arguments.languages or sentences:
        rows = []
        texts = sentences[language][: arguments.sentences]
        for name, engine, voice in candidates(language):
            row = {"engine": name, "voice": voice.key, "gender": voice.gender}
            pcm = speak(engine, voice.key, language, texts)
            rows.append(row | score(pcm, texts, language))
            print(language, rows[-1])
        results[language] = sorted(rows, key=merit)
        text = json.dumps(results, ensure_ascii=False, indent=1, sort_keys=True) + "\n"
        figures.write_text(text, encoding="utf-8")
        (FOLDER / "languages.md").write_text(table(results), encoding="utf-8")


if __name__ == "__main__":
    main()
