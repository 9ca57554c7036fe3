"""Rate limits without Redis: one process counts, and a gateway that is alone counts by itself."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from pipelines.limits.cluster import ClusterStore, RequestCounter
from pipelines.limits.limits import Hit, LimitStore, SharedLimits, StoreLost
from tests.patience import PATIENCE_S, until


@dataclass
class Wire:
    """Remote calls from gateways to the counter: 2 ms each way, and all fail while `cut`."""

    counter: RequestCounter = field(default_factory=RequestCounter)
    cut: bool = False
    calls: list[str] = field(default_factory=list)

    async def __call__(self, method: str, *arguments: Any) -> Any:
        await asyncio.sleep(0.002)
        if self.cut:
            raise StoreLost("cut")
        self.calls.append(method)
        answer = await getattr(self.counter, method)(*arguments)
        await asyncio.sleep(0.002)
        return answer


@asynccontextmanager
async def gateway(wire: Wire) -> AsyncIterator[SharedLimits]:
    limits = SharedLimits(ClusterStore(wire), timeout_s=PATIENCE_S, most_failures=2)
    try:
        yield limits
    finally:
        await limits.close()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gateway is known to be the only one at once, and tells the counter soon."""
    monkeypatch.setattr("pipelines.limits.cluster.SETTLE_S", 0.0)
    monkeypatch.setattr("pipelines.limits.limits.REPORT_AFTER_S", 0.01)


async def test_only_a_lone_gateway_counts_hits_itself() -> None:
    wire = Wire()
    async with gateway(wire) as one:
        windows = [await one.hit("w", 100) for _ in range(10)]
    assert [window.remaining for window in windows] == [*range(99, 89, -1)]
    assert wire.calls.count("hits") == 10


async def until_registered(wire: Wire, gateways: int) -> None:
    await until(lambda: len(wire.counter._gateways) >= gateways, every_s=0.001)


def store_of(limits: SharedLimits) -> LimitStore:
    assert limits._store is not None
    return limits._store


@pytest.mark.parametrize("settle_s", [0.0, 60.0])
async def test_a_gateway_admits_exactly_the_limit_and_counts_down(
    monkeypatch: pytest.MonkeyPatch, settle_s: float
) -> None:
    monkeypatch.setattr("pipelines.limits.cluster.SETTLE_S", settle_s)
    async with gateway(Wire()) as one:
        windows = [await one.hit("w", 30) for _ in range(40)]
    assert [window.allowed for window in windows] == [True] * 30 + [False] * 10
    assert [window.remaining for window in windows] == [*range(29, -1, -1), *[0] * 10]
    assert len({window.reset_at for window in windows}) == 1


@pytest.mark.usefixtures("quick")
async def test_a_lone_gateway_decides_without_waiting_for_a_call() -> None:
    wire = Wire()
    async with gateway(wire) as one:
        for _ in range(900):
            assert (await one.hit("w", 1000)).allowed
    assert wire.calls.count("hits") < 25


@pytest.mark.usefixtures("quick")
async def test_a_lone_gateway_asks_for_windows_of_more_than_a_minute() -> None:
    wire = Wire()
    async with gateway(wire) as one:
        windows = [await one.hit("bytes", 1000, 3600, cost=100) for _ in range(11)]
    assert [window.remaining for window in windows] == [*range(900, -1, -100), 0]
    assert wire.calls.count("hits") == 11


@pytest.mark.usefixtures("quick")
async def test_a_second_gateway_knows_what_the_first_has_counted_alone() -> None:
    wire = Wire()
    async with gateway(wire) as first:
        assert all([(await first.hit("w", 50)).allowed for _ in range(30)])
        await until(lambda: wire.counter._windows.hit(Hit("w", 50, cost=0)).remaining == 20)
        async with gateway(wire) as second:
            second.start()
            await until_registered(wire, 2)
            await first.hit("x", 50)
            await until(lambda: not store_of(first).is_alone)
            both = (first, second)
            answers = await asyncio.gather(*(one.hit("w", 50) for _ in range(30) for one in both))
    assert sum(one.allowed for one in answers) == 20


