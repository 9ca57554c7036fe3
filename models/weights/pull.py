"""Fetches weights of the operator's choice, from the model hub, an address or a path of this
machine. A revision is pinned by its commit, each file by its SHA-256. When all files are in the
cache, the operator's catalogue gets an entry, and a recognised kind of model a configuration."""

import re
from collections.abc import Callable, Collection
from contextlib import closing
from dataclasses import dataclass
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
from configs.settings import own_catalogue
from models.errors import SourceFailed, WeightsCorrupt, WeightsMissing
from models.weights.cleaning import delete, leftovers
from models.weights.configurations import Gender, form_inside, form_of, model_yaml, some
from models.weights.fetch import FetchProgress, complete, only_run
from models.weights.sources import Downloads, declared_bytes, hub_model, pinned_file
from models.weights.store import (
    WeightStore,
    load_own_catalogue,
    own_model,
    write_own_catalogue,
    write_whole,
)

# Suffixes of data. Pickles, which run code when they are loaded, and code are not data.
DATA = {".gguf", ".safetensors", ".onnx", ".onnx_data", ".json", ".txt", ".jinja", ".model"}
WEIGHTS = (".gguf", ".safetensors", ".onnx")
_PICKLE = re.compile(rb"\x80[\x02-\x05]|PK\x03\x04")  # pickles of Python and of PyTorch
_GGUF_PART = re.compile(r"-\d{5}-of-\d{5}\.gguf$")


@dataclass(frozen=True)
class PullOptions:
    """Options of `antiphon models pull`."""

    name: str | None = None  # name in the catalogue
    include: tuple[str, ...] = ()  # patterns of paths
    licence: str | None = None
    accept_licence: bool = False  # also accepts weights whose licence is not stated
    sha256: str | None = None  # digest of the file at an address
    languages: tuple[str, ...] = ()
    gender: Gender | None = None  # gender of a voice


@dataclass(frozen=True)
class WeightsOrigin:
    """A source of files, and its description of the model."""

    title: str
    homepage: str
    paths: Collection[str]
    describe: Callable[[str], WeightFile]  # takes a path
    source: Callable[[dict[str, str]], Source]  # takes paths by the names that the files get
    description: str = ""
    licence: str | None = None
    owner: str = "own"
    languages: tuple[str, ...] = ()


def pull(
    root: Path, reference: str, options: PullOptions, say: Callable[[str], None]
) -> tuple[str, str | None]:
    """Fetch the model at `hf:owner/name@REVISION`, an address or a path into the cache at `root`.
    Returns its name in the catalogue, and its engine if its kind is recognised: then `own_model`
    has a configuration. Until all files are complete and correct, only the downloads are kept, from
    which the next pull continues. Raises ValueError, WeightsMissing, WeightsCorrupt or OSError."""
    with only_run(root, lambda: say("waiting for another run")) as downloads_folder:
        store = WeightStore(root)
        origin = _origin(reference, options)
        engine, paths = choose(origin.paths, options.include)
        if engine == "vits" and options.gender is None:
            raise ValueError("say whether the voice is female or male: --gender")
        artefact = _describe(origin, paths, options)
        title = origin.title
        if engine in ("llama_cpp", "vits"):  # a repository may have many of them
            title = PurePosixPath(next(iter(paths.values()))).stem
        name = _free_name(store, options.name or title, artefact)
        size = f"{len(paths)} files, {artefact.size_bytes / 2**20:,.1f} MiB"
        say(f"{artefact.description}: {size}, licence {artefact.licence}")
        with closing(FetchProgress(artefact.size_bytes)) as progress:
            downloads = Downloads(downloads_folder, progress.downloading)
            artefact = _pinned(artefact, downloads)
            entries = {**store.catalogue.artefacts, name: artefact}
            extended = WeightStore(root, Catalogue(artefacts=entries))
            complete(extended, [name], downloads_folder, progress)
        for file_name, file in artefact.files.items():
            # If the cache had the file already, `_pinned` has downloaded it again.
            downloads.forget(artefact.sources[0], file_name, file)
        try:
            folder = extended.folder(name)
            for file_name in artefact.files:
                _check_is_data(folder / file_name)
            engine = engine or form_inside(folder)
            if engine is not None:
                _configure(engine, name, folder, origin, options)
        except (ValueError, WeightsCorrupt):
            delete(leftovers(store) - leftovers(extended))
            raise
        write_own_catalogue({**load_own_catalogue().artefacts, name: artefact})
        return name, engine


