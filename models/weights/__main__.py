"""Fetches, verifies or lists weights: python -m models.weights [fetch|verify|list] [artefact …]"""

import argparse
import sys
from typing import get_args

from tqdm import tqdm

from configs.environment import SettingsError, program_name
from configs.schema.catalogue import Profile
from configs.settings import watermark_of, weights_dir
from models.errors import EngineError
from models.weights.fetch import discard_corrupt, fetch, missing
from models.weights.store import WeightStore

WATERMARK = "perth"  # fetched unless the setting WATERMARK is off


class TerminalProgress:
    """A progress bar on a terminal, else one line per artefact."""

    def __init__(self, total_bytes: int) -> None:
        self._bar = tqdm(
            total=total_bytes,
            unit="B",
            unit_scale=True,
            unit_divisor=1024,
            desc="weights",
            disable=not sys.stderr.isatty(),
        )
        self._total_bytes = total_bytes
        self._shown_bytes = 0
        self._stored_bytes = 0
        self._got_bytes: dict[str, int] = {}  # by download, since the last stored file

    def waiting(self) -> None:
        self._say("waiting for another run that is filling the cache")

    def downloading(self, name: str, got_bytes: int) -> None:
        self._got_bytes[name] = got_bytes
        self._bar.set_postfix_str(f"{name} {got_bytes / 2**20:.1f} MiB", refresh=False)
        self._advance(self._stored_bytes + sum(self._got_bytes.values()))

    def stored(self, artefact: str, file: str, size_bytes: int) -> None:
        self._stored_bytes += size_bytes
        self._got_bytes.clear()
        self._advance(self._stored_bytes)

    def completed(self, artefact: str) -> None:
        if self._bar.disable:
            done = f"{self._stored_bytes / 2**20:.0f} MiB of {self._total_bytes / 2**20:.0f}"
            self._say(f"stored {artefact} ({done})")

    def _advance(self, to_bytes: int) -> None:
        # Archives are shorter than their content, and the bar must not move backwards.
        shown = max(self._shown_bytes, min(to_bytes, self._total_bytes))
        self._bar.update(shown - self._shown_bytes)
        self._shown_bytes = shown

    def close(self) -> None:
        self._bar.close()

    def _say(self, line: str) -> None:
        tqdm.write(line, file=sys.stderr)


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
    progress = TerminalProgress(sum(store.artefact(name).size_bytes for name in absent))
    try:
        fetch(store, absent, progress)
    finally:
        progress.close()


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
