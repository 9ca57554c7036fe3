"""`antiphon models`: the models of a service, and for operators the weights of this machine."""

import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

import click

from antiphon.cli.models import show_models
from antiphon.cli.service import CommandGroup, ServiceClient, pass_service
from configs.load import CONFIGS_DIR, explain, load_yaml
from configs.schema.catalogue import Catalogue
from configs.schema.serve import ModelUserConfig
from configs.settings import load_settings_of_service, own_catalogue, weights_dir
from models.errors import EngineError
from models.weights.__main__ import fetch_weights
from models.weights.cleaning import delete, leftovers, size_bytes
from models.weights.configurations import FORMS, Gender
from models.weights.fetch import missing, only_run
from models.weights.mirror import fill_mirror
from models.weights.pull import PullOptions, pull
from models.weights.store import WeightStore, load_own_catalogue, own_model, write_own_catalogue
from telemetry.logs import redact

CONFIG = click.option(
    "--config",
    type=click.Path(path_type=Path),
    default=(CONFIGS_DIR / "serve_config.yaml").resolve(),
    help="Configuration of the service. Default: serve_config.yaml.",
)
DASHBOARD = click.option("--dashboard", help="URL of Ray's dashboard. Default: from settings.")


@click.group(cls=CommandGroup)
def models() -> None:
    """List the models of a service; for operators: manage the weights of this machine."""


@models.command("list")
@click.option("--local", is_flag=True, help="Operators: list the weights of this machine.")
@CONFIG
@DASHBOARD
@pass_service
def list_models(service: ServiceClient, local: bool, config: Path, dashboard: str | None) -> None:
    """List the models of the service with their status.

    \b
    antiphon models list
    """
    if not local:
        show_models(service)
        return
    with failures():
        weights = local_weights(config, dashboard)
    rows = []
    for entry in weights:
        state = "verified" if entry["verified"] else "fetched" if entry["fetched"] else "missing"
        on_disk, used = f"{entry['disk_bytes'] / 2**20:,.0f} MiB", ", ".join(entry["used_by"])
        about = (entry["id"], entry["kind"] or "", entry["licence"])
        rows.append((*about, on_disk, state, entry["need"], used))
    service.show_rows({"data": weights}, "ID, KIND, LICENCE, ON DISK, STATE, NEED, USED BY", rows)


@models.command("pull")
@click.argument("references", nargs=-1)
@click.option("--name", help="Name in the catalogue. Default: from the model.")
@click.option("--include", multiple=True, help="Pattern of files to download, such as '*Q4_K_M*'.")
@click.option("--licence", help="Licence of the weights. Default: from the model card.")
@click.option("--accept-licence", is_flag=True, help="Accept weights without a stated licence.")
@click.option("--sha256", help="SHA-256 of the file at a URL.")
@click.option("--language", "languages", multiple=True, help="Language of the model, such as en.")
@click.option("--gender", type=click.Choice(get_args(Gender)), help="Gender of a Piper voice.")
def pull_models(references: tuple[str, ...], **options: Any) -> None:
    """Operators: download weights from catalogue entries, repositories, URLs or paths.

    \b
    antiphon models pull whisper-tiny-en
    antiphon models pull hf:Qwen/Qwen2.5-0.5B-Instruct-GGUF@main --include '*q4_k_m.gguf'
    antiphon models pull hf:rhasspy/piper-voices@v1.0.0 --include '*de_DE-eva_k*' --gender female
    antiphon models pull https://example.com/mine.gguf --sha256 … --licence MIT
    antiphon models pull /models/mine.gguf --licence Apache-2.0
    """
    with failures():
        store = WeightStore(weights_dir())
        catalogue = store.catalogue.artefacts
        entries = [reference for reference in dict.fromkeys(references) if reference in catalogue]
        absent = missing(store, entries)
        others = [reference for reference in references if reference not in catalogue]
        if len(others) > 1 and (options["name"] or options["sha256"]):
            raise click.UsageError("--name and --sha256 are for one model")
        if entries or not others:
            if status := fetch_weights(entries):
                sys.exit(status)
        read_by = _configurations() if entries else {}
        for name in entries:
            state = "is stored" if name in absent else "was present already"
            click.echo(f"{name!r} {state}; its licence is {catalogue[name].licence}")
            if using := sorted(read_by.get(name, ())):
                click.echo(f"configurations that use it: {', '.join(using)}")
        for reference in others:
            name, engine = pull(weights_dir(), reference, PullOptions(**options), click.echo)
            click.echo(f"{name!r} is in {own_catalogue()}")
            if engine is not None:
                click.echo(
                    f"To run it, give {FORMS[engine][1]} in serve_config.yaml\n"
                    f"    user_config: {{model: {own_model(name)}}}\n"
                    "and run: antiphon deploy --check serve_config.yaml"
                )


