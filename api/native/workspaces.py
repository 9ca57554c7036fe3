"""The workspace: its settings, what was done in it, and its end."""

from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import Query
from pydantic import BaseModel, Field

from api.http.deps import PlatformDep, PrincipalDep
from api.http.routing import make_router
from api.http.schemas import Done, OneLine, Page, Pagination, RequestModel
from db.accounts import Workspace

router = make_router(scope="keys")

Retention = Literal["standard", "zero"]


class WorkspaceSettings(RequestModel):
    name: Annotated[OneLine, Field(min_length=1)] | None = None
    retention: Retention | None = Field(
        default=None,
        description=(
            "`zero` keeps nothing of what is said or heard from now on: chats are not saved, "
            "events are blanked once they are delivered, and a request that is repeated with its "
            "Idempotency-Key is refused instead of answered again."
        ),
    )


class ShownWorkspace(BaseModel):
    id: str
    name: str
    plan: str
    retention: str
    created_at: datetime


class ShownEntry(BaseModel):
    number: int = Field(description="Counts from 1 without gaps")
    action: str
    actor: str
    target: str
    details: dict[str, Any]
    digest: str = Field(description="SHA-256 over the entry before and this one, hexadecimal")
    created_at: datetime


@router.get("/auth/workspace", tags=["accounts"], summary="The workspace and its settings")
async def read_workspace(principal: PrincipalDep, platform: PlatformDep) -> ShownWorkspace:
    return _shown(await platform.accounts.workspace(principal))


@router.put("/auth/workspace", tags=["accounts"], summary="Change the workspace's settings")
async def update_workspace(
    body: WorkspaceSettings, principal: PrincipalDep, platform: PlatformDep
) -> ShownWorkspace:
    changed = await platform.accounts.update_workspace(principal, body.name or None, body.retention)
    return _shown(changed)


@router.delete("/auth/account", tags=["accounts"], summary="Erase the account")
async def erase_account(principal: PrincipalDep, platform: PlatformDep) -> Done:
    """Deletes the user, the workspace, its keys, chats, webhooks and files, at once and for good.

    It takes the owner's token, or a key with every scope. The ledger and the audit log stay: they
    hold numbers and ids, and nothing that was said.
    """
    await platform.erasure.erase(principal)
    return Done(message="the account is erased")


@router.get("/audit", tags=["accounts"], summary="What was done in the workspace, newest first")
async def list_audit(
    principal: PrincipalDep,
    platform: PlatformDep,
    page: Annotated[int, Query(ge=1, le=1_000_000)] = 1,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
) -> Page[ShownEntry]:
    entries, total = await platform.accounts.audit_page(principal, page, limit)
    return Page(
        data=[
            ShownEntry(
                number=entry.number,
                action=entry.action,
                actor=entry.actor,
                target=entry.target,
                details=entry.details,
                digest=entry.digest.hex(),
                created_at=entry.created_at,
            )
            for entry in entries
        ],
        pagination=Pagination.of(page, limit, total),
    )


def _shown(workspace: Workspace) -> ShownWorkspace:
    return ShownWorkspace(
        id=str(workspace.id),
        name=workspace.name,
        plan=workspace.plan,
        retention=workspace.retention,
        created_at=workspace.created_at,
    )
