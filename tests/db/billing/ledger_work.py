"""Ledger operations of tests, in transactions, in threads and in other processes."""

import os
import random
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Concatenate, ParamSpec, TypeVar
from uuid import uuid4

from sqlalchemy import Engine
from sqlmodel import Session

from db.billing import ledger
from db.database import make_engine, utc_now

P = ParamSpec("P")
T = TypeVar("T")


def transact(
    engine: Engine, work: Callable[Concatenate[Session, P], T], *args: P.args, **kwargs: P.kwargs
) -> T:
    """`work` in one transaction."""
    with Session(engine) as session, session.begin():
        return work(session, *args, **kwargs)


def soon() -> datetime:
    return utc_now() + timedelta(minutes=15)


def spend(engine: Engine, workspace_id: int, price: int, attempts: int) -> int:
    """Holds credit and captures it, releases it or does neither; returns micro-USD captured."""
    captured = 0
    for _ in range(attempts):
        operation = uuid4().hex
        if not transact(
            engine,
            ledger.hold,
            workspace_id=workspace_id,
            operation=operation,
            service="tts",
            amount=price,
            expires_at=soon(),
        ):
            continue
        choice = random.random()
        if choice < 0.6:
            done = transact(
                engine,
                ledger.capture,
                workspace_id=workspace_id,
                operation=operation,
                service="tts",
                cost=price,
                units=1,
            )
            captured += done.charged
        elif choice < 0.9:
            transact(
                engine,
                ledger.release,
                workspace_id=workspace_id,
                operation=operation,
                service="tts",
            )
    return captured


def spend_in_threads(url: str, workspace_id: int, threads: int, price: int, attempts: int) -> int:
    """`spend` in concurrent threads, each with its own connection; returns their sum."""
    # Timeouts of waiting for a lock are not under test.
    engine = make_engine(url, connections=threads, busy_timeout_ms=60_000)
    try:
        with ThreadPoolExecutor(threads) as pool:
            working = [
                pool.submit(spend, engine, workspace_id, price, attempts) for _ in range(threads)
            ]
            return sum(work.result() for work in working)
    finally:
        engine.dispose()


def crash_while_paying(url: str, workspace_id: int, price: int, times: int) -> None:
    """Forks `times` processes, each of which is killed somewhere from its hold to its capture."""
    for number in range(times):
        child = os.fork()
        if child == 0:
            _pay_and_crash(url, workspace_id, price, number)
        os.waitpid(child, 0)


def _pay_and_crash(url: str, workspace_id: int, price: int, number: int) -> None:
    engine = make_engine(url)
    operation = f"death-{number}"
    point = number % 5
    with Session(engine) as session, session.begin():
        ledger.hold(
            session,
            workspace_id=workspace_id,
            operation=operation,
            service="tts",
            amount=price,
            expires_at=soon(),
        )
        if point == 0:
            _crash()
    if point == 1:
        _crash()
    with Session(engine) as session, session.begin():
        ledger.capture(
            session,
            workspace_id=workspace_id,
            operation=operation,
            service="tts",
            cost=price,
            units=1,
        )
        if point == 2:
            _crash()
    if point == 3:
        _crash()
    transact(
        engine,
        ledger.capture,
        workspace_id=workspace_id,
        operation=operation,
        service="tts",
        cost=price,
        units=1,
    )  # a retry
    _crash()


def _crash() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