@models.command("check")
@click.argument("names", nargs=-1)
@DASHBOARD
def check_models(names: tuple[str, ...], dashboard: str | None) -> None:
    """Operators: read every byte of weights (by default all), or check a configuration.

    \b
    antiphon models check piper-joe
    antiphon models check serve_config.yaml
    """
    if any(name.endswith(".yaml") for name in names):
        from deployments.cli.administration import deploy

        options = [f"--dashboard={dashboard}"] if dashboard else []
        deploy.main(["--check", *options, *names], prog_name="antiphon deploy")
    wrong = False
    with failures():
        store = WeightStore(weights_dir())
        for name in dict.fromkeys(names or _here(store)):
            try:
                click.echo(f"{name}: every byte as expected, in {store.verify(name)}")
            except EngineError as error:
                click.echo(f"{name}: {error}", err=True)
                wrong = True
    sys.exit(int(wrong))


@models.command("remove")
@click.argument("names", nargs=-1)
@click.option("--unused", is_flag=True, help="Remove broken files and those in no catalogue.")
@click.option("--force", is_flag=True, help="Also remove weights that are in use.")
@CONFIG
@DASHBOARD
@click.option("--yes", is_flag=True, help="Do not ask.")
def remove_models(
    names: tuple[str, ...],
    unused: bool,
    force: bool,
    config: Path,
    dashboard: str | None,
    yes: bool,
) -> None:
    """Operators: delete weights from this machine. Your own also leave your catalogue.

    \b
    antiphon models remove whisper-tiny-en
    """
    if bool(names) == unused:
        raise click.UsageError("name weights, or use --unused")
    root = weights_dir()
    with failures():
        store = WeightStore(root)
        needs = {name: ["`make run`"] * store.artefact(name).required for name in names}
        used = {} if unused or force else users(config, dashboard)
        for name, by in needs.items():
            if (by := [*by, *sorted(used.get(name, ()))]) and not force:
                users_of = ", ".join(by)
                raise ValueError(f"{name!r} is needed by {users_of}; --force deletes it anyway")
        if not yes:
            what = ", ".join(names) or "files that no catalogue names"
            mib = sum(map(size_bytes, _only_of(store, names))) / 2**20
            click.confirm(f"Delete {what} ({mib:,.1f} MiB) from this machine?", abort=True)
        with only_run(root, lambda: click.echo("waiting for another run", err=True)):
            gone, own = _only_of(WeightStore(root), names), load_own_catalogue()
            if own.artefacts.keys() & {*names}:
                write_own_catalogue(_without(own, names).artefacts)
                gone |= {path for path in map(own_model, names) if path.exists()}
            freed = delete(gone)
    click.echo(f"{freed / 2**20:,.1f} MiB were freed")


@models.command("mirror")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.argument("names", nargs=-1)
def mirror_models(folder: Path, names: tuple[str, ...]) -> None:
    """Operators: copy weights (by default all) into a folder for ANTIPHON_MIRROR.

    \b
    antiphon models mirror /mnt/weights
    """
    with failures():
        store = WeightStore(weights_dir())
        copied = fill_mirror(store, dict.fromkeys(names or _here(store)), folder)
    click.echo(f"{copied / 2**20:,.1f} MiB were copied to {folder}")


@contextmanager
def failures() -> Iterator[None]:
    """End the program with a sentence if the block fails or is interrupted."""
    try:
        yield
    except (EngineError, OSError, ValueError) as error:
        reason = str(error) if isinstance(error, EngineError) else explain(error)
        raise click.ClickException(redact(reason)) from None
    except KeyboardInterrupt:
        click.echo("stopped; the next run resumes here", err=True)
        sys.exit(130)


