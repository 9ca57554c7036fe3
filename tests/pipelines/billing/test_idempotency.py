"""Idempotency keys, on both databases: claims, stored responses, leases and expiry."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest
from sqlmodel import Session, col, select, update

from db.database import Database, utc_now
from db.idempotency import IdempotentAnswer
from db.retention import AT_ONCE, delete_older
from pipelines.billing import idempotency
from pipelines.billing.idempotency import LEASE, ROW_BYTES, Claim, IdempotencyStore
from pipelines.errors import AnswerNotKept, RequestRunning
from pipelines.storage.files import PIECE_BYTES
from tests.db.rows import rows
from tests.db.test_chats import add_workspace
from tests.pipelines.storage.on_disk import ENCRYPTION, files_in, written

HEADERS = [["content-type", "application/json"]]


@pytest.fixture
def store(database: Database, tmp_path: Path) -> IdempotencyStore:
    files = files_in(tmp_path, database)
    return IdempotencyStore(database, ENCRYPTION, files, "p" * 48)


@pytest.fixture
async def workspace_id(database: Database) -> int:
    return await add_workspace(database)


async def claim(store: IdempotencyStore, workspace_id: int) -> Claim | IdempotentAnswer | None:
    """None while another request runs with the same key."""
    try:
        return await store.claim(workspace_id, "/tts-synthesize", "key")
    except RequestRunning:
        return None


async def test_one_concurrent_claim_is_granted(store: IdempotencyStore, workspace_id: int) -> None:
    claims = await asyncio.gather(*(claim(store, workspace_id) for _ in range(8)))
    [got] = [one for one in claims if one is not None]
    assert isinstance(got, Claim)
    await got.release()
    again = await claim(store, workspace_id)
    assert isinstance(again, Claim) and again.operation != got.operation
    await again.release()


@pytest.mark.parametrize("size", [10, ROW_BYTES + 1, 3 * PIECE_BYTES + 1])
async def test_a_stored_response_is_returned_for_the_same_request_body_only(
    store: IdempotencyStore, workspace_id: int, size: int
) -> None:
    got = await claim(store, workspace_id)
    assert isinstance(got, Claim)
    assert await got.bind(b"digest")
    await got.finish(200, HEADERS, written(b"a" * size))
    kept = await claim(store, workspace_id)
    assert isinstance(kept, IdempotentAnswer)
    again = await store.open(kept, b"digest")
    assert again is not None and (again.status, again.headers) == (200, HEADERS)
    pieces = [piece async for piece in again.body]
    assert b"".join(pieces) == b"a" * size and again.size == size
    assert max(map(len, pieces)) <= PIECE_BYTES
    assert await store.open(kept, b"other") is None


async def test_the_claim_of_a_dead_process_passes_to_one_other_request(
    store: IdempotencyStore, database: Database, workspace_id: int
) -> None:
    dead = await claim(store, workspace_id)
    assert isinstance(dead, Claim)
    await database.run(_end_leases)
    claims = await asyncio.gather(*(claim(store, workspace_id) for _ in range(8)))
    [next_one] = [one for one in claims if one is not None]
    assert isinstance(next_one, Claim)
    assert next_one.operation == dead.operation  # so that it is not charged twice
    await dead.finish(200, HEADERS, written(b"late"))
    assert await claim(store, workspace_id) is None
    assert await next_one.bind(b"digest")
    await next_one.finish(200, HEADERS, written(b"in time"))
    kept = await claim(store, workspace_id)
    assert isinstance(kept, IdempotentAnswer)
    answer = await store.open(kept, b"digest")
    assert answer is not None and [piece async for piece in answer.body] == [b"in time"]


async def test_a_dead_process_leaves_its_claim_to_the_first_body(
    store: IdempotencyStore, database: Database, workspace_id: int
) -> None:
    dead = await claim(store, workspace_id)
    assert isinstance(dead, Claim) and await dead.bind(b"first")
    await database.run(_end_leases)
    other = await claim(store, workspace_id)
    assert isinstance(other, Claim) and not await other.bind(b"other")
    await other.release()
    again = await claim(store, workspace_id)
    assert isinstance(again, Claim) and again.operation == dead.operation
    assert await again.bind(b"first")
    await again.release()


@pytest.mark.parametrize("in_rows", [True, False])
async def test_beyond_the_bytes_of_a_day_only_the_completion_is_stored(
    store: IdempotencyStore, workspace_id: int, monkeypatch: pytest.MonkeyPatch, in_rows: bool
) -> None:
    if in_rows:
        monkeypatch.setattr("pipelines.storage.room.GB", 25 * idempotency.ROWS_SHARE)
    else:
        monkeypatch.setattr(idempotency, "MAX_DAILY_BYTES", 25)
        monkeypatch.setattr(idempotency, "ROW_BYTES", 0)
    for key in ("one", "two", "three"):
        got = await store.claim(workspace_id, "/tts-synthesize", key)
        assert isinstance(got, Claim) and await got.bind(b"digest")
        await got.finish(200, HEADERS, written(b"a" * 10))
        kept = await store.claim(workspace_id, "/tts-synthesize", key)
        assert isinstance(kept, IdempotentAnswer)
        if key == "three":
            with pytest.raises(AnswerNotKept):
                await store.open(kept, b"digest")
        else:
            assert await store.open(kept, b"digest") is not None


async def test_expired_keys_are_deleted_in_batches(database: Database, workspace_id: int) -> None:
    await database.run(_add_many, workspace_id, AT_ONCE + 3)
    expired = (IdempotentAnswer, IdempotentAnswer.expires_at, utc_now())
    rounds = [await database.run(delete_older, *expired) for _ in range(3)]
    assert rounds == [AT_ONCE, 3, 0]
    assert await rows(database, select(IdempotentAnswer.key)) == ["live"]


def _add_many(session: Session, workspace_id: int, expired: int) -> None:
    now = utc_now()
    for number in range(expired + 1):
        session.add(
            IdempotentAnswer(
                workspace_id=workspace_id,
                path="/tts-synthesize",
                key=str(number) if number < expired else "live",
                headers=[],
                expires_at=now if number < expired else now + timedelta(hours=1),
            )
        )


def _end_leases(session: Session) -> None:
    session.connection().execute(
        update(IdempotentAnswer).values({col(IdempotentAnswer.lease_until): utc_now() - LEASE})
    )
