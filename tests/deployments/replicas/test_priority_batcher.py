"""PriorityBatcher: the order and the batches in which an STT replica decodes its requests."""

import asyncio

import numpy as np
import pytest

from deployments.replicas import scheduling
from deployments.replicas.scheduling import PriorityBatcher, Results
from models.errors import EngineError, EngineOverloaded, UnsupportedLanguage
from models.stt.base import (
    FILE,
    FINAL,
    INTERIM,
    SPECULATIVE,
    STT_SAMPLE_RATE,
    Transcript,
    TranscriptionRequest,
)

MAX_BATCH_SIZE = 4


class Engine:
    """Completes a batch when its gate opens; records requests by `language`, their name here."""

    def __init__(self, concurrency: int = 1, batch_size: int = MAX_BATCH_SIZE) -> None:
        self.concurrency = concurrency
        self.batches: list[list[str | None]] = []
        self.requests: list[TranscriptionRequest] = []
        self.gates: list[asyncio.Event] = []
        self.now = 1000.0
        self.tasks: list[asyncio.Task[Transcript]] = []
        self.queue = PriorityBatcher(
            self._run, lambda: self.concurrency, lambda: batch_size, lambda: self.now
        )

    async def _run(self, requests: list[TranscriptionRequest]) -> Results:
        self.batches.append([request.language for request in requests])
        self.requests += requests
        gate = asyncio.Event()
        self.gates.append(gate)
        await gate.wait()
        return [
            UnsupportedLanguage("no") if one.language == "bad" else Transcript(str(one.language), 1)
            for one in requests
        ]

    def submit(
        self,
        name: str,
        urgency: int = FINAL,
        seconds: float = 1,
        owner: str = "",
        *,
        is_live: bool | None = None,
    ) -> asyncio.Task[Transcript]:
        pcm = np.ones(int(seconds * STT_SAMPLE_RATE), np.float32)
        is_live = urgency < FILE if is_live is None else is_live
        request = TranscriptionRequest(pcm, name, urgency=urgency, owner=owner, is_live=is_live)
        self.tasks.append(asyncio.create_task(self.queue.submit(request)))
        return self.tasks[-1]

    async def end(self, batch: int) -> None:
        """Completes the batch that began as the `batch`th, from 0."""
        self.gates[batch].set()
        await settle()

    async def end_all(self, failures: int = 0) -> None:
        """Completes every batch; so many of all requests have failed or were cancelled."""
        at = 0
        while at < len(self.gates):
            await self.end(at)
            at += 1
        answers = await asyncio.gather(*self.tasks, return_exceptions=True)
        assert sum(isinstance(answer, BaseException) for answer in answers) == failures, answers


async def busy(batch_size: int = MAX_BATCH_SIZE) -> Engine:
    """An engine that decodes the request `blocker`."""
    engine = Engine(batch_size=batch_size)
    engine.submit("blocker")
    await settle()
    return engine


async def contended() -> Engine:
    """An engine with two places, of which the tenant `b` has used one lately."""
    engine = Engine(concurrency=2, batch_size=1)
    engine.submit("other", owner="b")
    await settle()
    await engine.end(0)
    return engine


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_requests_are_decoded_in_order_of_urgency() -> None:
    engine = await busy()
    names = {"file": FILE, "interim": INTERIM, "soon": SPECULATIVE, "final": FINAL}
    for name, urgency in names.items():
        engine.submit(name, urgency)
    await settle()
    await engine.end_all()
    assert engine.batches == [["blocker"], ["final"], ["soon"], ["interim"], ["file"]]
    assert [task.result().language for task in engine.tasks] == ["blocker", *names]


async def test_a_file_that_has_waited_long_is_decoded_before_a_new_final() -> None:
    engine = await busy()
    engine.submit("file", FILE)
    await settle()
    engine.now += 7
    engine.submit("final")
    await settle()
    await engine.end_all()
    assert engine.batches == [["blocker"], ["file"], ["final"]]


async def test_requests_of_similar_length_share_a_batch() -> None:
    engine = await busy()
    for number in range(3):
        engine.submit(f"short {number}", seconds=2)
    engine.submit("long", seconds=20)
    await settle()
    await engine.end_all()
    assert engine.batches == [["blocker"], ["short 0", "short 1", "short 2"], ["long"]]


