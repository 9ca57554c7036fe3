"""Fetches weights: python -m models.weights [fetch] [artefact …]"""

import argparse
import sys
from contextlib import closing
from typing import get_args

from configs.environment import SettingsError, program_name
from configs.schema.catalogue import Profile
from configs.settings import watermark_of, weights_dir
from models.errors import EngineError
from models.weights.fetch import FetchProgress, discard_corrupt, fetch, missing
from models.weights.store import WeightStore
from telemetry.logs import redact

WATERMARK = "perth"  # fetched unless the setting WATERMARK is off


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog=program_name("models.weights"), description=__doc__)
    parser.add_argument("command", nargs="?", default="fetch", choices=["fetch"])
    parser.add_argument("names", nargs="*", help="artefacts; by default those of the profile")
    parser.add_argument("--profile", choices=get_args(Profile), default="cpu")
    parser.add_argument("--all", action="store_true", help="include optional artefacts")
    parser.add_argument("--repair", action="store_true", help="reread files that did not change")
    options = parser.parse_args(arguments)
    try:
        store = WeightStore(weights_dir())
        asked_for = () if watermark_of() == "off" else (WATERMARK,)
        names = options.names or [
            name
            for name, artefact in store.catalogue.artefacts.items()
            if artefact.needed_by(options.profile) or options.all or name in asked_for
        ]
        _fetch(store, names, repair=options.repair)
    except (EngineError, OSError, SettingsError) as error:
        print(f"error: {redact(str(error))}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped; the next run continues from here", file=sys.stderr)
        return 130
    return 0


def _fetch(store: WeightStore, names: list[str], *, repair: bool) -> None:
    for name, file in discard_corrupt(store, names, reread=repair):
        print(
            f"{file!r} of {name!r} is corrupt or was never checked; it is stored again",
            file=sys.stderr,
        )
    absent = missing(store, names)
    if not absent:
        return
    size_bytes = sum(store.artefact(name).size_bytes for name in absent)
    with closing(FetchProgress(size_bytes)) as progress:
        fetch(store, absent, progress)


if __name__ == "__main__":
    sys.exit(main())