def choose(known: Collection[str], include: Collection[str]) -> tuple[str | None, dict[str, str]]:
    """Return the engine, if the kind of model is recognised, and the paths of its files by their
    names in the cache: files that match the patterns, or else all data files. Raises ValueError."""
    from huggingface_hub.utils import filter_repo_objects  # type: ignore[attr-defined]  # lazy

    chosen = list(filter_repo_objects(known, allow_patterns=list(include) or None))
    engine, paths = form_of(chosen, known)
    if engine is None:
        paths = {path: path for path in chosen if PurePosixPath(path).suffix in DATA}
        refused = set(chosen) - set(paths)
        if (include and refused) or not any(path.endswith(WEIGHTS) for path in paths):
            raise ValueError(
                f"no safetensors, GGUF or ONNX: {some(refused or known)}. Pickles and programs"
                " (.bin, .pt, .py …) are not taken, since they can run code when they are loaded"
            )
    for name, path in paths.items():
        if ".." in path.split("/") or path.startswith("/") or not path.isprintable():
            raise ValueError(f"{ascii(path[:200])} is not inside its folder")
        if not re.fullmatch(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)*", name, re.ASCII):
            raise ValueError(f"{ascii(name[:200])} cannot be the name of a file of weights")
        if _GGUF_PART.search(path):
            raise ValueError(f"{path} is one part: join the parts by `llama-gguf-split --merge`")
    return engine, paths


def _origin(reference: str, options: PullOptions) -> WeightsOrigin:
    if reference.startswith("hf:"):
        return _hub(reference.removeprefix("hf:"))
    if reference.startswith(("https://", "http://")):
        return _address(reference, options.sha256)
    if (path := Path(reference).expanduser().absolute()).exists():
        return _path(path)
    raise ValueError(
        f"{reference!r} is neither in the catalogue nor hf:owner/name@REVISION, an address or path"
    )


def _hub(reference: str) -> WeightsOrigin:
    repo, _, revision = reference.partition("@")
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", repo):
        raise ValueError(f"hf:{reference} is not hf:owner/name@REVISION")
    model = hub_model(repo, revision or "main")
    listed = {file.path: file for file in model.files}
    card = model.card or {}
    licence = card.get("license")
    if licence == "other":
        licence = card.get("license_name") or card.get("license_link")

    def describe(path: str) -> WeightFile:
        file = listed[path]
        if file.lfs is not None:
            return WeightFile(size_bytes=file.lfs.size, sha256=file.lfs.sha256)
        return WeightFile(size_bytes=file.size, git_object=file.git_object)

    return WeightsOrigin(
        title=repo.rpartition("/")[2],
        description=f"{repo} at {model.commit}",
        homepage=f"https://huggingface.co/{repo}",
        owner=repo.partition("/")[0],
        licence=re.sub(r"[^ -~]", "", licence)[:200] if isinstance(licence, str) else None,
        languages=tuple(re.findall(r"\b[a-z]{2}\b", str(card.get("language")))),
        paths=listed,
        describe=describe,
        source=lambda paths: HubSource(kind="hub", repo=repo, revision=model.commit, files=paths),
    )


def _address(url: str, sha256: str | None) -> WeightsOrigin:
    if sha256 is None:
        raise ValueError("an address needs the SHA-256 of its file: --sha256")
    name = PurePosixPath(urlsplit(url).path).name
    return WeightsOrigin(
        title=PurePosixPath(name).stem,
        homepage=url,
        paths=[name],
        describe=lambda _: WeightFile(size_bytes=declared_bytes(url), sha256=sha256.lower()),
        source=lambda paths: UrlSource(kind="url", files=dict.fromkeys(paths, url)),
    )


