"""A database that cannot grow: answered requests stay charged, later ones are refused with 503."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
from sqlalchemy import event
from sqlalchemy.pool import Pool
from sqlmodel import Session, func, select

from api.services import Services
from configs.settings import Settings
from db.billing.tables import LedgerEntry
from db.database import make_engine
from tests.plans import raise_plans
from tests.promises.history import check_sums

MAX_REQUESTS = 300  # more than enough to fill the pages of a table


@contextmanager
def full_disk() -> Iterator[Callable[[], None]]:
    """SQLite cannot add pages, as on a full disk, until the yielded callable is called."""

    pages = {"most": 1}

    def bound(connection: Any, _record: object, _proxy: object) -> None:
        connection.execute(f"PRAGMA max_page_count={pages['most']}").fetchall()

    event.listen(Pool, "checkout", bound)
    try:
        yield lambda: pages.update(most=2**30)
    finally:
        event.remove(Pool, "checkout", bound)


async def test_a_full_disk_refuses_work_with_503_and_loses_no_charge(
    client: httpx.AsyncClient, auth: dict[str, str], settings: Settings, services: Services
) -> None:
    raise_plans(settings.database_url)
    statuses = Counter[int]()
    with full_disk() as free_disk:
        for _ in range(MAX_REQUESTS):
            answer = await client.post("/tts-synthesize", headers=auth, json={"text": "Hi."})
            statuses[answer.status_code] += 1
            if answer.status_code != 200:
                break
        assert (answer.status_code, answer.json()["error"]) == (503, "unavailable")
        assert int(answer.headers["Retry-After"]) > 0
        assert (await client.get("/plans", headers=auth)).status_code == 200  # reads still work
        free_disk()
        answer = await client.post("/tts-synthesize", headers=auth, json={"text": "Hi."})
        assert answer.status_code == 200, answer.text
        statuses[200] += 1
        await services.platform.billing.wait_for_settlements()
    engine = make_engine(settings.database_url)
    with Session(engine) as session:
        check_sums(session)
        captures = select(func.count()).where(LedgerEntry.kind == "capture")
        assert session.exec(captures).one() == statuses[200]
    engine.dispose()
