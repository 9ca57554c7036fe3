"""Limits without Redis: one process decides, or a lone gateway does, and never two at a time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from pipelines.limits.cluster import Arbiter, ArbiterStore
from pipelines.limits.local import Tables
from pipelines.limits.shared import SharedLimits, StoreLost


@pytest.fixture(autouse=True)
def short_terms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.limits.cluster.TERM_S", 0.4)
    monkeypatch.setattr("pipelines.limits.cluster.ATTEND_S", 0.1)


@dataclass
class Wire:
    """Between gateways and the arbiter; both ways take a little, and it may be cut."""

    arbiter: Arbiter = field(default_factory=Arbiter)
    cut: bool = False
    asked: list[str] = field(default_factory=list)

    async def __call__(self, method: str, *arguments: Any) -> Any:
        await asyncio.sleep(0.002)
        if self.cut:
            raise StoreLost("cut")
        self.asked.append(method)
        answer = await getattr(self.arbiter, method)(*arguments)
        await asyncio.sleep(0.002)
        return answer


@dataclass
class Gateway:
    store: ArbiterStore
    limits: SharedLimits

    async def until_it_leads(self, leads: bool = True) -> None:
        async with asyncio.timeout(3):
            while self.store.leads != leads:
                await asyncio.sleep(0.01)


@asynccontextmanager
async def gateway(wire: Wire) -> AsyncIterator[Gateway]:
    tables = Tables()
    store = ArbiterStore(wire, tables)
    store.start()
    limits = SharedLimits(store, tables, timeout_s=0.5, failures=2)
    try:
        yield Gateway(store, limits)
    finally:
        await limits.close()


async def test_a_lone_gateway_comes_to_decide_without_asking() -> None:
    wire = Wire()
    async with gateway(wire) as one:
        for _ in range(10):
            assert (await one.limits.hit("w", 30)).allowed
        assert wire.asked.count("hits") == 10
        await one.until_it_leads()
        assert (await one.limits.hit("w", 30)).remaining == 19
        assert wire.asked.count("hits") == 10


async def test_a_second_gateway_ends_the_reign_and_both_together_admit_exactly_the_limit() -> None:
    wire = Wire()
    async with gateway(wire) as first:
        await first.until_it_leads()
        assert sum([(await first.limits.hit("w", 200)).allowed for _ in range(50)]) == 50
        async with gateway(wire) as second:
            both = (first.limits, second.limits)
            answers = await asyncio.gather(*(one.hit("w", 200) for _ in range(150) for one in both))
            assert sum(one.allowed for one in answers) == 150
            assert not first.store.leads and not second.store.leads
            assert not first.limits.degraded and not second.limits.degraded


async def test_what_was_counted_in_a_term_that_ran_out_is_not_forgotten() -> None:
    wire = Wire()
    async with gateway(wire) as one:
        await one.until_it_leads()
        for _ in range(20):
            assert (await one.limits.hit("w", 30)).allowed
        attend = one.store.attend
        one.store.attend = lambda: asyncio.sleep(10)  # type: ignore[method-assign]  # it stalls
        await one.until_it_leads(leads=False)
        asked = wire.asked.count("hits")
        assert (await one.limits.hit("w", 30)).remaining == 9
        assert wire.asked.count("hits") == asked + 1
        one.store.attend = attend  # type: ignore[method-assign]


async def test_hits_that_never_pause_are_exact_through_every_handover() -> None:
    wire = Wire()
    allowed = 0

    async def hit(limits: SharedLimits, seconds: float) -> None:
        nonlocal allowed
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while loop.time() < until:
            window = await limits.hit("w", 100_000)
            allowed += window.allowed
            await asyncio.sleep(0.001)

    async with gateway(wire) as first:
        await first.until_it_leads()
        running = asyncio.gather(*(hit(first.limits, 2.5) for _ in range(3)))
        await asyncio.sleep(0.2)
        async with gateway(wire) as second:
            await hit(second.limits, 0.5)
        await first.until_it_leads()  # the other has left
        async with gateway(wire) as third:
            await hit(third.limits, 0.3)
        await running
        window = await first.limits.hit("w", 100_000, cost=0)
    assert 100_000 - window.remaining == allowed


async def test_a_gateway_without_the_arbiter_stops_to_reign_before_another_begins() -> None:
    wire, cut = Wire(), Wire()
    cut.arbiter = wire.arbiter
    async with gateway(cut) as lost:
        await lost.until_it_leads()
        cut.cut = True
        async with gateway(wire) as other:
            began = asyncio.get_running_loop().time()
            window = await other.limits.hit("w", 10)
            assert window.allowed and not lost.store.leads
            assert asyncio.get_running_loop().time() - began < 0.5
            assert (await lost.limits.hit("w", 10)).limit == 10  # the twin decides, and never fails


async def test_a_new_arbiter_learns_what_the_gateway_has_counted() -> None:
    wire = Wire()
    async with gateway(wire) as one:
        await one.until_it_leads()
        for _ in range(7):
            await one.limits.hit("w", 10)
        lease = await one.limits.acquire("w", 1)
        assert lease is not None
        wire.arbiter = Arbiter()
        await one.until_it_leads(False)
        assert (await one.limits.hit("w", 10)).remaining == 2
        assert await one.limits.acquire("w", 1) is None
        await one.until_it_leads()
        assert (await one.limits.hit("w", 10)).remaining == 1
        await lease.release()
        assert await one.limits.acquire("w", 1) is not None


async def test_places_are_shared_whoever_decides() -> None:
    wire = Wire()
    async with gateway(wire) as first:
        await first.until_it_leads()
        one = await first.limits.acquire("w", 2)
        async with gateway(wire) as second:
            two = await second.limits.acquire("w", 2)
            assert one is not None and two is not None
            assert await first.limits.acquire("w", 2) is None
            await one.release()
            three = await second.limits.acquire("w", 2)
            assert three is not None
            await three.release()
            await two.release()
        await first.until_it_leads()
        taken = [await first.limits.acquire("w", 2) for _ in range(3)]
        assert [lease is not None for lease in taken] == [True, True, False]


async def test_hits_of_one_moment_go_to_the_arbiter_together() -> None:
    wire = Wire()
    async with gateway(wire) as one, gateway(wire):
        await asyncio.gather(*(one.limits.hit("w", 1000) for _ in range(100)))
    assert wire.asked.count("hits") <= 3


async def test_without_an_arbiter_the_gateway_decides_by_itself() -> None:
    wire = Wire(cut=True)
    async with gateway(wire) as one:
        answers = [await one.limits.hit("w", 5) for _ in range(10)]
        assert sum(window.allowed for window in answers) == 5
        assert one.limits.degraded
