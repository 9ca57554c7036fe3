"""What one core and one replica of each model carry: the figures of docs/sizing.md.

    python -m benchmarks.capacity                 every part, half an hour on two cores
    python -m benchmarks.capacity ledger models   these
    python -m benchmarks.capacity.simulation      machines for 100 to 1,000,000 sessions, from them

Each part replaces its figures in benchmarks/capacity/measured.json.
"""

import json
import time
from importlib import import_module

from benchmarks.capacity.figures import rounded, write
from benchmarks.harness.report import begin, parser

PARTS = ("models", "sessions", "sockets", "gateways", "ledger", "outbox")


def main() -> None:
    options = parser(__doc__)
    options.add_argument("parts", nargs="*", choices=[*PARTS, []], metavar="PART", help=str(PARTS))
    options.add_argument("--dry", action="store_true", help="print, and write nothing")
    arguments = begin(options)
    for part in arguments.parts or PARTS:
        began = time.monotonic()
        figures = rounded(import_module(f"benchmarks.capacity.{part}").measure())
        print(f"{part}, {time.monotonic() - began:.0f} s:", json.dumps(figures, indent=1))
        if not arguments.dry:
            write(part, figures)
