"""Fuzzes parsers: `python -m tests.hostile.fuzz SECONDS [NAME ...]`, each for SECONDS.

With atheris the inputs are guided by coverage, and those that reach new code are kept in
`var/fuzz/NAME` for the next run. Without it Hypothesis changes the seeds. An input that fails is
written to `crashes/NAME`, where the tests run it again. Exit status 1 when one failed.
"""

import hashlib
import subprocess
import sys
import time
from pathlib import Path

from hypothesis import HealthCheck, given, settings

from configs.settings import PROJECT_DIR

INSTRUMENTED = ["api", "deployments.gateway", "models", "pipelines", "python_multipart", "uvicorn"]

try:
    import atheris
except ImportError:
    atheris = None

if atheris is None:
    from tests.hostile.fuzz.mutations import mutated
    from tests.hostile.fuzz.parsers import PARSERS, seeds
else:
    with atheris.instrument_imports(include=INSTRUMENTED):
        from tests.hostile.fuzz.parsers import PARSERS, seeds

CRASHES = Path(__file__).parent / "crashes"
FOUND = PROJECT_DIR / "var" / "fuzz"
TIMEOUT_S = 30  # for one input; a parser that takes longer has failed
MOST_BYTES = 4096  # of an input
MEMORY_MIB = 4096


def fuzz_by_coverage(name: str, seconds: int) -> None:
    """Ends this process, with status 0 when nothing failed."""
    corpus, crashes = FOUND / name, CRASHES / name
    corpus.mkdir(parents=True, exist_ok=True)
    crashes.mkdir(parents=True, exist_ok=True)
    for seed in seeds(name):
        (corpus / f"seed-{hashlib.sha256(seed).hexdigest()[:16]}").write_bytes(seed)
    options = [
        f"-max_total_time={seconds}",
        f"-max_len={MOST_BYTES}",
        f"-timeout={TIMEOUT_S}",
        f"-rss_limit_mb={MEMORY_MIB}",
        f"-artifact_prefix={crashes}/",
        "-print_final_stats=1",
        "-reload=0",
    ]
    atheris.Setup([sys.argv[0], *options, str(corpus)], PARSERS[name])
    atheris.Fuzz()


def fuzz_by_mutation(name: str, seconds: int) -> None:
    """Raises what the parser raised, for the smallest such input."""
    until, last = time.monotonic() + seconds, b""

    @settings(
        max_examples=1000, deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(mutated(seeds(name)))
    def run(data: bytes) -> None:
        nonlocal last
        last = data
        PARSERS[name](data)

    while time.monotonic() < until:
        try:
            run()
        except BaseException:
            folder = CRASHES / name
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"crash-{hashlib.sha256(last).hexdigest()[:16]}").write_bytes(last)
            raise


def main() -> None:
    seconds, names = int(sys.argv[1]), sys.argv[2:] or list(PARSERS)
    if len(names) == 1:
        (fuzz_by_mutation if atheris is None else fuzz_by_coverage)(names[0], seconds)
        return
    command = [sys.executable, "-m", "tests.hostile.fuzz", str(seconds)]
    failed = [name for name in names if subprocess.run([*command, name]).returncode != 0]
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
