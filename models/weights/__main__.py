"""Fetches weights: python -m models.weights [fetch] [artefact …]"""

import sys
from collections.abc import Collection
from contextlib import closing
from typing import get_args

import click

from configs.environment import SettingsError
from configs.schema.catalogue import Profile
from configs.settings import watermark_of, weights_dir
from models.errors import EngineError, WeightsUnavailable
from models.weights.fetch import FetchProgress, discard_corrupt, fetch, missing
from models.weights.store import WeightStore
from telemetry.logs import redact

WATERMARK = "perth"  # fetched unless the setting WATERMARK is off


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("command", type=click.Choice(["fetch"]), default="fetch")
@click.argument("names", nargs=-1)
@click.option(
    "--profile",
    type=click.Choice(get_args(Profile)),
    default="cpu",
    help="Profile whose weights are fetched unless NAMES are given. Default: cpu.",
)
@click.option("--all", "with_optional", is_flag=True, help="Include optional artefacts.")
@click.option("--repair", is_flag=True, help="Check every byte, also of files that seem unchanged.")
def main(
    command: str, names: tuple[str, ...], profile: Profile, with_optional: bool, repair: bool
) -> None:
    """Fetch the weights of a profile, or the artefacts NAMES."""
    sys.exit(fetch_weights(names, profile=profile, with_optional=with_optional, repair=repair))


def fetch_weights(
    names: Collection[str] = (),
    *,
    profile: Profile = "cpu",
    with_optional: bool = False,
    repair: bool = False,
) -> int:
    """Fetch artefacts, by default those of the profile, and print what fails. Gated artefacts are
    optional unless `names` has them. Returns the exit status: 1 after a failure, 130 if stopped."""
    try:
        store = WeightStore(weights_dir())
        asked_for = () if watermark_of() == "off" else (WATERMARK,)
        wanted = names or [
            name
            for name, artefact in store.catalogue.artefacts.items()
            if artefact.needed_by(profile) or with_optional or name in asked_for
        ]
        gated = [] if names else [name for name in wanted if store.artefact(name).gated is not None]
        _fetch(store, [name for name in wanted if name not in gated], repair=repair)
        for name in gated:
            try:
                _fetch(store, [name], repair=repair)
            except WeightsUnavailable as error:
                print(f"NOTE: {redact(' '.join(str(error).split()))}", file=sys.stderr)
    except (EngineError, OSError, SettingsError) as error:
        print(f"error: {redact(str(error))}", file=sys.stderr)
        if isinstance(error, WeightsUnavailable):
            print(
                "Weights cannot be fetched: check the network, and HTTPS_PROXY behind a proxy;"
                " the next run continues from here",
                file=sys.stderr,
            )
        return 1
    except KeyboardInterrupt:
        print("stopped; the next run continues from here", file=sys.stderr)
        return 130
    return 0


def _fetch(store: WeightStore, names: Collection[str], *, repair: bool) -> None:
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
    main()
