"""Operations of an operator on workspaces, by a command or over HTTP."""

from dataclasses import dataclass
from datetime import datetime
from uuid import uuid4

from sqlmodel import Session

from db.accounts import list_users
from db.billing import ledger
from db.database import Database
from pipelines.billing.billing import to_usd
from pipelines.errors import InvalidRequest, NotFound

ACTOR = "operator"
OWNER_PLAN = "owner"  # id in configs/plans.yaml
MAX_REFERENCE = 50  # characters; the ledger keeps it as the operation's id


@dataclass(frozen=True, slots=True)
class Customer:
    """A workspace, with its owner's e-mail address and its credit in USD."""

    id: str
    email: str
    name: str
    plan: str
    credit: float
    created_at: datetime


def customers(
    session: Session,
    after: int = 0,
    limit: int | None = None,
    text: str = "",
    *,
    free_workspace_id: int | None = None,
) -> list[Customer]:
    """Lists workspaces with their owners, selected as by `list_users`. A service for its
    owner alone shows the plan of `free_workspace_id` as `OWNER_PLAN`, whatever is stored."""
    return [
        Customer(
            str(workspace.id),
            user.email,
            workspace.name,
            OWNER_PLAN if workspace.id == free_workspace_id else workspace.plan,
            to_usd(ledger.credit_of(session, workspace.id)),
            workspace.created_at,
        )
        for user, workspace in list_users(session, after, limit, text)
    ]


async def change_credit(
    database: Database, workspace_id: int, micro_usd: int, reference: str | None
) -> tuple[float, bool]:
    """Adds to the credit of a workspace, or takes from it if `micro_usd` is negative. Returns the
    credit in USD, and False if the `reference` was booked before. Raises NotFound without an
    account, InvalidRequest if the credit is lower than the amount to take."""
    operation = f"operator:{reference or uuid4().hex}"
    outcome = await database.run(ledger.change_credit, workspace_id, operation, micro_usd, ACTOR)
    credit = to_usd(await database.read(ledger.credit_of, workspace_id))
    if outcome == "no_account":
        raise NotFound(f"workspace {workspace_id} has no account to credit")
    if outcome == "too_little":
        reason = f"that is less than the {to_usd(-micro_usd):.6f} USD to take"
        raise InvalidRequest(f"workspace {workspace_id} keeps {credit:.6f} USD: {reason}")
    return credit, outcome == "done"
