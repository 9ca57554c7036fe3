"""Pronunciation dictionaries of a workspace, in versions, encrypted at rest."""

from collections.abc import Callable, Sequence
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter
from sqlmodel import Session, col

from db.accounts import lock_workspace
from db.database import Database, page_of, utc_now
from db.voices.pronunciations import PronunciationDictionary, dictionaries_of
from pipelines.errors import InvalidRequest, NotFound
from pipelines.storage.encryption import Encryption
from pipelines.tasks import TtlCache
from pipelines.text.lexicon import STORED, Lexicon, Pronunciation
from pipelines.tts.voices import REMEMBERED_S, parse_id

MAX_DICTIONARIES = 20
MAX_ENTRIES = 1000
VERSIONS = 10  # newest versions that a dictionary keeps
KEPT_ENTRIES = 5000  # entries of all versions that a dictionary keeps
_VERSIONS = TypeAdapter(dict[int, list[Pronunciation]])
_NO_DICTIONARY = "no pronunciation dictionary has that id; GET /pronunciations lists them"


class DictionaryRef(BaseModel):
    """A dictionary of the workspace, in its newest version or one of the last ten."""

    model_config = ConfigDict(strict=True, frozen=True)

    id: str = Field(max_length=100)
    version: int | None = Field(default=None, ge=1, le=1_000_000_000)


def content_about(dictionary_id: UUID) -> str:
    """Return the associated data of the encrypted versions of a dictionary."""
    return f"pronunciation:{dictionary_id}"


class Dictionaries:
    """Stores dictionaries. Methods raise DatabaseUnavailable, or NotFound for a dictionary that is
    not the workspace's."""

    def __init__(self, database: Database, encryption: Encryption) -> None:
        self._database = database
        self._encryption = encryption
        self._lexicons: TtlCache[tuple[int, tuple[DictionaryRef, ...]], Lexicon] = TtlCache(
            REMEMBERED_S, 100
        )

    async def page(
        self, workspace_id: int, page: int, limit: int
    ) -> tuple[list[PronunciationDictionary], int]:
        """List a page of the dictionaries by name, and the number of all."""
        return await self._database.read(page_of, dictionaries_of(workspace_id), page, limit)

    async def read(
        self, workspace_id: int, which: DictionaryRef
    ) -> tuple[PronunciationDictionary, list[Pronunciation]]:
        """Read a dictionary, and the entries of the requested version."""
        row, versions = await self._database.read(self._open, workspace_id, which.id)
        entries = versions.get(which.version or row.version)
        if entries is None:
            raise NotFound("the dictionary no longer has that version")
        return row, entries

    async def save(
        self,
        workspace_id: int,
        name: str,
        entries: Sequence[Pronunciation],
        dictionary_id: str | None = None,
    ) -> PronunciationDictionary:
        """Create a dictionary, or its next version. Raises InvalidRequest at a limit."""

        def write(session: Session) -> PronunciationDictionary:
            lock_workspace(session, workspace_id)
            if dictionary_id is not None:
                row, versions = self._open(session, workspace_id, dictionary_id)
            elif page_of(session, dictionaries_of(workspace_id), 1, 1)[1] >= MAX_DICTIONARIES:
                raise InvalidRequest(f"a workspace has at most {MAX_DICTIONARIES} dictionaries")
            else:
                row = PronunciationDictionary(workspace_id=workspace_id, name=name)
                versions = {}
            row.name = name
            return self._add_version(session, row, versions, entries)

        saved = await self._database.run(write)
        self._lexicons.forget_if(lambda key, _: key[0] == workspace_id)
        return saved

    async def change(
        self,
        workspace_id: int,
        dictionary_id: str,
        change: Callable[[list[Pronunciation]], Sequence[Pronunciation]],
    ) -> PronunciationDictionary:
        """Create the next version of a dictionary, with the entries that `change` returns for the
        newest ones. Equal entries make no version. Raises InvalidRequest at a limit."""

        def write(session: Session) -> PronunciationDictionary:
            lock_workspace(session, workspace_id)
            row, versions = self._open(session, workspace_id, dictionary_id)
            newest = versions[row.version]
            entries = change(newest)
            return row if entries == newest else self._add_version(session, row, versions, entries)

        changed = await self._database.run(write)
        self._lexicons.forget_if(lambda key, _: key[0] == workspace_id)
        return changed

    def _add_version(
        self,
        session: Session,
        row: PronunciationDictionary,
        versions: dict[int, list[Pronunciation]],
        entries: Sequence[Pronunciation],
    ) -> PronunciationDictionary:
        if len(entries) > MAX_ENTRIES:
            raise InvalidRequest(f"a dictionary has at most {MAX_ENTRIES} entries")
        row.version += 1
        row.size = len(entries)
        row.updated_at = utc_now()
        versions[row.version] = list(entries)
        while len(versions) > VERSIONS or sum(map(len, versions.values())) > KEPT_ENTRIES:
            del versions[min(versions)]
        plain = _VERSIONS.dump_json(versions, exclude_defaults=True)
        row.content = self._encryption.encrypt(plain, content_about(row.id))
        session.add(row)
        return row

    async def delete(self, workspace_id: int, dictionary_id: str) -> None:
        def drop(session: Session) -> None:
            lock_workspace(session, workspace_id)
            row, _ = self._open(session, workspace_id, dictionary_id)
            session.delete(row)

        await self._database.run(drop)
        self._lexicons.forget_if(lambda key, _: key[0] == workspace_id)

    async def lexicon(self, workspace_id: int, which: tuple[DictionaryRef, ...]) -> Lexicon:
        """Return the entries of several dictionaries; an earlier dictionary wins."""

        async def load() -> Lexicon:
            dictionaries = [await self.read(workspace_id, reference) for reference in which]
            return Lexicon(entry for _, entries in dictionaries for entry in entries)

        return await self._lexicons.get((workspace_id, which), load)

    def _open(
        self, session: Session, workspace_id: int, dictionary_id: str
    ) -> tuple[PronunciationDictionary, dict[int, list[Pronunciation]]]:
        identity = parse_id(dictionary_id)
        query = dictionaries_of(workspace_id).where(col(PronunciationDictionary.id) == identity)
        if (row := session.exec(query).first()) is None:
            raise NotFound(_NO_DICTIONARY)
        content = self._encryption.decrypt(row.content, content_about(row.id))
        return row, _VERSIONS.validate_json(content, context=STORED)
