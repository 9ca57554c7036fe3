"""Correction: GLEU gain on faulty sentences, damage to clean ones, and latency.

    python -m benchmarks.correction.quality         # rules only, as in the CPU profile
    python -m benchmarks.correction.quality --dev   # on the sentences that rules are tuned on
    python -m benchmarks.correction.quality --jfleg ~/jfleg --write jfleg.txt
    python -m benchmarks.correction.quality --model llm/qwen2_5_coder_1_5b --german
    python -m benchmarks.correction.quality --ask   # the language model for each correction
    python -m benchmarks.correction.quality --texts clean.txt --verbose   # a clean sentence a line

`--write` saves the answers to JFLEG's sentences for its own script, `eval/gleu.py`. All requests go
over HTTP to the application, which the benchmark serves itself with one chat model.
"""

import argparse
import dataclasses
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import yaml

from benchmarks.correction import jfleg
from benchmarks.correction.clean import CleanSentence, clean_sentences
from benchmarks.correction.gleu import gleu
from benchmarks.harness.report import begin, parser, percentile
from benchmarks.harness.speech import store
from models.registry import CHAT, load_model
from pipelines.correction.edits import Edit, apply_edits
from tests.api.chat_server import serve_chat

MODEL = "llm/smollm2"
FOLDER = Path(__file__).parent
CLEAN = 500


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--dev", action="store_true", help="the sentences to tune on")
    options.add_argument("--ask", action="store_true", help="ask the language model as well")
    options.add_argument("--model", default=MODEL, help="the chat model; default %(default)s")
    options.add_argument("--jfleg", type=Path, help="a copy of JFLEG's repository to measure with")
    options.add_argument("--german", action="store_true", help="German sentences")
    options.add_argument("--write", type=Path, help="a file for the answers, in tokens")
    options.add_argument("--texts", type=Path, help="a file of clean sentences to measure alone")
    options.add_argument("--tone", help="tone of the corrections")
    options.add_argument("--verbose", action="store_true", help="print unexpected results")
    arguments = begin(options, "harper-py", "symspellpy", "xllamacpp")
    with corrector_of(arguments) as corrector:
        if arguments.texts is not None:
            texts = arguments.texts.read_text("utf-8").splitlines()
            clean = [CleanSentence(text, ()) for text in texts]
            measure_clean(corrector, clean, verbose=arguments.verbose)
            return
        faulty = faulty_sentences(arguments)
        corrector.correct("This is to warm up, and it dont count.")
        corrector.correct("Das ist zum Aufwärmen, und es zähle nicht.")
        outputs = measure_faulty(corrector, faulty, verbose=arguments.dev or arguments.verbose)
        if not arguments.dev and not arguments.german:
            clean = list(clean_sentences(CLEAN))
            measure_clean(corrector, clean, verbose=arguments.verbose)
    if arguments.write is not None:
        arguments.write.write_text("".join(f"{jfleg.separated(text)}\n" for text in outputs))


def faulty_sentences(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    part = "dev" if arguments.dev else "test"
    if arguments.jfleg is not None:
        return jfleg.faulty_sentences(arguments.jfleg, part)
    name = "german.yaml" if arguments.german else "faulty.yaml"
    sentences: list[dict[str, Any]] = yaml.safe_load((FOLDER / name).read_text("utf-8"))[part]
    return sentences


class Corrector:
    """Sends corrections, measures their latency, and checks that the edits yield the content."""

    def __init__(self, client: httpx.Client, tone: str | None) -> None:
        self.models: set[str] = set()
        self.warnings: Counter[str] = Counter()
        self.times_ms: list[float] = []
        self._client = client
        self._style = {"style": {"tone": tone}} if tone else {}

    def begin(self) -> None:
        """Forget what was measured before."""
        self.warnings.clear()
        self.times_ms.clear()

    def correct(self, text: str) -> str:
        body = {"text": text, "stream": False, "save_chat": False, **self._style}
        began = time.perf_counter()
        response = self._client.post("/v1/chat/completions", json=body)
        self.times_ms.append((time.perf_counter() - began) * 1000)
        answer: dict[str, Any] = response.raise_for_status().json()
        self.models.add(answer["model"])
        self.warnings.update(warning["message"] for warning in answer["correction"]["warnings"])
        content: str = answer["choices"][0]["message"]["content"]
        edits = [
            Edit(edit["start"], edit["end"], edit["replacement"], edit["kind"])
            for edit in answer["correction"]["edits"]
        ]
        assert apply_edits(text, edits) == content, text
        return content

    def latency(self) -> str:
        return (
            f"p50 {percentile(self.times_ms, 50):.0f}, p90 {percentile(self.times_ms, 90):.0f} ms"
        )


@contextmanager
def corrector_of(arguments: argparse.Namespace) -> Iterator[Corrector]:
    """A client of the application over the chat model."""
    engine, info = load_model(CHAT, arguments.model, store())
    if arguments.ask:  # a model that the configuration does not name corrects every text
        info = dataclasses.replace(info, id="svc/asked")
    with (
        tempfile.TemporaryDirectory(prefix="antiphon-bench-") as folder,
        serve_chat(Path(folder), engine, info) as server,
        httpx.Client(base_url=server.url, headers=server.headers, timeout=120) as client,
    ):
        yield Corrector(client, arguments.tone)


def measure_faulty(
    corrector: Corrector, faulty: Sequence[dict[str, Any]], *, verbose: bool
) -> list[str]:
    corrector.begin()
    sources = [sentence["faulty"] for sentence in faulty]
    references = [sentence["references"] for sentence in faulty]
    outputs = [corrector.correct(source) for source in sources]
    wrong = [
        (source, output, good[0])
        for source, output, good in zip(sources, outputs, references, strict=True)
        if output not in good
    ]
    for source, output, good in wrong if verbose else ():
        print(f"  {source}\n  -> {output}\n  != {good}\n")
    before = gleu(sources, sources, references)
    after = gleu(sources, outputs, references)
    print(
        f"{len(sources)} faulty sentences: GLEU {before:.3f} -> {after:.3f} "
        f"({after - before:+.3f}), {len(sources) - len(wrong)} exactly as a reference; "
        f"{corrector.latency()}; answered by {corrector.models}"
    )
    for message, count in corrector.warnings.most_common(12):
        print(f"  {count} times: {message}")
    return outputs


def measure_clean(
    corrector: Corrector, sentences: Sequence[CleanSentence], *, verbose: bool
) -> None:
    corrector.begin()
    changed = damaged = 0
    for sentence in sentences:
        output = corrector.correct(sentence.text)
        changed += output != sentence.text
        broken = [s for s in sentence.protected if output.count(s) < sentence.text.count(s)]
        damaged += bool(broken)
        if verbose and output != sentence.text:
            print(f"  {sentence.text}\n  -> {output} {broken or ''}\n")
    spans = sum(len(sentence.protected) for sentence in sentences)
    print(
        f"{len(sentences)} clean sentences with {spans} protected spans: {damaged} with a damaged "
        f"span, {changed} changed at all; {corrector.latency()}"
    )


if __name__ == "__main__":
    main()
