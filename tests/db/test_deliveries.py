"""Outcomes of deliveries that are recorded together, on both databases."""

from datetime import timedelta
from uuid import UUID

import pytest
from sqlmodel import Session, col, select, update

from db import deliveries
from db.database import Database, make_engine, utc_now
from db.deliveries import AttemptResult, Claimed, DeliveryAttempt
from db.webhooks import Delivery, Webhook, add_event
from tests.db.rows import execute, rows
from tests.db.test_chats import add_workspace
from tests.db.test_webhooks import READY, add_webhook, plain

ACCEPTED = AttemptResult(200, None, 5)
Found = dict[UUID, tuple[str, int, str | None]]


async def claimed(database: Database, webhooks: int) -> list[Claimed]:
    """An event with a claimed delivery to each of so many webhooks."""
    workspace_id = await add_workspace(database)
    for _ in range(webhooks):
        await database.run(add_webhook, workspace_id, failing_since=utc_now())
    await database.run(add_event, workspace_id, READY, plain)
    due = await database.read(deliveries.due, utc_now())
    ids = [one for one, *_ in due]
    lasts = timedelta(minutes=1)
    return await database.run(deliveries.claim, ids, "mine", utc_now(), lasts)


def stored(session: Session) -> Found:
    return {row.id: (row.status, row.attempt, row.lease) for row in session.exec(select(Delivery))}


async def test_successes_are_recorded_together(database: Database) -> None:
    done = await claimed(database, 5)
    ids = {one.delivery.id for one in done}
    both = [(one, ACCEPTED) for one in done]
    assert await database.run(deliveries.finish_delivered, both, utc_now()) == ids
    assert await database.read(stored) == dict.fromkeys(ids, ("delivered", 1, None))
    attempts = await rows(database, select(DeliveryAttempt))
    assert {(one.delivery_id, one.number, one.status_code) for one in attempts} == {
        (id, 1, 200) for id in ids
    }
    hooks = await rows(database, select(Webhook))
    assert all(hook.failing_since is None for hook in hooks)
    assert await database.run(deliveries.finish_delivered, both, utc_now()) == set()  # once


async def test_a_delivery_whose_lease_another_worker_has_is_left_out(database: Database) -> None:
    taken, mine = await claimed(database, 2)
    other = update(Delivery).where(col(Delivery.id) == taken.delivery.id).values(lease="other")
    await execute(database, other)
    both = [(one, ACCEPTED) for one in (taken, mine)]
    found = await database.run(deliveries.finish_delivered, both, utc_now())
    assert found == {mine.delivery.id}
    assert (await database.read(stored))[taken.delivery.id] == ("pending", 0, "other")


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
@pytest.mark.postgres
async def test_a_webhook_that_another_transaction_has_locked_delays_no_other(
    database: Database, database_url: str
) -> None:
    locked, free = await claimed(database, 2)
    engine = make_engine(database_url)
    with Session(engine) as session:
        session.get(Webhook, locked.webhook.id, with_for_update=True)
        both = [(one, ACCEPTED) for one in (locked, free)]
        found = await database.run(deliveries.finish_delivered, both, utc_now())
        assert found == {free.delivery.id}
    engine.dispose()
    assert (await database.read(stored))[locked.delivery.id] == ("pending", 0, "mine")