@pytest.mark.parametrize(
    ("urgency", "batch_size", "size"),
    [
        pytest.param(INTERIM, MAX_BATCH_SIZE, 1, id="interims are not batched"),
        pytest.param(FINAL, 16, 16, id="as large as the engine allows"),
    ],
)
async def test_a_batch_has_the_size_of_its_kind(urgency: int, batch_size: int, size: int) -> None:
    engine = await busy(batch_size)
    for number in range(20):
        engine.submit(str(number), urgency)
    await settle()
    await engine.end(0)
    assert [len(batch) for batch in engine.batches] == [1, size]
    await engine.end_all()


@pytest.mark.parametrize(("first", "second"), [(FINAL, FINAL), (FILE, INTERIM)])
async def test_two_free_places_take_one_request_each(first: int, second: int) -> None:
    engine = Engine(concurrency=2)
    engine.submit("a", first)
    engine.submit("b", second)
    await settle()
    assert engine.batches == [["a"], ["b"]]
    await engine.end_all()


async def test_files_leave_one_place_free_for_live_speech() -> None:
    engine = Engine(concurrency=2)
    engine.submit("live")
    for number in range(2):
        engine.submit(f"file {number}", FILE)
    await settle()
    assert engine.batches == [["live"]]
    engine.submit("next")
    await settle()
    assert engine.batches == [["live"], ["next"]]
    engine.now += 60
    await engine.end_all()
    assert [name for batch in engine.batches[2:] for name in batch] == ["file 0", "file 1"]


async def test_steady_live_speech_does_not_starve_files() -> None:
    engine = Engine(concurrency=2)
    engine.submit("live")
    engine.submit("file", FILE)
    await settle()
    for number in range(4):  # each arrives before the previous one ends
        engine.now += 2
        engine.submit(f"live {number}")
        await settle()
        await engine.end(number)
    assert ["file"] in engine.batches
    await engine.end_all()


async def test_a_request_cancelled_in_the_queue_is_not_decoded() -> None:
    engine = await busy()
    gone, _ = engine.submit("gone"), engine.submit("stays")
    await settle()
    gone.cancel()
    await settle()
    await engine.end_all(failures=1)
    assert engine.batches == [["blocker"], ["stays"]]


async def test_a_request_cancelled_in_a_running_batch_does_not_affect_the_others() -> None:
    engine = await busy()
    gone, stays = engine.submit("gone"), engine.submit("stays")
    await settle()
    await engine.end(0)
    assert engine.batches[1] == ["gone", "stays"]
    gone.cancel()
    await engine.end_all(failures=1)
    assert stays.result().language == "stays"


async def test_an_error_of_one_request_of_a_batch_reaches_only_that_request() -> None:
    engine = await busy()
    bad, good = engine.submit("bad"), engine.submit("good")
    await settle()
    await engine.end_all(failures=1)
    assert isinstance(bad.exception(), UnsupportedLanguage)
    assert good.result().language == "good"


async def test_an_engine_exception_reaches_the_callers_and_frees_the_place() -> None:
    faults = [ValueError("broken")]

    async def run(requests: list[TranscriptionRequest]) -> Results:
        if faults:
            raise faults.pop()
        return [Transcript("en", 1.0)]

    queue = PriorityBatcher(run, lambda: 1, lambda: MAX_BATCH_SIZE)
    request = TranscriptionRequest(np.ones(16, np.float32))
    with pytest.raises(ValueError, match="broken"):
        await queue.submit(request)
    assert (await queue.submit(request)).language == "en"


async def test_interims_are_refused_and_dropped_while_finals_wait() -> None:
    engine = await busy()
    early = engine.submit("early", INTERIM)
    engine.submit("final")
    await settle()
    engine.now += 1
    with pytest.raises(EngineOverloaded):
        await engine.submit("interim", INTERIM)
    await engine.end_all(failures=2)
    assert engine.batches == [["blocker"], ["final"]]
    assert isinstance(early.exception(), EngineOverloaded)  # its result would be too late


async def test_interims_leave_one_place_free_for_finals() -> None:
    engine = Engine(concurrency=2)
    engine.submit("interim", INTERIM)
    engine.submit("other", INTERIM)
    await settle()
    assert engine.batches == [["interim"]]
    engine.submit("final")
    await settle()
    assert engine.batches == [["interim"], ["final"]]
    await engine.end(0)
    assert engine.batches == [["interim"], ["final"]], "it would slow the final down"
    await engine.end_all()
    assert engine.batches[2:] == [["other"]]


async def test_time_in_the_queue_counts_against_retry_within_s() -> None:
    engine = await busy()
    hasty = TranscriptionRequest(np.ones(9, np.float32), "hasty", retry_within_s=0.5)
    engine.tasks.append(asyncio.create_task(engine.queue.submit(hasty)))
    await settle()
    engine.now += 0.3
    await engine.end_all()
    blocker, taken = engine.requests
    assert blocker.retry_within_s is None
    assert taken.retry_within_s == pytest.approx(0.2)


