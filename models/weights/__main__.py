"""Fetches, verifies or lists weights: python -m models.weights [fetch|verify|list] [artefact …]"""

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

WATERMARK = "perth"  # fetched unless the setting WATERMARK is off


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog=program_name("models.weights"), description=__doc__)
    parser.add_argument("command", nargs="?", default="fetch", choices=["fetch", "verify", "list"])
    parser.add_argument("names", nargs="*", help="artefacts; by default those of the profile")
    parser.add_argument("--profile", choices=get_args(Profile), default="cpu")
    parser.add_argument("--all", action="store_true", help="include optional artefacts")
    parser.add_argument("--repair", action="store_true", help="reread files that did not change")
    options = parser.parse_args(arguments)
    store = WeightStore(weights_dir())
    try:
        asked_for = () if watermark_of() == "off" else (WATERMARK,)
    except SettingsError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    names = options.names or [
        name
        for name, artefact in store.catalogue.artefacts.items()
        if artefact.needed_by(options.profile) or options.all or name in asked_for
    ]
    try:
        if options.command == "list":
            _list(store)
        elif options.command == "verify":
            for name in names:
                print(f"{name}: every byte as expected, in {store.verify(name)}")
        else:
            _fetch(store, names, repair=options.repair)
    except (EngineError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
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


def _list(store: WeightStore) -> None:
    absent = set(missing(store, store.catalogue.artefacts))
    for name, artefact in store.catalogue.artefacts.items():
        here = "missing" if name in absent else "here"
        need = "required" if artefact.required else "optional"
        need = "gpu" if artefact.required_on_gpu and not artefact.required else need
        size = f"{artefact.size_bytes / 2**20:.0f} MiB" if artefact.size_bytes else "? MiB"
        print(
            f"{name:18} {here:8} {need:9} {size:>8}  {artefact.licence:11} {artefact.description}"
        )


if __name__ == "__main__":
    sys.exit(main())