def _here(store: WeightStore) -> list[str]:
    absent = set(missing(store, store.catalogue.artefacts))
    return [name for name in store.catalogue.artefacts if name not in absent]


def _only_of(store: WeightStore, names: tuple[str, ...]) -> set[Path]:
    """Return the paths in the cache that only the artefacts `names` need; without names, the paths
    that nothing needs."""
    before = leftovers(store) if names else set()
    return leftovers(WeightStore(store.root, _without(store.catalogue, names))) - before


def _without(catalogue: Catalogue, names: tuple[str, ...]) -> Catalogue:
    kept = {name: artefact for name, artefact in catalogue.artefacts.items() if name not in names}
    return Catalogue(artefacts=kept)


def users(config: Path, dashboard: str | None) -> dict[str, set[str]]:
    """Return the deployments that need each artefact, in the running service or the file. Raises
    ValueError for a configuration that cannot be read."""
    from deployments.cluster import node, serve_api
    from deployments.default_chat.choice import resolved
    from deployments.rollout import serve_config
    from deployments.rollout.check import application_problems
    from deployments.rollout.deploy import models_of
    from models.registry import artefacts_of

    file, running = serve_config.read_config(config), dict[str, Any]()
    if problems := application_problems(file):
        raise ValueError(f"{config}: {'; '.join(problems)}")
    try:
        node.prepare_environment(load_settings_of_service())
        running = serve_api.applications(dashboard or serve_api.dashboard())
    except ValueError as error:
        click.echo(f"only {config} is considered: {error}", err=True)
    wanted = resolved(file, running)
    deployed = {"applications": [app["deployed_app_config"] for app in running.values()]}
    needed_by: dict[str, set[str]] = defaultdict(set)
    for name, (kind, entry) in [*models_of(deployed).items(), *models_of(wanted).items()]:
        chosen = ModelUserConfig.model_validate(entry["user_config"])
        for model in {*chosen.models, *filter(None, [chosen.wanted])}:
            for artefact in artefacts_of(kind.read(model)):
                needed_by[artefact].add(name)
    return needed_by


def local_weights(config: Path, dashboard: str | None) -> list[dict[str, Any]]:
    """Describe each artefact of the catalogue, and its files on this machine."""
    store, used, read_by = WeightStore(weights_dir()), users(config, dashboard), _configurations()
    here, own = set(_here(store)), load_own_catalogue().artefacts
    rows = []
    for name, entry in store.catalogue.artefacts.items():
        files = {file.identity: file for file in store.artefact(name).files.values()}.values()
        disk = sum(file.size_bytes for file in files if store.has(file))
        is_for_gpu = entry.required_on_gpu and name not in used
        needs = {"required": entry.required, "gpu": is_for_gpu, "own": name in own}
        rows.append(
            {
                "id": name,
                "kind": next(iter(read_by.get(name, {}).values()), None),
                "licence": entry.licence,
                "disk_bytes": disk + size_bytes(store.derived(name, "any").parent),
                "fetched": name in here,
                "verified": name in here and all(map(store.was_checked, files)),
                "need": next((need for need, is_so in needs.items() if is_so), "optional"),
                "used_by": sorted(used.get(name, ())),
                "description": entry.description,
            }
        )
    return rows


def _configurations() -> dict[str, dict[str, str]]:
    """Return the configurations whose engines read each artefact, with the kind of each."""
    from models.registry import ENGINES, KINDS, artefacts_of

    readers: dict[str, dict[str, str]] = defaultdict(dict)
    for path in (*CONFIGS_DIR.glob("*/*.yaml"), *own_model("any").parent.glob("*.yaml")):
        engine = load_yaml(dict[str, Any], str(path)).get("engine")
        ours = path.is_relative_to(CONFIGS_DIR)
        name = str(path.relative_to(CONFIGS_DIR).with_suffix("") if ours else path)
        for kind, engines in ENGINES.items():
            if engine in engines:
                for artefact in artefacts_of(KINDS[kind].read(str(path))):
                    readers[artefact][name] = kind
    return readers
