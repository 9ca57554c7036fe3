"""Compares the state that clients' answers imply with the database."""

from collections import Counter
from uuid import UUID

from sqlalchemy import Engine, func
from sqlmodel import Session, col, select

from db.accounts import ApiKey, User, Workspace
from db.billing.tables import Account, CreditHold, LedgerEntry
from db.chats import Chat
from db.webhooks import Delivery, Event, Webhook
from tests.promises.tenants import ExpectedState, Tenant


def check(engine: Engine, tenants: list[Tenant]) -> None:
    """Nothing acknowledged is lost, nothing is charged twice, and the sums are right."""
    with Session(engine) as session:
        for tenant in tenants:
            _check_writes(session, tenant.state)
            _check_charges(session, tenant.state)
            _check_deliveries(session, tenant)
        check_sums(session)


def check_sums(session: Session) -> None:
    """The ledger's sums are the balances, and the held credit is the sum of the holds."""
    for account in session.exec(select(Account)).all():
        amount, held = session.exec(
            select(func.sum(LedgerEntry.amount), func.sum(LedgerEntry.held)).where(
                LedgerEntry.workspace_id == account.workspace_id
            )
        ).one()
        holds = session.exec(
            select(func.coalesce(func.sum(CreditHold.amount), 0)).where(
                CreditHold.workspace_id == account.workspace_id
            )
        ).one()
        assert (amount, held) == (account.balance, account.held), account
        assert holds == account.held, account


def _check_writes(session: Session, state: ExpectedState) -> None:
    user = session.get(User, state.user_id)
    assert user is not None and user.email == state.email, state
    workspace = session.exec(select(Workspace).where(Workspace.owner_id == user.id)).one()
    state.workspace_id = workspace.id
    for made, email in state.accounts.items():
        other = session.get(User, made)
        assert other is not None and other.email == email, f"a lost account: {made}"
        owned = session.exec(select(Workspace.id).where(Workspace.owner_id == made)).one()
        assert session.get_one(Account, owned).balance > 0, "an account without its credit"
    mine = select(ApiKey.id).where(ApiKey.workspace_id == workspace.id)
    keys = set(session.exec(mine.where(col(ApiKey.revoked_at).is_(None))).all())
    assert state.keys <= keys, f"lost keys: {state.keys - keys}"
    assert not state.deleted_keys & keys, "a deleted key came back"
    hooks = session.exec(select(Webhook.id).where(Webhook.workspace_id == workspace.id)).all()
    assert {state.hook, *state.webhooks} <= {str(one) for one in hooks}, "a webhook was lost"
    chats = session.exec(select(Chat.id).where(col(Chat.workspace_id) == workspace.id)).all()
    assert state.chats <= {str(one) for one in chats}, "a chat was lost"
    if state.plan is not None:
        assert workspace.plan in {state.plan, *state.doubtful_plans}, workspace.plan


def _check_charges(session: Session, state: ExpectedState) -> None:
    entries = session.exec(
        select(LedgerEntry).where(
            LedgerEntry.workspace_id == state.workspace_id, LedgerEntry.kind == "capture"
        )
    ).all()
    captured = Counter[str]()
    spent = Counter[str]()
    for entry in entries:
        captured[entry.service] += 1
        spent[entry.service] -= entry.amount
    for service in ("tts", "stt", "chat"):
        least, most = state.completed[service], state.completed[service] + state.doubtful[service]
        assert least <= captured[service] <= most, (service, captured, state)
    if not state.doubtful["tts"]:
        assert spent["tts"] == state.charged["tts"], (spent, state)
    if not state.doubtful["chat"]:
        assert spent["chat"] == state.charged["chat"], (spent, state)
    _check_idempotent_charges(session, state)


def _check_idempotent_charges(session: Session, state: ExpectedState) -> None:
    """Each Idempotency-Key is charged at most once, and once if it had a successful answer."""
    kinds = Counter(
        session.exec(
            select(LedgerEntry.kind).where(
                LedgerEntry.workspace_id == state.workspace_id,
                col(LedgerEntry.operation).startswith("once-"),
            )
        ).all()
    )
    charged = kinds["capture"] - kinds["refund"]
    assert sum(state.once.values()) <= charged <= len(state.once), (kinds, state)


def _check_deliveries(session: Session, tenant: Tenant) -> None:
    state = tenant.state
    events = session.exec(
        select(Event.id, Event.kind, Delivery.status)
        .join(Delivery, col(Delivery.event_id) == col(Event.id))
        .where(col(Delivery.webhook_id) == UUID(state.hook))
    ).all()
    waiting = [event for event in events if event[2] != "delivered"]
    assert not waiting, f"not delivered: {waiting}"
    lost = {event[0] for event in events} - {message.id for message in tenant.hook.received}
    assert not lost, f"events that are marked as delivered never came: {lost}"
    kinds = Counter(event[1] for event in events)
    for service in ("tts", "stt"):
        least, most = state.completed[service], state.completed[service] + state.doubtful[service]
        assert least <= kinds[f"{service}.completed"] <= most, (service, kinds, state)
