"""Fetches weights of the operator's choice: of the model hub, an address or a path of this machine.

A revision is pinned by its commit, and each file by its SHA-256. When all is in the cache, the
artefact is added to the operator's own catalogue, and a model of a known form gets a configuration.
"""

import re
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

from pydantic import ValidationError

from configs.load import explain
from configs.schema.catalogue import (
    Artefact,
    Catalogue,
    FileSource,
    HubSource,
    Source,
    UrlSource,
    WeightFile,
)
from models.errors import WeightsCorrupt, WeightsMissing
from models.weights.cleaning import delete, leftovers
from models.weights.configurations import Gender, ModelFacts, form_of, model_yaml, some
from models.weights.fetch import FetchProgress, complete, only_run
from models.weights.sources import Downloads, SourceFailed, declared_bytes, hub_model, pinned_file
from models.weights.store import (
    WeightStore,
    load_own_catalogue,
    own_model,
    write_own_catalogue,
    write_whole,
)

# Files of data. Pickles, which run code when they are loaded, and code itself are not.
DATA = {".gguf", ".safetensors", ".onnx", ".onnx_data", ".json", ".txt", ".jinja", ".model"}
WEIGHTS = (".gguf", ".safetensors", ".onnx")
_PICKLE = re.compile(rb"\x80[\x02-\x05]|PK\x03\x04")  # of Python, of PyTorch
_GGUF_PART = re.compile(r"-\d{5}-of-\d{5}\.gguf$")


@dataclass(frozen=True)
class PullOptions:
    """What the operator says of the weights."""

    name: str | None = None  # in the catalogue
    include: tuple[str, ...] = ()  # patterns of paths
    licence: str | None = None
    accept_licence: bool = False  # also where none is stated
    sha256: str | None = None  # of the file at an address
    languages: tuple[str, ...] = ()
    gender: Gender | None = None  # of a voice


@dataclass(frozen=True)
class Origin:
    """Where the files are."""

    title: str
    homepage: str
    paths: Collection[str]
    source: Callable[[dict[str, str]], Source]  # of paths, by the names that the files get
    pin: Callable[[str, Source, str], WeightFile]  # of a path, the source and the file's name
    facts: ModelFacts
    licence: str | None = None


@dataclass(frozen=True)
class Pulled:
    """The name in the catalogue, and of a model of a known form its engine and configuration."""

    name: str
    engine: str | None
    configuration: Path


def pull(root: Path, reference: str, options: PullOptions, say: Callable[[str], None]) -> Pulled:
    """Fetches what `hf:owner/name@REVISION`, an address or a path names into the cache at `root`.

    Until all files are there and right, only parts of downloads are kept, from which the next pull
    continues. Raises ValueError, WeightsMissing, WeightsCorrupt or OSError.
    """
    progress = FetchProgress()
    try:
        with only_run(root, progress.waiting) as folder:
            store = WeightStore(root)
            origin = _origin(reference, options, Downloads(folder, progress.downloading))
            engine, paths = choose(origin.paths, options.include)
            name = _free_name(store, origin, options, engine, paths)
            if engine == "vits" and options.gender is None:
                raise ValueError("say whether the voice is female or male: --gender")
            artefact = _pinned(origin, options, paths)
            size = f"{len(paths)} files, {artefact.size_bytes / 2**20:,.1f} MiB"
            say(f"{origin.title}: {size}, licence {artefact.licence}")
            progress.expect(artefact.size_bytes)
            known = store.catalogue.artefacts
            whole = WeightStore(root, Catalogue(artefacts={**known, name: artefact}))
            complete(whole, [name], folder, progress)
            facts, made = origin.facts, whole.folder(name)
            languages = options.languages or facts.languages * (engine != "vits")
            facts = replace(facts, languages=languages, gender=options.gender)
            try:
                for one in paths:
                    check_is_data(made / one)
                if engine is not None:
                    text = model_yaml(engine, name, facts, made)
                    if not own_model(name).exists():  # of an earlier pull, perhaps edited
                        write_whole(own_model(name), text.encode())
            except (ValueError, WeightsCorrupt):
                delete(leftovers(store) - leftovers(whole))
                raise
            write_own_catalogue({**load_own_catalogue().artefacts, name: artefact})
            return Pulled(name, engine, own_model(name))
    except SourceFailed as failure:
        raise WeightsMissing(str(failure)) from None
    finally:
        progress.close()


