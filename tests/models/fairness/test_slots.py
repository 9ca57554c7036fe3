"""Fair slots: turns, the last free slot, full queues, cancellation, and many owners at once."""

import asyncio
from contextlib import suppress
from functools import partial

import pytest

from models.fairness.slots import FairSlots
from pipelines.errors import Overloaded
from tests.clock import Clock
from tests.cpu_time import check_cpu_units

TOO_MUCH = partial(Overloaded, "too much waits")


class Work:
    """Pieces of work of owners; each takes a slot until it is ended."""

    def __init__(self, slots: int, max_waiting: int = 100) -> None:
        self.clock = Clock()
        self.slots = FairSlots(slots, max_waiting, TOO_MUCH, self.clock)
        self.began: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []
        self._ends: list[asyncio.Event] = []

    async def start(self, *owners: str) -> None:
        for owner in owners:
            self.tasks.append(asyncio.create_task(self._run(owner)))
            await settle()

    async def end(self, number: int, after_s: float = 1.0) -> None:
        """Ends the piece of work that began as the `number`th, from 0."""
        self.clock.now += after_s
        self._ends[number].set()
        await settle()

    async def _run(self, owner: str) -> None:
        async with self.slots.slot(owner):
            end = asyncio.Event()
            self.began.append(owner)
            self._ends.append(end)
            await end.wait()


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_backlog_of_one_owner_delays_another_by_one_piece_of_work() -> None:
    work = Work(1)
    await work.start(*"aaaaa", *"bb")
    for number in range(6):
        await work.end(number)
    assert "".join(work.began) == "ababaaa"


async def test_owners_of_long_work_follow_owners_of_short_work() -> None:
    work = Work(1)
    await work.start(*"aaa", *"bbb")
    await work.end(0, 10)
    for number in range(1, 4):
        await work.end(number, 0.1)
    assert "".join(work.began) == "abbba"


async def test_the_last_free_slot_is_kept_for_another_owner() -> None:
    work = Work(2)
    await work.start(*"aaa")
    assert work.began == ["a"]
    await work.start("b")
    assert work.began == ["a", "b"]
    await work.end(1)
    assert work.began == ["a", "b"]
    await work.end(0)
    assert work.began == ["a", "b", "a"]


async def test_a_full_queue_refuses_the_longest_owners_newest_request() -> None:
    work = Work(1, max_waiting=4)
    await work.start(*"aaaaaa", *"bb", *"bc")  # the first is at work, and four of `a` wait

    def refused() -> str:
        failed = (task.done() and isinstance(task.exception(), Overloaded) for task in work.tasks)
        return "".join("x" if one else "." for one in failed)

    # The fifth `a` that waits, one for each of two `b`, the third `b`, and another `a` for `c`.
    assert refused() == "..xxxx..x."
    for number in range(5):
        await work.end(number)
    assert sorted(work.began) == sorted("aabbc") and work.slots._free == 1


async def test_owners_that_fill_the_queue_do_not_keep_another_out() -> None:
    work = Work(2, max_waiting=6)
    await work.start(*"aaaaaa", *"bbbbbb", "c")
    other = work.tasks[-1]
    assert not other.done()
    await work.end(0)
    await work.end(1)
    assert "c" in work.began


async def test_owners_that_come_again_and_again_keep_no_newcomer_out() -> None:
    work = Work(1, max_waiting=4)
    await work.start(*"abcde")
    for number, owner in enumerate("abcdeabcdeab"):
        await work.end(number)
        await work.start(owner)  # at once, so that the queue stays full
    await work.start("n")
    assert not work.tasks[-1].done()
    for number in range(12, 16):
        await work.end(number)
    assert "n" in work.began
    assert sum(isinstance(task.exception(), Overloaded) for task in work.tasks if task.done()) == 1


@pytest.mark.parametrize("refused", [0, 2000])
def test_thousands_of_owners_wait_at_once_in_little_cpu_time(refused: int) -> None:
    async def wait() -> None:
        slots = FairSlots(3, 2000, TOO_MUCH)
        held = [await slots.take(f"holds {number}") for number in range(3)]

        async def take(owner: int) -> None:
            with suppress(Overloaded):
                (await slots.take(owner))()

        tasks = [asyncio.create_task(take(owner)) for owner in range(2000 + refused)]
        await asyncio.sleep(0)
        for leave in held:
            leave()
        await asyncio.gather(*tasks)

    check_cpu_units(
        lambda: asyncio.run(wait()), below=10
    )  # 1 to 3; 40 when each turn saw all owners


async def test_owners_that_are_remembered_do_not_grow_with_those_that_came() -> None:
    slots = FairSlots(1, 10, TOO_MUCH)
    leave = await slots.take("first")
    for number in range(5000):
        waiting = asyncio.create_task(slots.take(number))
        gives_up = asyncio.create_task(slots.take(-number))
        await asyncio.sleep(0)
        gives_up.cancel()
        leave()
        leave = await waiting
    leave()
    assert len(slots._order._used_s) + len(slots._without) + len(slots._order._taken) < 2500


async def test_work_that_is_refused_and_cancelled_at_once_takes_no_slot() -> None:
    work = Work(1, max_waiting=1)
    await work.start(*"aa")
    work.tasks += [asyncio.create_task(work._run(owner)) for owner in "b"]
    await asyncio.sleep(0)  # `a` waits, and is refused for `b` or the other way round
    for task in work.tasks[1:]:
        task.cancel()
    await settle()
    await work.end(0)
    assert (work.slots._free, work.slots._waiting.number) == (1, 0)


async def test_cancelled_work_frees_its_slot_or_its_place() -> None:
    work = Work(1)
    await work.start(*"aaab")
    work.tasks[1].cancel()
    await work.end(0)
    assert work.began == ["a", "b"]
    work.tasks[3].cancel()
    work.tasks[2].cancel()  # in the moment in which it gets the slot, or before
    await settle()
    await work.start("c")
    assert work.began[-1] == "c"
    assert work.slots._free == 0


async def test_each_owner_without_a_slot_makes_one_holder_leave() -> None:
    work = Work(2)
    await work.start(*"abab")
    asks = work.slots.asks_to_leave
    assert not asks("a", 9.0, 5.0)  # both who wait have a slot
    await work.start("c")
    assert not asks("a", 4.0, 5.0)  # its turn lasts
    assert asks("a", 5.0, 5.0) and not asks("b", 5.0, 5.0)
    await work.end(0, after_s=5.0)
    assert "".join(work.began) == "abc"
    # `a` waits without a slot, and has used 5 s.
    assert not asks("b", 9.0, 5.0) and asks("b", 10.0, 5.0)
    await work.start("d", "e")
    assert [asks("b", 10.0, 5.0) for _ in range(3)] == [True, True, False]
    for number in range(7):
        await work.end(number)


async def test_what_goes_on_comes_before_all_other_work_of_its_owner() -> None:
    work = Work(1)
    await work.start(*"abb")
    turn = asyncio.create_task(work.slots.take("b", is_first=True))
    await settle()
    await work.end(0)
    leave = await turn
    assert "".join(work.began) == "a"
    leave()
    await settle()
    assert "".join(work.began) == "ab"
    for number in (1, 2):
        await work.end(number)
