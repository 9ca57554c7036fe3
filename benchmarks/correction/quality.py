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
from statistics import median, quantiles
from typing import Any

import httpx
import yaml

from benchmarks.correction import jfleg
from benchmarks.correction.clean import CleanSentence, clean_sentences
from benchmarks.correction.gleu import gleu
from benchmarks.harness.report import hardware, versions
from configs.settings import weights_dir
from models.registry import CHAT, load_model
from models.weights.store import WeightStore
from pipelines.correction.edits import Edit, apply_edits
from tests.api.chat_server import ChatServer, serve_chat

MODEL = "llm/smollm2"
FOLDER = Path(__file__).parent
CLEAN = 500
STREAMED = 8  # sentences of one text


def main() -> None:
    arguments = _parse()
    if arguments.texts is not None:
        _measure_texts(arguments)
        return
    faulty = _faulty_sentences(arguments)[: arguments.first]
    with _served(arguments.model, arguments.ask) as server, httpx.Client(timeout=120) as client:
        corrector = _Corrector(client, server, arguments.tone)
        corrector.correct("This is to warm up, and it dont count.")
        corrector.correct("Das ist zum Aufwärmen, und es zähle nicht.")
        outputs = _tell_faulty(corrector, faulty, arguments.dev or arguments.verbose)
        _tell_streamed(corrector, [sentence["faulty"] for sentence in faulty[:STREAMED]])
        if not arguments.dev and not arguments.german:
            corrector.seconds.clear()
            _tell_clean(corrector, list(clean_sentences(arguments.clean)), arguments.verbose)
    if arguments.write is not None:
        arguments.write.write_text("".join(f"{jfleg.separated(text)}\n" for text in outputs))
    print(hardware(), versions("harper-py", "symspellpy", "xllamacpp"))


def _measure_texts(arguments: argparse.Namespace) -> None:
    texts = arguments.texts.read_text("utf-8").splitlines()[: arguments.clean]
    sentences = [CleanSentence(text, ()) for text in texts]
    with _served(arguments.model, arguments.ask) as server, httpx.Client(timeout=120) as client:
        corrector = _Corrector(client, server, arguments.tone)
        _tell_clean(corrector, sentences, arguments.verbose)
    print(hardware(), versions("harper-py", "symspellpy", "xllamacpp"))


def _faulty_sentences(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    part = "dev" if arguments.dev else "test"
    if arguments.jfleg is not None:
        return jfleg.faulty_sentences(arguments.jfleg, part)
    name = "german.yaml" if arguments.german else "faulty.yaml"
    sentences: list[dict[str, Any]] = yaml.safe_load((FOLDER / name).read_text("utf-8"))[part]
    return sentences


class _Corrector:
    """Sends corrections, measures their latency, and checks that the edits yield the content."""

    def __init__(self, client: httpx.Client, server: ChatServer, tone: str | None) -> None:
        self.seconds: list[float] = []
        self.models: set[str] = set()
        self.warnings: Counter[str] = Counter()
        self._client = client
        self._server = server
        self._url = f"{server.url}/v1/chat/completions"
        self._style = {"style": {"tone": tone}} if tone else {}

    def correct(self, text: str) -> str:
        body = {"text": text, "stream": False, "save_chat": False, **self._style}
        began = time.perf_counter()
        response = self._client.post(self._url, json=body, headers=self._server.headers)
        self.seconds.append(time.perf_counter() - began)
        answer: dict[str, Any] = response.raise_for_status().json()
        self.models.add(answer["model"])
        self.warnings.update(of["message"] for of in answer["correction"]["warnings"])
        content: str = answer["choices"][0]["message"]["content"]
        edits = [
            Edit(edit["start"], edit["end"], edit["replacement"], edit["kind"])
            for edit in answer["correction"]["edits"]
        ]
        assert apply_edits(text, edits) == content, text
        return content

    def stream(self, text: str) -> list[float]:
        """The seconds until each piece of a streamed correction."""
        body = {"text": text, "save_chat": False, **self._style}
        began = time.perf_counter()
        with self._client.stream(
            "POST", self._url, json=body, headers=self._server.headers
        ) as response:
            return [
                time.perf_counter() - began
                for line in response.iter_lines()
                if '"content": "' in line and '"content": ""' not in line
            ]

    def times(self) -> str:
        ninety = quantiles(self.seconds, n=10)[-1]
        return f"p50 {median(self.seconds) * 1000:.0f} ms, p90 {ninety * 1000:.0f} ms"


def _tell_faulty(
    corrector: _Corrector, faulty: Sequence[dict[str, Any]], verbose: bool
) -> list[str]:
    corrector.seconds.clear()
    corrector.warnings.clear()
    sources = [sentence["faulty"] for sentence in faulty]
    references = [sentence["references"] for sentence in faulty]
    outputs = [corrector.correct(source) for source in sources]
    if verbose:
        for source, output, good in zip(sources, outputs, references, strict=True):
            if output not in good:
                print(f"  {source}\n  -> {output}\n  != {good[0]}\n")
    right = sum(output in good for output, good in zip(outputs, references, strict=True))
    before, after = gleu(sources, sources, references), gleu(sources, outputs, references)
    print(
        f"{len(sources)} faulty sentences: GLEU {before:.3f} -> {after:.3f} "
        f"({after - before:+.3f}), {right} exactly as a reference; "
        f"{corrector.times()}; answered by {corrector.models}"
    )
    for message, count in corrector.warnings.most_common(12):
        print(f"  {count} times: {message}")
    return outputs


def _tell_streamed(corrector: _Corrector, sentences: list[str]) -> None:
    times = corrector.stream(" ".join(sentences))
    print(
        f"{len(sentences)} sentences in one stream: the first after {times[0]:.2f} s, the last"
        f" after {times[-1]:.2f} s, {times[-1] / len(sentences):.2f} s a sentence"
    )


def _tell_clean(corrector: _Corrector, sentences: Sequence[CleanSentence], verbose: bool) -> None:
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
        f"span, {changed} changed at all; {corrector.times()}"
    )


@contextmanager
def _served(model: str, ask: bool) -> Iterator[ChatServer]:
    engine, info = load_model(CHAT, model, WeightStore(weights_dir()))
    with tempfile.TemporaryDirectory(prefix="antiphon-bench-") as folder:
        # A model that the configuration does not name corrects every text.
        shown = dataclasses.replace(info, id="svc/asked") if ask else info
        with serve_chat(Path(folder), engine, shown) as server:
            yield server


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dev", action="store_true", help="the sentences to tune on")
    parser.add_argument("--ask", action="store_true", help="ask the language model as well")
    parser.add_argument("--model", default=MODEL, help="the chat model; default %(default)s")
    parser.add_argument("--jfleg", type=Path, help="a copy of JFLEG's repository to measure with")
    parser.add_argument("--german", action="store_true", help="German sentences")
    parser.add_argument("--write", type=Path, help="a file for the answers, in tokens")
    parser.add_argument("--clean", type=int, default=CLEAN, help="number of clean sentences")
    parser.add_argument("--texts", type=Path, help="a file of clean sentences to measure alone")
    parser.add_argument("--first", type=int, help="number of faulty sentences; all by default")
    parser.add_argument("--tone", help="tone of the corrections")
    parser.add_argument("--verbose", action="store_true", help="print unexpected results")
    return parser.parse_args()


if __name__ == "__main__":
    main()
