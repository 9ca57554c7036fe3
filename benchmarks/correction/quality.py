"""Correction: GLEU gain on faulty sentences, damage to clean ones, and latency.

    python -m benchmarks.correction.quality        # rules only, as in the CPU profile
    python -m benchmarks.correction.quality --dev  # on the sentences that rules are tuned on
    python -m benchmarks.correction.quality --ask  # asks the language model for each correction

All requests go over HTTP to the application, which the benchmark serves itself with the chat
model of the CPU profile.
"""

import argparse
import dataclasses
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import httpx
import yaml

from benchmarks.correction.clean import CleanSentence, clean_sentences
from benchmarks.correction.gleu import gleu
from benchmarks.hardware import hardware, versions
from configs.settings import weights_dir
from models.registry import CHAT, load_model
from models.weights.store import WeightStore
from pipelines.correction.edits import Edit, apply_edits
from tests.api.chat_server import ChatServer, serve_chat

MODEL = "llm/smollm2"
FAULTY = Path(__file__).parent / "faulty.yaml"
CLEAN = 500


def main() -> None:
    arguments = _parse()
    parts = yaml.safe_load(FAULTY.read_text(encoding="utf-8"))
    faulty = parts["dev" if arguments.dev else "test"][: arguments.first]
    with _served(arguments.ask) as server, httpx.Client(timeout=120) as client:
        corrector = _Corrector(client, server, arguments.tone)
        corrector.correct("This is to warm up, and it dont count.")
        _tell_faulty(corrector, faulty, arguments.dev or arguments.verbose)
        if not arguments.dev:
            corrector.seconds.clear()
            _tell_clean(corrector, list(clean_sentences(CLEAN)), arguments.verbose)
    print(hardware(), versions("harper-py", "symspellpy", "xllamacpp"))


class _Corrector:
    """Sends corrections, measures their latency, and checks that the edits yield the content."""

    def __init__(self, client: httpx.Client, server: ChatServer, tone: str | None) -> None:
        self.seconds: list[float] = []
        self.models: set[str] = set()
        self._client = client
        self._server = server
        self._style = {"style": {"tone": tone}} if tone else {}

    def correct(self, text: str) -> str:
        body = {"text": text, "stream": False, "save_chat": False, **self._style}
        began = time.perf_counter()
        response = self._client.post(
            f"{self._server.url}/v1/chat/completions", json=body, headers=self._server.headers
        )
        self.seconds.append(time.perf_counter() - began)
        answer: dict[str, Any] = response.raise_for_status().json()
        self.models.add(answer["model"])
        content: str = answer["choices"][0]["message"]["content"]
        edits = [
            Edit(edit["start"], edit["end"], edit["replacement"], edit["kind"])
            for edit in answer["correction"]["edits"]
        ]
        assert apply_edits(text, edits) == content, text
        return content

    def times(self) -> str:
        ninety = quantiles(self.seconds, n=10)[-1]
        return f"p50 {median(self.seconds) * 1000:.0f} ms, p90 {ninety * 1000:.0f} ms"


def _tell_faulty(corrector: _Corrector, faulty: Sequence[dict[str, Any]], verbose: bool) -> None:
    corrector.seconds.clear()
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
def _served(ask: bool) -> Iterator[ChatServer]:
    engine, info = load_model(CHAT, MODEL, WeightStore(weights_dir()))
    with tempfile.TemporaryDirectory(prefix="antiphon-bench-") as folder:
        # A model that the configuration does not name corrects every text.
        shown = dataclasses.replace(info, id="svc/asked") if ask else info
        with serve_chat(Path(folder), engine, shown) as server:
            yield server


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dev", action="store_true", help="the sentences to tune on")
    parser.add_argument("--ask", action="store_true", help="ask the language model as well")
    parser.add_argument("--first", type=int, help="number of faulty sentences; all by default")
    parser.add_argument("--tone", help="tone of the corrections")
    parser.add_argument("--verbose", action="store_true", help="print unexpected results")
    return parser.parse_args()


if __name__ == "__main__":
    main()
