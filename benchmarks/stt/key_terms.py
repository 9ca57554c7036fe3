"""How many rare names are recognised with and without key terms, and how many are invented.

`python -m benchmarks.stt.key_terms` has voices of the service say the sentences of
`key_terms.yaml`, each name twice, and the sentences of `passages.yaml`, which have none of the
names. Every request has the names of both halves as key terms, most of which it does not contain.
On half of the names thresholds may be tuned (`--half tuned`), the other half is held out.
"""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from benchmarks.harness.recognition import bare_engine, transcribe_alone
from benchmarks.harness.recordings import word_error_rate
from benchmarks.harness.report import begin, parser
from benchmarks.harness.speech import HALVES, PASSAGE_VOICES, Sentence, speak
from benchmarks.stt.lost_speech import passages
from models.stt.options import RecognitionOptions


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--half", choices=HALVES, default="held_out")
    options.add_argument("--verbose", action="store_true", help="print the names that are missed")
    arguments = begin(options)
    halves = yaml.safe_load(Path(__file__).with_name("key_terms.yaml").read_text("utf-8"))
    terms = tuple(
        dict.fromkeys(
            name for half in halves.values() for kind in ("names", "fillers") for name in half[kind]
        )
    )
    named = named_sentences(halves[arguments.half], PASSAGE_VOICES[arguments.half])
    sentences = [*named, *((None, sentence) for sentence in passages(arguments.half))]
    ways = {
        "without": RecognitionOptions(),
        f"{len(terms)} key terms": RecognitionOptions(keyterms=terms),
        "the same as a prompt": RecognitionOptions(prompt=", ".join(terms)),
    }
    engine = bare_engine()
    for way, recognition in ways.items():
        began = time.perf_counter()
        results = [
            (name, sentence.text, transcribe_alone(engine, sentence.pcm, options=recognition))
            for name, sentence in sentences
        ]
        elapsed_s = time.perf_counter() - began
        missed = [
            (name, transcript)
            for name, _, transcript in results
            if name is not None and name.casefold() not in transcript.casefold()
        ]
        invented = sum(
            term.casefold() in transcript.casefold() and term.casefold() not in text.casefold()
            for term in terms
            for _, text, transcript in results
        )
        with_names, without_names = (
            word_error_rate([text for _, text, _ in part], [heard for _, _, heard in part])
            for part in (results[: len(named)], results[len(named) :])
        )
        print(
            f"{way}: {len(named) - len(missed)} of {len(named)} names, {invented} invented, word"
            f" errors {with_names:.1%}, without names {without_names:.1%}, {elapsed_s:.1f} s"
        )
        for name, transcript in missed if arguments.verbose else ():
            print(f"    {name}: {transcript}")


def named_sentences(
    half: Mapping[str, Any], voices: tuple[str, str]
) -> list[tuple[str | None, Sentence]]:
    """Each name in two sentences, by two voices."""
    named: list[tuple[str | None, Sentence]] = []
    templates = half["sentences"]
    for number, name in enumerate(half["names"]):
        for repetition in (0, 1):
            template = templates[(number + 2 * repetition) % len(templates)]
            text = template.replace("{}", name)
            voice = voices[(number + repetition) % 2]
            named.append((name, Sentence(voice, speak(text, voice), text)))
    return named


if __name__ == "__main__":
    main()