@pytest.mark.usefixtures("quick")
async def test_an_idle_gateway_learns_of_a_second_one_as_it_renews(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pipelines.limits.limits.RENEW_S", 0.02)
    wire = Wire()
    async with gateway(wire) as first:
        for _ in range(2):
            await first.hit("x", 50)  # the second is decided alone
        async with gateway(wire) as second:
            second.start()
            assert all([(await second.hit("w", 50)).allowed for _ in range(50)])
            await until(lambda: not store_of(first).is_alone)
            assert not (await first.hit("w", 50)).allowed


async def test_a_lone_gateway_asks_until_shared_windows_have_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wire = Wire()
    async with gateway(wire) as first:
        async with gateway(wire) as second:
            assert all([(await second.hit("w", 50)).allowed for _ in range(25)])
            assert all([(await first.hit("w", 50)).allowed for _ in range(20)])
        assert sum([(await first.hit("w", 50)).allowed for _ in range(20)]) == 5


@pytest.mark.usefixtures("quick")
async def test_a_lone_gateway_without_the_counter_keeps_its_count() -> None:
    wire = Wire()
    async with gateway(wire) as one:
        assert all([(await one.hit("w", 50)).allowed for _ in range(30)])
        wire.cut = True
        assert sum([(await one.hit("w", 50)).allowed for _ in range(30)]) == 20


async def test_two_gateways_together_admit_exactly_the_limit() -> None:
    wire = Wire()
    async with gateway(wire) as first, gateway(wire) as second:
        assert sum([(await first.hit("w", 200)).allowed for _ in range(50)]) == 50
        both = (first, second)
        answers = await asyncio.gather(*(one.hit("w", 200) for _ in range(150) for one in both))
        rest = [(await one.hit("w", 200)).allowed for one in both for _ in range(100)]
        assert sum(one.allowed for one in answers) + sum(rest) == 150
        assert not first.degraded and not second.degraded


async def test_two_gateways_under_constant_load_admit_exactly_the_limit() -> None:
    wire = Wire()

    async def hit(limits: SharedLimits) -> int:
        return sum([(await limits.hit("w", 500)).allowed for _ in range(400)])

    async with gateway(wire) as first, gateway(wire) as second:
        assert sum(await asyncio.gather(hit(first), hit(second))) == 500


async def test_one_of_several_gateways_calls_the_counter_for_every_hit() -> None:
    wire = Wire()
    async with gateway(wire) as first, gateway(wire) as second:
        await asyncio.gather(first.hit("x", 10), second.hit("x", 10))
        await until_registered(wire, 2)
        await first.hit("w", 1001)
        window = await second.hit("w", 1001)
    assert window.remaining == 999


async def test_concurrent_hits_are_sent_to_the_counter_in_batches() -> None:
    wire = Wire()
    async with gateway(wire) as one, gateway(wire):
        await asyncio.gather(*(one.hit("w", 1000) for _ in range(100)))
    assert wire.calls.count("hits") <= 3


async def test_leases_are_shared_between_gateways() -> None:
    wire = Wire()
    async with gateway(wire) as first, gateway(wire) as second:
        one = await first.acquire("w", 2)
        two = await second.acquire("w", 2)
        assert one is not None and two is not None
        assert await first.acquire("w", 2) is None
        await one.release()
        assert await second.acquire("w", 2) is not None


async def test_a_restarted_counter_learns_leases_from_their_renewal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pipelines.limits.limits.RENEW_S", 0.02)
    wire = Wire()
    async with gateway(wire) as one:
        assert await one.acquire("w", 1) is not None
        wire.counter = RequestCounter()
        await until_registered(wire, 1)
        assert await one.acquire("w", 1) is None


async def test_each_gateway_enforces_its_share_of_the_limit_without_the_counter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pipelines.limits.limits.RENEW_S", 0.02)
    wire = Wire()
    async with gateway(wire) as first, gateway(wire) as second:
        both = (first, second)
        await asyncio.gather(*(one.hit("x", 10) for one in both))
        await until(lambda: all(store_of(one).gateways == 2 for one in both))
        wire.cut = True
        for one in both:
            answers = [await one.hit("w", 10) for _ in range(10)]
            assert sum(window.allowed for window in answers) == 5
            assert {window.limit for window in answers} == {10} and one.degraded


async def test_limits_hold_within_the_process_without_the_counter() -> None:
    async with gateway(Wire(cut=True)) as one:
        answers = [await one.hit("w", 5) for _ in range(10)]
        assert sum(window.allowed for window in answers) == 5
        assert one.degraded
