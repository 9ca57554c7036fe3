"""A workspace's settings, its audit log, and its end."""

import logging
from typing import Any

from sqlmodel import Session

from db.accounts import Workspace, delete_user, read_workspace, update_workspace
from db.audit import AuditEntry, audit, audit_page
from db.billing.ledger import release_named
from db.columns import utc_now
from db.files import expire_files
from db.session import Database
from db.voices.voices import Voice, lock_workspace, ready_voices, unfinished_operations
from pipelines.accounts.authentication import ALL_SCOPES, UNAUTHORIZED, Principal
from pipelines.accounts.service import Accounts
from pipelines.errors import InsufficientScope, StorageUnavailable, Unauthorized
from pipelines.storage.files import Files
from pipelines.tts.custom_voices import ReadyCustomVoices

logger = logging.getLogger(__name__)


class Workspaces:
    """Every method raises DatabaseUnavailable, and Unauthorized when the workspace is gone."""

    def __init__(
        self, database: Database, accounts: Accounts, files: Files, voices: ReadyCustomVoices
    ) -> None:
        self._database = database
        self._voices = voices
        self._accounts = accounts
        self._files = files

    async def read(self, principal: Principal) -> Workspace:
        """The caller's workspace."""
        found = await self._database.read(read_workspace, principal.workspace_id)
        if found is None:
            raise Unauthorized(UNAUTHORIZED)
        return found

    async def update(
        self, principal: Principal, name: str | None, retention: str | None
    ) -> Workspace:
        """Changes what is not None; holds at once here, and within seconds on other replicas."""
        workspace = await self._database.run(_update, principal, name, retention)
        self._accounts.forget_workspace(principal.workspace_id)
        return workspace

    async def audit_page(
        self, principal: Principal, page: int, limit: int
    ) -> tuple[list[AuditEntry], int]:
        """One page of what was done, newest first, and the number of all; `page` from 1."""
        return await self._database.read(audit_page, principal.workspace_id, page, limit)

    async def erase(self, principal: Principal) -> None:
        """Deletes the user, the workspace and what belongs to it; files follow within seconds.

        The ledger and the audit log stay, under an id that no longer leads to anybody. Raises
        InsufficientScope for a key that may not do everything else.
        """
        if missing := ALL_SCOPES - principal.scopes:
            self._accounts.note_missing_scopes(principal, missing)
            raise InsufficientScope(
                "an account is erased by its owner's token or a key with every scope"
            )
        for voice in await self._database.run(_erase, principal):
            self._voices.forget(voice.id, voice.pack_digest)
        self._accounts.forget_workspace(principal.workspace_id)
        try:
            await self._files.delete_expired()
            await self._database.forget_deleted()
        except StorageUnavailable:  # the sweep tries again
            logger.warning("erased_files_left", extra={"workspace": principal.workspace_id})


def _update(
    session: Session, principal: Principal, name: str | None, retention: str | None
) -> Workspace:
    found = update_workspace(session, principal.workspace_id, name, retention)
    if found is None:
        raise Unauthorized(UNAUTHORIZED)
    workspace, changed = found
    if changed:
        details: dict[str, Any] = {"changed": changed, "retention": workspace.retention}
        _audit(session, principal, "workspace.changed", details)
    return workspace


def _erase(session: Session, principal: Principal) -> list[Voice]:
    """The voices that could speak."""
    lock_workspace(session, principal.workspace_id)  # no voice is added from here on
    unfinished = unfinished_operations(session, principal.workspace_id)  # before the rows go
    ready = ready_voices(session, principal.workspace_id)
    if not delete_user(session, principal.user_id):
        raise Unauthorized(UNAUTHORIZED)
    expire_files(session, principal.workspace_id, utc_now())
    release_named(session, unfinished)
    _audit(session, principal, "account.erased", {})
    return ready


def _audit(session: Session, principal: Principal, action: str, details: dict[str, Any]) -> None:
    workspace_id = principal.workspace_id
    audit(session, workspace_id, action, principal.actor, str(workspace_id), details)
