"""The files of a commit of the model hub, as it lists them.

A commit cannot change, nor can git's names of its files. So where the catalogue has no hashes of an
artefact's files, the list of the first fetch holds for ever.
"""

import os
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import httpx
from pydantic import TypeAdapter, ValidationError

from configs.schema.catalogue import Artefact, HubSource, WeightFile
from models.errors import WeightsMissing

_LISTING = TypeAdapter(dict[str, WeightFile])


def with_listing(artefact: Artefact, path: Path) -> Artefact:
    """The artefact with the files of the list at `path`; without any when there is none."""
    try:
        files = _LISTING.validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return artefact
    return artefact.model_copy(update={"files": files})


def write_listing(artefact: Artefact, path: Path) -> None:
    """Asks the hub for the files that the artefact's source names. Raises WeightsMissing."""
    source = artefact.listed_source()
    try:
        listed = {entry["path"]: entry for entry in _tree(source)}
    except (httpx.HTTPError, ValueError, LookupError, TypeError) as error:
        raise WeightsMissing(f"the hub does not list {source.repo!r}: {error}") from error
    if missing := sorted(set(source.files.values()) - set(listed)):
        raise WeightsMissing(f"{source.repo!r} has no {missing} at {source.revision}")
    files = {
        name: WeightFile(size_bytes=listed[remote]["size"], git_object=listed[remote]["oid"])
        for name, remote in source.files.items()
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with NamedTemporaryFile(dir=path.parent, prefix=".draft-", delete=False) as draft:
        draft.write(_LISTING.dump_json(files, exclude_none=True, indent=2))
    os.replace(draft.name, path)


def _tree(source: HubSource) -> list[dict[str, Any]]:
    """Every file of the commit, as the hub answers; `oid` is git's name of it."""
    from huggingface_hub import constants, get_token  # they know the endpoint and the token

    token = get_token()
    answer = httpx.get(
        f"{constants.ENDPOINT}/api/models/{source.repo}/tree/{source.revision}",
        params={"recursive": "true"},
        headers={"Authorization": f"Bearer {token}"} if token else {},
        follow_redirects=True,
        timeout=30,
    )
    answer.raise_for_status()
    tree: list[dict[str, Any]] = answer.json()
    return tree