async def test_a_full_queue_refuses_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduling, "CAPACITY", 2)
    engine = await busy()
    for number in range(2):
        engine.submit(f"{number}")
    await settle()
    with pytest.raises(EngineError, match="too many"):
        await engine.submit("one more")
    await engine.end_all(failures=1)


async def test_files_of_one_tenant_delay_those_of_another_by_one() -> None:
    engine = Engine(batch_size=1)
    for number in range(4):
        engine.submit(f"many {number}", FILE, owner="a")
    await settle()
    engine.now += 60  # waiting long does not put a backlog before a newcomer
    for number in range(2):
        engine.submit(f"few {number}", FILE, owner="b")
    for at in range(6):
        await settle()
        engine.now += 1
        await engine.end(at)
    order = [name for batch in engine.batches for name in batch]
    assert order.index("few 0") == 2 and order.index("few 1") <= 4


async def test_tenants_take_turns_by_the_time_that_they_have_used() -> None:
    engine = Engine(batch_size=1)
    for name, owner in (("long", "a"), ("short", "b")):
        for number in range(3):
            engine.submit(f"{name} {number}", owner=owner)
    for at in range(6):
        await settle()
        engine.now += 10 if "long" in str(engine.batches[at]) else 1
        await engine.end(at)
    order = [name for batch in engine.batches for name in batch]
    assert order == ["long 0", "short 0", "short 1", "short 2", "long 1", "long 2"]


async def test_a_final_does_not_wait_for_interims_of_its_session() -> None:
    engine = await contended()
    engine.submit("interim", INTERIM, owner="a")
    engine.submit("final", owner="a")
    await settle()
    assert engine.batches[1:] == [["interim"], ["final"]]
    await engine.end_all()


@pytest.mark.parametrize(
    ("urgency", "is_live", "waited_s"),
    [
        pytest.param(FILE, False, 30, id="files"),
        pytest.param(FINAL, False, 0, id="short files"),
        pytest.param(FINAL, True, 0, id="finals"),
    ],
)
async def test_a_tenant_leaves_one_slot_free_while_another_comes(
    urgency: int, is_live: bool, waited_s: int
) -> None:
    engine = await contended()
    engine.now += waited_s
    for number in range(3):
        engine.submit(f"many {number}", urgency, owner="a", is_live=is_live)
    await settle()
    assert engine.batches == [["other"], ["many 0"]]
    engine.submit("other again", urgency, owner="b", is_live=is_live)
    await settle()
    assert engine.batches[2:] == [["other again"]]
    await engine.end_all()


async def test_a_batch_is_as_large_as_the_engine_is_fast() -> None:
    """Nothing interrupts it: three files of 17 s took 15 s of two cores."""
    engine = Engine(batch_size=4)
    engine.submit("first", FILE, seconds=10)
    await settle()
    for number in range(4):
        engine.submit(f"{number}", FILE, seconds=10)
    await settle()
    engine.now += 1.4
    await engine.end(0)
    assert engine.batches[1] == ["0", "1"]
    engine.now += 0.1
    await engine.end(1)
    for number in (4, 5):
        engine.submit(f"{number}", FILE, seconds=10)
    await settle()
    await engine.end_all()
    assert engine.batches[2:] == [["2", "3"], ["4", "5"]]


async def test_a_full_queue_refuses_the_tenant_that_fills_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scheduling, "CAPACITY", 3)
    engine = Engine()
    for number in range(4):
        engine.submit(f"{number}", owner="a")
    await settle()
    engine.submit("other", owner="b")
    await settle()
    await engine.end_all(failures=1)
    assert isinstance(engine.tasks[3].exception(), EngineOverloaded)


async def test_late_finals_of_a_tenant_do_not_drop_the_interims_of_another() -> None:
    engine = Engine(batch_size=1)
    for number in range(3):
        engine.submit(f"{number}", owner="a")
    await settle()
    engine.now += 1
    engine.submit("interim", INTERIM, owner="b")
    await settle()
    await engine.end(0)
    assert engine.batches[1] == ["interim"]
    await engine.end_all()


async def test_a_batch_of_several_tenants_is_full() -> None:
    engine = Engine()
    engine.submit("blocker", owner="a")
    await settle()
    for owner in "ab":
        for number in (1, 2):
            engine.submit(f"{owner}{number}", owner=owner)
    await settle()
    engine.now += 0.5
    await engine.end_all()
    assert engine.batches == [["blocker"], ["b1", "b2", "a1", "a2"]]
