"""Answers that are kept, on both databases: one request of several runs, and none is lost."""

import asyncio
import base64
from datetime import timedelta
from pathlib import Path

import pytest
from sqlmodel import Session, col, select, update

from db.accounts import User, Workspace, add_user
from db.database import Database, utc_now
from db.idempotency import DELETED_AT_ONCE, IdempotentAnswer, delete_expired_answers
from pipelines.billing.idempotency import (
    LEASE,
    ROW_BYTES,
    Claim,
    FinishedRequest,
    IdempotencyStore,
    StoredAnswer,
)
from pipelines.errors import RequestRunning
from pipelines.storage.encryption import Encryption
from pipelines.storage.files import Files

HEADERS = [["content-type", "application/json"]]


@pytest.fixture
def answers(database: Database, tmp_path: Path) -> IdempotencyStore:
    sealer = Encryption([base64.b64encode(b"k" * 32).decode()])
    files = Files(
        database,
        sealer,
        storage_url=f"file://{tmp_path / 'files'}",
        public_url="https://speech.example",
        url_key="k" * 32,
    )
    return IdempotencyStore(database, sealer, files, "p" * 48)


@pytest.fixture
async def workspace_id(database: Database) -> int:
    user = User(email="a@example.com", password_hash="!")
    workspace = Workspace(owner_id=user.id, name="w", plan="free")
    await database.run(add_user, user, workspace)
    return workspace.id


async def claim(answers: IdempotencyStore, workspace_id: int) -> Claim | FinishedRequest | None:
    """None when the request runs."""
    try:
        return await answers.claim(workspace_id, "/tts-synthesize", "key")
    except RequestRunning:
        return None


async def test_of_claims_at_once_one_may_run(answers: IdempotencyStore, workspace_id: int) -> None:
    claims = await asyncio.gather(*(claim(answers, workspace_id) for _ in range(8)))
    [got] = [one for one in claims if one is not None]
    assert isinstance(got, Claim)
    await got.release()
    again = await claim(answers, workspace_id)
    assert isinstance(again, Claim) and again.operation != got.operation
    await again.release()


@pytest.mark.parametrize("size", [10, ROW_BYTES + 1])
async def test_an_answer_is_kept_for_the_same_body_only(
    answers: IdempotencyStore, workspace_id: int, size: int
) -> None:
    got = await claim(answers, workspace_id)
    assert isinstance(got, Claim)
    answer = StoredAnswer(200, HEADERS, b"a" * size)
    await got.finish(b"digest", answer)
    kept = await claim(answers, workspace_id)
    assert isinstance(kept, FinishedRequest)
    assert await kept.answer_to(b"digest") == answer
    assert await kept.answer_to(b"other") is None


async def test_one_follows_a_request_whose_process_died(
    answers: IdempotencyStore, database: Database, workspace_id: int
) -> None:
    dead = await claim(answers, workspace_id)
    assert isinstance(dead, Claim)
    await database.run(_end_leases)
    claims = await asyncio.gather(*(claim(answers, workspace_id) for _ in range(8)))
    [next_one] = [one for one in claims if one is not None]
    assert isinstance(next_one, Claim)
    assert next_one.operation == dead.operation  # so that it is not charged twice
    await dead.finish(b"late", StoredAnswer(200, HEADERS, b"late"))
    assert await claim(answers, workspace_id) is None
    await next_one.finish(b"digest", StoredAnswer(200, HEADERS, b"in time"))
    kept = await claim(answers, workspace_id)
    assert isinstance(kept, FinishedRequest) and await kept.answer_to(b"late") is None


async def test_expired_answers_go_some_at_once(database: Database, workspace_id: int) -> None:
    await database.run(_add_many, workspace_id, DELETED_AT_ONCE + 3)
    rounds = [await database.run(delete_expired_answers, utc_now()) for _ in range(3)]
    assert rounds == [DELETED_AT_ONCE, 3, 0]
    left = await database.read(lambda session: session.exec(select(IdempotentAnswer)).all())
    assert [row.key for row in left] == ["live"]


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