def choose(known: Collection[str], include: Collection[str]) -> tuple[str | None, dict[str, str]]:
    """The engine of the model, if its form is known, and the paths of its files by their names in
    the cache: of those that match the patterns, else of all files of data. Raises ValueError."""
    from huggingface_hub.utils import filter_repo_objects

    chosen = list(filter_repo_objects(known, allow_patterns=list(include) or None))
    engine, paths = form_of(chosen, known)
    if engine is None:
        paths = {path: path for path in chosen if PurePosixPath(path).suffix in DATA}
        left = set(chosen) - set(paths)
        if (include and left) or not any(path.endswith(WEIGHTS) for path in paths):
            raise ValueError(
                f"no safetensors, GGUF or ONNX is among {some(left or known) or 'no files'}; pickles"
                " and programs (.bin, .pt, .py …) can run code when they are loaded"
            )
    for name, path in paths.items():
        if ".." in path.split("/") or path.startswith("/") or not path.isprintable():
            raise ValueError(f"{ascii(path[:200])} is not inside its folder")
        if not re.fullmatch(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)*", name, re.ASCII):
            raise ValueError(f"{ascii(name[:200])} cannot be the name of a file of weights")
        if _GGUF_PART.search(path):
            raise ValueError(f"{path} is a part: `llama-gguf-split --merge` joins them")
    return engine, paths


def _origin(reference: str, options: PullOptions, downloads: Downloads) -> Origin:
    if reference.startswith("hf:"):
        return _from_hub(reference.removeprefix("hf:"), downloads)
    if reference.startswith(("https://", "http://")):
        return _from_url(reference, options)
    path = Path(reference).expanduser().absolute()
    if path.exists():
        return _from_path(path)
    raise ValueError(
        f"{reference!r} is no entry of the catalogue, hf:owner/name@REVISION, address or path"
    )


def _from_hub(reference: str, downloads: Downloads) -> Origin:
    repo, _, revision = reference.partition("@")
    found = hub_model(repo, revision or "main")
    if not re.fullmatch(r"[0-9a-f]{40}", commit := str(found.sha)):
        raise ValueError(f"the hub names no commit of {repo!r}")
    card = found.card_data.to_dict() if found.card_data else {}
    licence, spoken = card.get("license"), card.get("language") or ()
    if licence == "other":
        licence = card.get("license_name") or card.get("license_link")
    listed = {one.rfilename: one for one in found.siblings or ()}

    def pin(path: str, source: Source, name: str) -> WeightFile:
        one = listed[path]
        if one.lfs is not None:
            return WeightFile(size_bytes=one.lfs.size, sha256=one.lfs.sha256)
        file = WeightFile(size_bytes=one.size or 0, git_object=one.blob_id)
        return downloads.pin(source, name, file)

    return Origin(
        title=f"{repo} at {commit}",
        homepage=f"https://huggingface.co/{repo}",
        paths=listed,
        source=lambda paths: HubSource(kind="hub", repo=repo, revision=commit, files=paths),
        pin=pin,
        # Some repository's text, for a terminal.
        licence=re.sub(r"[^ -~]", "", licence)[:200] if isinstance(licence, str) else None,
        facts=ModelFacts(
            title=repo.rpartition("/")[2],
            owner=repo.partition("/")[0],
            created=int(found.created_at.timestamp() if found.created_at else time.time()),
            languages=tuple([spoken] if isinstance(spoken, str) else map(str, spoken)),
        ),
    )


