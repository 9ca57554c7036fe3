"""The settings of a workspace and its audit log."""

from typing import Any

from sqlmodel import Session

from db.accounts import Workspace, read_workspace, update_workspace
from db.audit import AuditEntry, audit, audit_page
from db.session import Database
from pipelines.accounts.authentication import UNAUTHORIZED, Principal
from pipelines.accounts.service import Accounts
from pipelines.errors import Unauthorized


class Workspaces:
    """Every method raises DatabaseUnavailable, and Unauthorized when the workspace is gone."""

    def __init__(self, database: Database, accounts: Accounts) -> None:
        self._database = database
        self._accounts = accounts

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


def _update(
    session: Session, principal: Principal, name: str | None, retention: str | None
) -> Workspace:
    found = update_workspace(session, principal.workspace_id, name, retention)
    if found is None:
        raise Unauthorized(UNAUTHORIZED)
    workspace, changed = found
    if changed:
        details: dict[str, Any] = {"changed": changed, "retention": workspace.retention}
        workspace_id = principal.workspace_id
        target = str(workspace_id)
        audit(session, workspace_id, "workspace.changed", principal.actor, target, details)
    return workspace
