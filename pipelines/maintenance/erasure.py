"""The erasure of an account with its workspace, keys, chats, voices, webhooks and files."""

import logging
from dataclasses import dataclass

from sqlmodel import Session

from db.accounts import delete_user, lock_workspace
from db.audit import audit
from db.billing.ledger import release_named
from db.database import Database, utc_now
from db.files import expire_files
from db.jobs.queue import unfinished_operations
from db.voices.voices import Voice, ready_voices
from pipelines.accounts.authentication import ALL_SCOPES, UNAUTHORIZED, Authenticator, Principal
from pipelines.errors import InsufficientScope, StorageUnavailable, Unauthorized
from pipelines.storage.files import Files
from pipelines.tts.voices import ReadyCustomVoices

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AccountErasure:
    """Erases accounts. The ledger and the audit log are kept, under an id that names no person."""

    database: Database
    authenticator: Authenticator
    files: Files
    voices: ReadyCustomVoices

    async def erase(self, principal: Principal) -> None:
        """Deletes the user, the workspace and what belongs to it; files follow within seconds.
        Raises InsufficientScope, Unauthorized when the account is gone, or DatabaseUnavailable."""
        if missing := ALL_SCOPES - principal.scopes:
            self.authenticator.note_missing_scopes(principal, missing)
            raise InsufficientScope(
                "an account is erased by its owner's token or a key with every scope"
            )
        workspace_id = principal.workspace_id
        for voice in await self.database.run(
            erase_rows, workspace_id, principal.user_id, principal.actor
        ):
            self.voices.forget(voice.id, voice.pack_digest)
        self.authenticator.forget_workspace(workspace_id)
        await delete_erased(self.database, self.files, workspace_id)


async def delete_erased(database: Database, files: Files, workspace_id: int) -> bool:
    """Deletes what the rows that are erased have left on disks; False if the store does not answer.
    Raises DatabaseUnavailable."""
    try:
        await files.delete_expired()
        await database.forget_deleted()
    except StorageUnavailable:  # housekeeping tries again
        logger.warning("erased_files_not_deleted", extra={"workspace": workspace_id})
        return False
    return True


def erase_rows(session: Session, workspace_id: int, user_id: int, actor: str) -> list[Voice]:
    """Deletes the rows; returns the voices that were ready, whose packs engines may still hold.
    `actor` is that of the audit log. Raises Unauthorized when the account is gone."""
    lock_workspace(session, workspace_id)  # no voice is added from here on
    unfinished = unfinished_operations(session, workspace_id)  # before the rows are deleted
    ready = ready_voices(session, workspace_id)
    if not delete_user(session, user_id):
        raise Unauthorized(UNAUTHORIZED)
    expire_files(session, workspace_id, utc_now())
    release_named(session, unfinished)
    audit(session, workspace_id, "account.erased", actor, str(workspace_id), {})
    return ready