def _from_url(url: str, options: PullOptions) -> Origin:
    if options.sha256 is None:
        raise ValueError("an address needs the SHA-256 of its file: --sha256")
    name = PurePosixPath(urlsplit(url).path).name
    file = WeightFile(size_bytes=declared_bytes(url), sha256=options.sha256.lower())
    return Origin(
        title=name,
        homepage=url,
        paths=[name],
        source=lambda paths: UrlSource(kind="url", files=dict.fromkeys(paths, url)),
        pin=lambda path, source, name: file,
        facts=ModelFacts(PurePosixPath(name).stem, "own", int(time.time())),
    )


def _from_path(path: Path) -> Origin:
    """A file, with the description of a voice beside it, or a folder without links: those of
    a folder from elsewhere could name any file of this machine."""
    if path.is_file():
        beside = path.with_name(f"{path.name}.json")
        files = {one.name: one for one in (path, beside) if one.is_file()}
    else:
        inside = {one.relative_to(path).as_posix(): one for one in sorted(path.rglob("*"))}
        files = {
            name: one
            for name, one in inside.items()
            if not f"/{name}".count("/.") and (one.is_symlink() or not one.is_dir())
        }
        if wrong := [name for name, one in files.items() if one.is_symlink() or not one.is_file()]:
            raise ValueError(f"links and devices are not followed: {some(wrong)} in {path}")
    return Origin(
        title=str(path),
        homepage=path.as_uri(),
        paths=files,
        source=lambda paths: FileSource(
            kind="file", files={name: str(files[one]) for name, one in paths.items()}
        ),
        pin=lambda one, source, name: pinned_file(files[one]),
        facts=ModelFacts(
            path.stem if path.is_file() else path.name, "own", int(path.stat().st_mtime)
        ),
    )


def _free_name(
    store: WeightStore,
    origin: Origin,
    options: PullOptions,
    engine: str | None,
    paths: dict[str, str],
) -> str:
    """The name in the catalogue; that of an earlier pull from the same place can be used again."""
    title = origin.facts.title
    if engine in ("llama_cpp", "vits"):  # a repository may have many
        title = PurePosixPath(next(iter(paths.values()))).stem
    name = options.name or re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
    if not re.fullmatch(r"[a-z0-9-]+", name):
        raise ValueError(f"--name is {name!r}, and has to be of a-z, 0-9 and -")
    if (other := store.catalogue.artefacts.get(name)) is None:
        return name
    if name not in load_own_catalogue().artefacts:
        raise ValueError(f"{name!r} is an entry of configs/catalogue.yaml: choose another --name")
    if other.sources != (origin.source(paths),):
        raise ValueError(f"{name!r} is something else: choose another --name, or remove it first")
    return name


def _pinned(origin: Origin, options: PullOptions, paths: dict[str, str]) -> Artefact:
    licence = options.licence or origin.licence
    if not licence and not options.accept_licence:
        raise ValueError(
            f"{origin.title} states no licence: give it by --licence, or take it without one by"
            " --accept-licence"
        )
    source, files = origin.source(paths), {}
    for name, path in paths.items():
        try:
            files[name] = origin.pin(path, source, name)
        except ValidationError as error:  # of its size or digest
            raise ValueError(f"{path}: {explain(error)}") from None
    return Artefact(
        description=origin.title,
        licence=licence or "unknown",
        homepage=origin.homepage,
        required=False,
        files=files,
        sources=(source,),
    )


def check_is_data(path: Path) -> None:
    """Raises WeightsCorrupt when the first bytes are of a pickle, or not of the format."""
    with path.open("rb") as stream:
        head = stream.read(9)
    wrong = {".gguf": head[:4] != b"GGUF", ".safetensors": head[8:] != b"{"}
    if wrong.get(path.suffix, _PICKLE.match(head) is not None):
        raise WeightsCorrupt(f"{path.name!r} is no {path.suffix[1:]} file, and may be a pickle")
