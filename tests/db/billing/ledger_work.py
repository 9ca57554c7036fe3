"""What tests of the ledger do in transactions, in threads and in other processes."""

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
    """Holds, and captures, releases or leaves what it held; micro-USD that it captured."""
    captured = 0
    for _ in range(attempts):
        operation = uuid4().hex
        if not transact(engine, ledger.hold, workspace_id, operation, "tts", price, soon()):
            continue
        choice = random.random()
        if choice < 0.6:
            done = transact(engine, ledger.capture, workspace_id, operation, "tts", price, 1)
            captured += done.charged
        elif choice < 0.9:
            transact(engine, ledger.release, workspace_id, operation, "tts")
    return captured


def spend_in_threads(url: str, workspace_id: int, threads: int, price: int, attempts: int) -> int:
    """`spend` in several threads at once, each with its connection; what they captured together."""
    # Long waits for a lock are not what is tested.
    engine = make_engine(url, connections=threads, busy_timeout_ms=60_000)
    try:
        with ThreadPoolExecutor(threads) as pool:
            working = [
                pool.submit(spend, engine, workspace_id, price, attempts) for _ in range(threads)
            ]
            return sum(work.result() for work in working)
    finally:
        engine.dispose()


def die_while_paying(url: str, workspace_id: int, price: int, times: int) -> None:
    """As often as `times`, a process that is killed at some point from its hold to its capture."""
    for number in range(times):
        child = os.fork()
        if child == 0:
            _pay_and_die(url, workspace_id, price, number)
        os.waitpid(child, 0)


def _pay_and_die(url: str, workspace_id: int, price: int, number: int) -> None:
    engine = make_engine(url)
    operation = f"death-{number}"
    point = number % 5
    with Session(engine) as session, session.begin():
        ledger.hold(session, workspace_id, operation, "tts", price, soon())
        if point == 0:
            _die()
    if point == 1:
        _die()
    with Session(engine) as session, session.begin():
        ledger.capture(session, workspace_id, operation, "tts", price, 1)
        if point == 2:
            _die()
    if point == 3:
        _die()
    transact(engine, ledger.capture, workspace_id, operation, "tts", price, 1)  # it asks again
    _die()


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
