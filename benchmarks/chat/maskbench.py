"""MaskBench: the JSON schemas that structured output takes, and whether it takes their instances.

    git clone https://github.com/guidance-ai/jsonschemabench
    python -m benchmarks.chat.maskbench jsonschemabench/maskbench/data
    python -m benchmarks.chat.maskbench jsonschemabench/maskbench/data --half held-out --wide

No language model runs. A schema passes when it compiles, each of its valid instances is a text of
its grammar, and none of its invalid ones is. Halves are drawn by a hash of the file's name: one to
develop with, and one that is looked at only to report. Times are CPU times for compiling a
grammar and writing it for the engine.
"""

import argparse
import json
import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from models.llm.base import GenerationRequest
from models.llm.structured_output.answer import answer_grammar
from models.llm.structured_output.ast import SchemaError, SchemaTooLarge, WorkBudget
from models.llm.structured_output.json_schema import NARROW, WIDE, Bounds
from models.llm.structured_output.llguidance import TextMatcher, to_llguidance
from models.llm.structured_output.notations import to_gbnf
from models.llm.structured_output.parser_state import ParserState

Accepts = Callable[[str], bool]
MOST_REASONS = 25
KINDS = ("pass", "refused", "rejects a valid", "accepts an invalid")


def main() -> None:
    arguments = _arguments()
    bounds = WIDE if arguments.wide else NARROW
    kinds: dict[str, Counter[str]] = defaultdict(Counter)
    reasons: dict[str, Counter[str]] = defaultdict(Counter)
    times: list[float] = []
    for file in _files(arguments.data, arguments.half):
        case = json.loads(file.read_text())
        began = time.thread_time()
        accepts, compiler, reason = _compiled(case["schema"], bounds)
        times.append(time.thread_time() - began)
        kind = "refused"
        if accepts is not None:
            kind, reason = _kind(case["tests"], accepts)
        kinds[_source(file)][kind] += 1
        kinds["all"][kind] += 1
        kinds[f"by {compiler}"][kind] += 1
        reasons[kind][_shape(reason)] += 1
    _report(kinds, reasons, times)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="MaskBench's folder of schemas with instances")
    parser.add_argument("--half", choices=("development", "held-out", "all"), default="development")
    parser.add_argument("--wide", action="store_true", help="with the bounds of the GPU profile")
    return parser.parse_args()


def _files(folder: Path, half: str) -> Iterator[Path]:
    for file in sorted(folder.glob("*.json")):
        digest = int.from_bytes(sha256(file.name.encode()).digest()[:4])
        if half == "all" or (digest % 2 == 0) == (half == "development"):
            yield file


def _source(file: Path) -> str:
    return re.split(r"---|_\w*\d+\.json", file.name)[0]


def _compiled(schema: Any, bounds: Bounds) -> tuple[Accepts | None, str, str]:
    """A function that tells whether a text obeys the schema (None if the schema is refused), the
    compiler, and the reason for the refusal."""
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    request = GenerationRequest((), response_format=wanted)
    try:
        grammar = answer_grammar(request, bounds, WorkBudget())
        assert grammar is not None
        to_gbnf(grammar)
    except SchemaError as error:
        ours = str(error).partition(": ")[2]
        if isinstance(error, SchemaTooLarge):
            return None, "ours", ours
    else:
        state = ParserState.start(grammar)
        return lambda text: not state.advance(text).min_bytes, "ours", ""
    try:
        return _by_llguidance(request), "llguidance", ""
    except SchemaError as error:
        theirs = str(error).partition("failed to compile JSON schema: ")[2]
        return None, "llguidance", f"{ours}; {theirs}"


def _by_llguidance(request: GenerationRequest) -> Accepts:
    import xllamacpp

    library = xllamacpp.xllamacpp.__file__
    grammar = to_llguidance(request)
    TextMatcher(library, grammar)

    def accepts(text: str) -> bool:
        matcher = TextMatcher(library, grammar)
        return matcher.feed(text) and matcher.is_complete

    return accepts


def _kind(tests: list[dict[str, Any]], accepts: Accepts) -> tuple[str, str]:
    for valid, kind in ((False, "accepts an invalid"), (True, "rejects a valid")):
        for test in tests:
            text = json.dumps(test["data"], ensure_ascii=False)
            if test["valid"] is valid and accepts(text) is not valid:
                return kind, text[:200]
    return "pass", ""


def _shape(reason: str) -> str:
    """A reason without the names and numbers of its schema."""
    return re.sub(r"'[^']*'|\"[^\"]*\"|\d+", "*", reason)[:110]


def _report(
    kinds: dict[str, Counter[str]], reasons: dict[str, Counter[str]], times: list[float]
) -> None:
    print(f"{'':16}{'schemas':>9}" + "".join(f"{kind:>20}" for kind in KINDS))
    for source, counts in sorted(kinds.items(), key=lambda item: item[0] == "all"):
        shares = (f"{counts[kind]} ({100 * counts[kind] / counts.total():.1f} %)" for kind in KINDS)
        print(f"{source:16}{counts.total():9}" + "".join(f"{share:>20}" for share in shares))
    p50, p99 = np.percentile(times, (50, 99)) * 1000
    print(f"compile: p50 {p50:.1f} ms, p99 {p99:.1f} ms, most {max(times) * 1000:.0f} ms")
    for reason, number in reasons["refused"].most_common(MOST_REASONS):
        print(f"{number:6} {reason}")


if __name__ == "__main__":
    main()
