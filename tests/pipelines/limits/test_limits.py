"""Rate limit windows and leases within one process."""

import pytest

from pipelines.limits.limits import LEASE_S, MAX_WINDOWS, Hit, LeaseTable, Windows
from tests.clock import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def windows(clock: Clock) -> Windows:
    return Windows(clock, lambda: clock.now + 0.25)


def test_a_window_admits_exactly_its_limit_and_restarts_at_its_reset(
    windows: Windows, clock: Clock
) -> None:
    answers = [windows.hit(Hit("a", 3)) for _ in range(5)]
    assert [one.allowed for one in answers] == [True, True, True, False, False]
    assert [one.remaining for one in answers] == [2, 1, 0, 0, 0]
    assert {one.reset_at for one in answers} == {1061}
    clock.now += 59.9
    assert not windows.hit(Hit("a", 3)).allowed
    clock.now += 0.1
    again = windows.hit(Hit("a", 3))
    assert again.allowed and again.remaining == 2 and again.reset_at == 1121


def test_a_window_starts_at_its_first_hit(windows: Windows, clock: Clock) -> None:
    windows.hit(Hit("a", 3))
    clock.now += 30
    assert windows.hit(Hit("a", 3)).left_s == 30
    assert windows.hit(Hit("b", 3)).left_s == 60


def test_a_higher_limit_applies_within_the_current_window(windows: Windows) -> None:
    for _ in range(5):
        windows.hit(Hit("a", 3))
    assert windows.hit(Hit("a", 10)).remaining == 6  # refused hits are not counted


def test_hits_can_be_refunded_but_not_beyond_the_limit(windows: Windows) -> None:
    windows.hit(Hit("a", 3))
    assert windows.hit(Hit("a", 3, cost=-1)).remaining == 3
    assert windows.hit(Hit("a", 3, cost=-1)).remaining == 3
    assert windows.hit(Hit("b", 3, cost=-1)).remaining == 3 and len(windows._windows) == 1


def test_a_query_of_cost_zero_counts_no_hit(windows: Windows) -> None:
    assert windows.hit(Hit("a", 3, cost=0)).remaining == 3 and len(windows._windows) == 0


def test_expired_windows_are_removed_from_memory(windows: Windows, clock: Clock) -> None:
    for index in range(100):
        windows.hit(Hit(str(index), 3))
    clock.now += 61
    windows.hit(Hit("a", 3))
    assert len(windows._windows) == 1


def test_the_number_of_windows_in_memory_is_bounded(windows: Windows) -> None:
    for index in range(MAX_WINDOWS + 10):
        windows.hit(Hit(str(index), 3))
    assert len(windows._windows) == MAX_WINDOWS


def test_a_count_learned_from_another_process_never_lowers_the_own_count(windows: Windows) -> None:
    windows.hit(Hit("a", 5, cost=2))
    windows.learn("a", 1, 30, 1031)
    assert windows.hit(Hit("a", 5, cost=0)).remaining == 3
    windows.learn("a", 4, 30, 1031)
    window = windows.hit(Hit("a", 5, cost=0))
    assert (window.remaining, window.left_s, window.reset_at) == (1, 30, 1031)


def test_leases_are_acquired_renewed_released_and_expire(clock: Clock) -> None:
    leases = LeaseTable(clock)
    assert leases.acquire("a", "1", 2) and leases.acquire("a", "2", 2)
    assert not leases.acquire("a", "3", 2) and leases.acquire("b", "3", 2)
    leases.release("a", "1")
    assert leases.acquire("a", "3", 2)
    clock.now += LEASE_S - 1
    leases.renew("a", ["2"])
    clock.now += 1
    assert leases.acquire("a", "4", 2) and not leases.acquire("a", "5", 2)


def test_acquiring_a_lease_twice_takes_one_place(clock: Clock) -> None:
    leases = LeaseTable(clock)
    assert leases.acquire("a", "1", 1) and leases.acquire("a", "1", 1)
