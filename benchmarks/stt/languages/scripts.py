"""The characters that are recognised wrongly in each language, and those of another script.

`python -m benchmarks.stt.languages.scripts` has the default voice of each language, or espeak-ng
where it has none, say the sentences of `sentences.yaml`, and transcribes each with whisper-base
here and with faster-whisper. `--speech FOLDER` adds recordings: a line of its `speech.tsv` has a
file, the code of a language and the text. `--results FILE` keeps each transcript, so that a run can
be continued.
Chinese is compared as pinyin, Japanese by its sounds. `character_errors` of `configs/stt` has the
figures from which `GET /stt/languages` grades languages.
"""

import unicodedata
import zlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import jiwer

from benchmarks.harness.recognition import bare_engine
from benchmarks.harness.recordings import read_pcm
from benchmarks.harness.report import begin, parser
from benchmarks.harness.speech import KEPT, SENTENCES_FILE, KeptResults, voices
from benchmarks.tts.languages import ESPEAK_NAMES, LISTENING_HZ, espeak_voices, listen, plain, speak
from configs.load import load_yaml
from configs.schema.voices import VoicesConfig
from models.audio import Pcm
from models.scripts import letters_outside
from models.stt.base import TranscriptionRequest
from models.tts.base import TTSEngine

LANGUAGES = "hi bn gu kn ml mr pa te ta ur ar fa th el ru uk he zh ja ko".split()
LONGEST_S = 30
VOICES = load_yaml(VoicesConfig, "voices").defaults
SENTENCES: dict[str, list[str]] = load_yaml(dict[str, list[str]], str(SENTENCES_FILE))
WAYS = ("faster-whisper", "here")
Pairs = Sequence[tuple[str, str]]
"""Texts and transcripts."""


def main() -> None:
    options = parser(__doc__)
    options.add_argument("languages", nargs="*", default=LANGUAGES)
    options.add_argument("--sentences", type=int, default=8, help="how many of each language")
    options.add_argument("--speech", type=Path, help="a folder with recordings and speech.tsv")
    options.add_argument("--results", type=Path, default=KEPT / "scripts.jsonl")
    arguments = begin(options)
    kept = KeptResults(arguments.results)
    for name, language, text in clips(arguments.languages, arguments.sentences, arguments.speech):
        kept.get(name, partial(transcripts_of, name, language, text, arguments.speech))
    print(table(dict(kept.items())))


def clips(
    languages: Sequence[str], sentences: int, speech: Path | None
) -> Iterator[tuple[str, str, str]]:
    """Name, language and text of each clip; the name of a recording is that of its file."""
    for language in languages:
        for number, text in enumerate(SENTENCES[language][:sentences]):
            yield f"{language}-{number}", language, text
    if speech is not None:
        for line in (speech / "speech.tsv").read_text("utf-8").splitlines():
            name, language, text = line.split("\t")
            if language in languages:
                yield name, language, text


def transcripts_of(name: str, language: str, text: str, speech: Path) -> dict[str, str]:
    """What both recognisers write of a clip."""
    pcm = recording_or_speech(name, language, text, speech)
    request = TranscriptionRequest(pcm, language, speech=((0, len(pcm)),))
    (transcript,) = bare_engine().transcribe([request])
    written = " ".join(segment.text for segment in transcript.segments)
    return {"language": language, "text": text, WAYS[0]: listen(pcm, language), WAYS[1]: written}


def recording_or_speech(name: str, language: str, text: str, speech: Path) -> Pcm:
    if "." in name:
        return read_pcm(speech / name)[: LONGEST_S * LISTENING_HZ]
    engine, voice = voice_of(language)
    return speak(engine, voice, language, [text])


@cache
def voice_of(language: str) -> tuple[TTSEngine, str]:
    """The engine and the key of the voice that speaks a language."""
    if (voice := VOICES.get(language)) is not None:
        return voices(f"tts/{voice.engine}")[0], voice.key
    name = ESPEAK_NAMES.get(language, language)
    return espeak_voices(language, {name: "male"}), name


def table(results: dict[str, dict[str, Any]]) -> str:
    """Character errors, and the share of letters in the language's own script; the errors also for
    each of two halves, by a hash."""
    rows: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for name, row in results.items():
        rows[row["language"], "speech" if "." in name else "voices"].append(row)
    heads = " | ".join(f"{way}: CER, script" for way in WAYS)
    lines = [f"| language | | clips | {heads} | halves |", "|---|---|---|---|---|---|"]
    for (language, kind), some in rows.items():
        figures = []
        for way in WAYS:
            pairs = [(row["text"], row[way]) for row in some]
            figures.append(f"{errors(pairs, language):.1%}, {share(pairs, language):.1%}")
        halves: list[Pairs] = [
            [pair for pair in pairs if zlib.crc32(pair[0].encode()) % 2 == half] for half in (0, 1)
        ]
        both = " / ".join(f"{errors(half, language):.0%}" if half else "-" for half in halves)
        lines.append(f"| {language} | {kind} | {len(some)} | {' | '.join(figures)} | {both} |")
    return "\n".join(lines)


def errors(pairs: Pairs, language: str) -> float:
    texts = [plain(text, language) for text, _ in pairs]
    return float(jiwer.cer(texts, [plain(transcript, language) for _, transcript in pairs]))


def share(pairs: Pairs, language: str) -> float:
    """The share of letters that are of the language's scripts; Latin ones are not."""
    foreign = letters_outside(frozenset({language}))
    letters = [
        letter
        for _, transcript in pairs
        for letter in transcript
        if unicodedata.category(letter)[0] == "L"
    ]
    own = [letter for letter in letters if ord(letter) >= 0x250 and not foreign.match(letter)]
    return len(own) / len(letters) if letters else 1.0


if __name__ == "__main__":
    main()
