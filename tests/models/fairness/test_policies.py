"""The two policies: no owner waits for ever, a lone owner gets all, and its own order is kept."""

import asyncio
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from db.jobs.interleaving import interleave
from models.fairness.shares import CONTENDED_S, Share
from models.fairness.slots import FairSlots
from tests.clock import Clock

OWNERS = "abcde"
PIECES = st.lists(st.tuples(st.sampled_from(OWNERS), st.integers(0, 5)), max_size=40)
SHARES = st.builds(
    Share, ceiling=st.integers(1, 60), keeps_last=st.booleans(), spares=st.integers(0, 8)
)


class Service:
    """Pieces of work in slots, of which one at a time ends: the one that began first."""

    def __init__(self, slots: int) -> None:
        self.clock = Clock()
        self.slots = FairSlots(slots, clock=self.clock, contended_s=CONTENDED_S)
        self.begun: list[tuple[str, int]] = []  # owners, and the numbers of their pieces
        self.came_at: dict[str, int] = {}  # how many pieces had begun when an owner first came
        self._pieces = Counter[str]()
        self._running: list[tuple[int, asyncio.Event]] = []  # seconds, and the end
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, owner: str, seconds: int) -> None:
        self.came_at.setdefault(owner, len(self.begun))
        self._tasks.append(asyncio.create_task(self._run(owner, self._pieces[owner], seconds)))
        self._pieces[owner] += 1
        await settle()

    async def end(self) -> bool:
        """Whether there was a piece to end."""
        if not self._running:
            return False
        seconds, end = self._running.pop(0)
        self.clock.now += seconds
        end.set()
        await settle()
        return True

    async def _run(self, owner: str, number: int, seconds: int) -> None:
        async with self.slots.slot(owner):
            self.begun.append((owner, number))
            end = asyncio.Event()
            self._running.append((seconds, end))
            await end.wait()


async def settle() -> None:
    for _ in range(8):
        await asyncio.sleep(0)


@settings(max_examples=60, deadline=None)
@given(PIECES, st.integers(1, 4), st.integers(1, 4))
def test_turns_come_to_every_owner_in_its_own_order(
    pieces: list[tuple[str, int]], slots: int, starts_an_end: int
) -> None:
    async def serve() -> Service:
        service = Service(slots)
        for number, (owner, seconds) in enumerate(pieces):
            await service.start(owner, seconds)
            if number % starts_an_end == 0:
                await service.end()
        while await service.end():
            pass
        return service

    service = asyncio.run(serve())
    assert len(service.begun) == len(pieces) and service.slots.taken == 0
    for owner, came_at in service.came_at.items():
        numbers = [number for other, number in service.begun if other == owner]
        assert numbers == sorted(numbers)
        # A newcomer waits for one piece of each other owner at most.
        assert service.begun.index((owner, 0)) - came_at < len(OWNERS)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 8))
def test_a_lone_owner_gets_every_slot(slots: int) -> None:
    async def taken() -> int:
        service = Service(slots)
        for _ in range(slots + 1):
            await service.start("a", 1)
        number = service.slots.taken
        while await service.end():
            pass
        return number

    assert asyncio.run(taken()) == slots


@given(PIECES, st.dictionaries(st.sampled_from(OWNERS), st.integers(0, 3)))
def test_claims_interleave_owners_and_keep_the_order_of_each(
    pieces: list[tuple[str, int]], held: dict[str, int]
) -> None:
    numbered = list(enumerate(pieces))
    order = interleave(
        numbered, owner=lambda piece: piece[1][0], rank=lambda piece: piece[1][1], held=held
    )
    assert sorted(order) == numbered
    for owner in OWNERS:
        mine = [number for number, (other, _) in order if other == owner]
        assert mine == sorted(mine)
    ahead = Counter(held)
    left = Counter(owner for owner, _ in pieces)
    for _, (owner, _) in order:
        assert ahead[owner] == min(ahead[other] for other in +left)
        ahead[owner] += 1
        left[owner] -= 1


@given(SHARES, st.integers(2, 50))
def test_only_a_share_leaves_a_place_to_another_owner(share: Share, capacity: int) -> None:
    def greedy(share: Share) -> int:
        held = 0
        while share.allows(held, capacity - held):
            held += 1
        return held

    assert greedy(Share()) == capacity
    held = greedy(share)
    assert 1 <= held <= share.ceiling
    if share.keeps_last or share.spares or share.ceiling < capacity:
        assert share.allows(0, capacity - held)