def _path(path: Path) -> WeightsOrigin:
    """Return a file, with the description of a voice beside it, or a folder. A folder may have no
    links: if it comes from elsewhere, a link could name any file of this machine."""
    if path.is_file():
        voice = path.with_name(f"{path.name}.json")
        files = {file.name: file for file in (path, voice) if file.is_file()}
    else:
        files = {}
        refused = []
        for file in sorted(path.rglob("*")):
            name = file.relative_to(path).as_posix()
            if "/." in f"/{name}" or (file.is_dir() and not file.is_symlink()):
                continue
            files[name] = file
            if file.is_symlink() or not file.is_file():
                refused.append(name)
        if refused:
            raise ValueError(f"links and devices are not followed: {some(refused)} in {path}")
    return WeightsOrigin(
        title=path.stem if path.is_file() else path.name,
        homepage=path.as_uri(),
        paths=files,
        describe=lambda name: pinned_file(files[name]),
        source=lambda paths: FileSource(
            kind="file", files={name: str(files[place]) for name, place in paths.items()}
        ),
    )


def _describe(origin: WeightsOrigin, paths: dict[str, str], options: PullOptions) -> Artefact:
    licence = options.licence or origin.licence or "unknown" * options.accept_licence
    if not licence:
        raise ValueError(
            f"{origin.title} states no licence: give it by --licence, or take it without one by"
            " --accept-licence"
        )
    files = {}
    for name, path in paths.items():
        try:
            files[name] = origin.describe(path)
        except ValidationError as error:  # the size or digest is wrong
            raise ValueError(f"{ascii(path)}: {explain(error)}") from None
    return Artefact(
        description=origin.description or origin.title,
        licence=licence,
        homepage=origin.homepage,
        required=False,
        files=files,
        sources=(origin.source(paths),),
    )


def _pinned(artefact: Artefact, downloads: Downloads) -> Artefact:
    """Return the artefact with the SHA-256 of each file. Files with a git hash are fetched."""
    downloads.check_room(artefact.files.values())
    [source] = artefact.sources
    try:
        files = {
            name: file if file.sha256 else downloads.pin(source, name, file)
            for name, file in artefact.files.items()
        }
    except SourceFailed as failure:
        raise WeightsMissing(str(failure)) from None
    return artefact.model_copy(update={"files": files})


def _free_name(store: WeightStore, wanted: str, artefact: Artefact) -> str:
    """Return the name in the catalogue; a pull from the same place as before can reuse its name."""
    name = re.sub(r"[^a-z0-9]+", "-", wanted.lower()).strip("-") or "own"
    if (other := store.catalogue.artefacts.get(name)) is None:
        return name
    if name not in load_own_catalogue().artefacts:
        raise ValueError(f"{name!r} is an entry of configs/catalogue.yaml: choose another --name")
    if other.sources != artefact.sources:
        raise ValueError(
            f"{name!r} names other weights: choose another --name, or remove them first"
        )
    return name


def _configure(
    engine: str, name: str, folder: Path, origin: WeightsOrigin, options: PullOptions
) -> None:
    """Write the model's configuration, unless an earlier pull has. Raises ValueError."""
    # The card of a repository of voices has the languages of all.
    languages = options.languages or origin.languages * (engine != "vits")
    text = model_yaml(engine, name, folder, origin.title, origin.owner, languages, options.gender)
    if not own_model(name).exists():  # it may have been edited
        own_catalogue().parent.mkdir(mode=0o700, parents=True, exist_ok=True)  # it gets secrets
        write_whole(own_model(name), text.encode())


def _check_is_data(path: Path) -> None:
    """Raise WeightsCorrupt if the first bytes are those of a pickle, or not of the format."""
    with path.open("rb") as stream:
        head = stream.read(9)
    is_wrong = {".gguf": head[:4] != b"GGUF", ".safetensors": head[8:] != b"{"}
    if is_wrong.get(path.suffix, _PICKLE.match(head) is not None):
        raise WeightsCorrupt(f"{path.name!r} is not a {path.suffix[1:]} file, and may be a pickle")
