"""The load generator wrk (a package of Debian): `GET` requests whose keys are used in turn."""

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

ROTATE = """
local requests, turn = {}, 0
function init()
  for _, key in ipairs({%s}) do
    table.insert(requests, wrk.format("GET", nil, {Authorization = "Bearer " .. key}))
  end
end
function request()
  turn = turn %% #requests + 1
  return requests[turn]
end
"""
UNITS_MS = {"us": 0.001, "ms": 1.0, "s": 1000.0}


@dataclass(frozen=True, slots=True)
class Load:
    """What wrk has measured."""

    requests_per_s: float
    p50_ms: float
    p99_ms: float


@contextmanager
def wrk(
    url: str, keys: Sequence[str], *, connections: int, seconds: int
) -> Iterator[subprocess.Popen[str]]:
    """Run wrk with one thread until the block ends; `load_of` reads what it printed."""
    if shutil.which("wrk") is None:
        sys.exit("wrk is not installed; on Debian: apt-get install wrk")
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(ROTATE % ", ".join(f'"{key}"' for key in keys or ["none"]))
        script.flush()
        command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency"]
        command += ["-s", script.name, url]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            yield process


def load_of(process: subprocess.Popen[str]) -> Load:
    """Wait until wrk ends, and return what it measured. Exits if an answer was not 2xx."""
    text, _ = process.communicate()
    rate = re.search(r"Requests/sec:\s+([\d.]+)", text)
    if rate is None or "Non-2xx" in text:
        sys.exit(text)
    return Load(float(rate[1]), _percentile_ms(text, 50), _percentile_ms(text, 99))


def _percentile_ms(text: str, percent: int) -> float:
    line = re.search(rf"^\s+{percent}%\s+([\d.]+)(us|ms|s)$", text, re.MULTILINE)
    assert line is not None, text
    return float(line[1]) * UNITS_MS[line[2]]
