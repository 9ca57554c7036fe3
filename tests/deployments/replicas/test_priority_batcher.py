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
        return asyncio.create_task(self.queue.submit(request))

    async def release_all(self) -> None:
        at = 0
        while at < len(self.gates):
            self.gates[at].set()
            at += 1
            for _ in range(5):
                await asyncio.sleep(0)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_requests_are_decoded_in_order_of_urgency() -> None:
    engine = Engine()
    blocker = engine.submit("blocker")
    await settle()
    names = {"file": FILE, "interim": INTERIM, "soon": SPECULATIVE, "final": FINAL}
    tasks = [engine.submit(name, urgency) for name, urgency in names.items()]
    await settle()
    await engine.release_all()
    assert engine.batches == [["blocker"], ["final"], ["soon"], ["interim"], ["file"]]
    answers = [(await task).language for task in (blocker, *tasks)]
    assert answers == ["blocker", *names]


async def test_a_file_that_has_waited_long_is_decoded_before_a_new_final() -> None:
    engine = Engine()
    tasks = [engine.submit("blocker"), engine.submit("file", FILE)]
    await settle()
    engine.now += 7
    tasks.append(engine.submit("final"))
    await settle()
    await engine.release_all()
    assert engine.batches == [["blocker"], ["file"], ["final"]]
    await asyncio.gather(*tasks)


async def test_requests_of_similar_length_share_a_batch() -> None:
    engine = Engine()
    tasks = [engine.submit("blocker")]
    await settle()
    tasks += [engine.submit(f"short {i}", seconds=2) for i in range(3)]
    tasks += [engine.submit("long", seconds=20)]
    await settle()
    await engine.release_all()
    assert engine.batches == [["blocker"], ["short 0", "short 1", "short 2"], ["long"]]
    await asyncio.gather(*tasks)


async def test_interims_are_not_batched() -> None:
    engine = Engine()
    tasks = [engine.submit("blocker"), *(engine.submit(f"{i}", INTERIM) for i in range(4))]
    await settle()
    engine.gates[0].set()
    await settle()
    assert engine.batches == [["blocker"], ["0"]]
    await engine.release_all()
    await asyncio.gather(*tasks)


async def test_a_batch_is_as_large_as_the_engine_allows() -> None:
    engine = Engine(batch_size=16)
    tasks = [engine.submit("blocker")]
    await settle()
    tasks += [engine.submit(str(number)) for number in range(20)]
    await settle()
    engine.gates[0].set()
    await settle()
    assert [len(batch) for batch in engine.batches] == [1, 16]
    await engine.release_all()
    await asyncio.gather(*tasks)


async def test_two_free_places_take_one_request_each_instead_of_a_batch() -> None:
    engine = Engine(concurrency=2)
    tasks = [engine.submit(name) for name in ("a", "b")]
    await settle()
    assert engine.batches == [["a"], ["b"]]
    await engine.release_all()
    await asyncio.gather(*tasks)


async def test_files_leave_one_place_free_for_live_speech() -> None:
    engine = Engine(concurrency=2)
    tasks = [engine.submit("live")]
    tasks += [engine.submit(f"file {i}", FILE) for i in range(2)]
    await settle()
    assert engine.batches == [["live"]]
    tasks.append(engine.submit("next"))
    await settle()
    assert engine.batches == [["live"], ["next"]]
    engine.now += 60
    await engine.release_all()
    assert [one for batch in engine.batches[2:] for one in batch] == ["file 0", "file 1"]
    await asyncio.gather(*tasks)


async def test_steady_live_speech_does_not_starve_files() -> None:
    engine = Engine(concurrency=2)
    tasks = [engine.submit("live"), engine.submit("file", FILE)]
    await settle()
    for number in range(4):  # each arrives before the previous one ends
        engine.now += 2
        tasks.append(engine.submit(f"live {number}"))
        await settle()
        engine.gates[number].set()
        await settle()
    assert ["file"] in engine.batches
    await engine.release_all()
    await asyncio.gather(*tasks)


async def test_a_request_cancelled_in_the_queue_is_not_decoded() -> None:
    engine = Engine()
    blocker = engine.submit("blocker")
    gone, stays = engine.submit("gone"), engine.submit("stays")
    await settle()
    gone.cancel()
    await settle()
    await engine.release_all()
    assert engine.batches == [["blocker"], ["stays"]]
    assert (await stays).language == "stays"
    assert (await blocker).language == "blocker"


async def test_a_request_cancelled_in_a_running_batch_does_not_affect_the_others() -> None:
    engine = Engine()
    tasks = [engine.submit("blocker")]
    await settle()
    gone, stays = engine.submit("gone"), engine.submit("stays")
    await settle()
    engine.gates[0].set()
    await settle()
    assert engine.batches[1] == ["gone", "stays"]
    gone.cancel()
    await engine.release_all()
    assert (await stays).language == "stays"
    await asyncio.gather(*tasks)


async def test_an_error_of_one_request_of_a_batch_reaches_only_that_request() -> None:
    engine = Engine()
    tasks = [engine.submit("blocker")]
    await settle()
    bad, good = engine.submit("bad"), engine.submit("good")
    await settle()
    await engine.release_all()
    with pytest.raises(UnsupportedLanguage):
        await bad
    assert (await good).language == "good"
    await asyncio.gather(*tasks)


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
    engine = Engine()
    tasks = [engine.submit("blocker")]
    await settle()
    early = engine.submit("early", INTERIM)
    tasks.append(engine.submit("final"))
    await settle()
    engine.now += 1
    with pytest.raises(EngineOverloaded):
        await engine.submit("interim", INTERIM)
    await engine.release_all()
    assert engine.batches == [["blocker"], ["final"]]
    with pytest.raises(EngineOverloaded):
        await early  # its result would be too late
    await asyncio.gather(*tasks)


async def test_interims_leave_one_place_free_for_finals() -> None:
    engine = Engine(concurrency=2)
    tasks = [engine.submit("interim", INTERIM), engine.submit("other", INTERIM)]
    await settle()
    assert engine.batches == [["interim"]]
    tasks.append(engine.submit("final"))
    await settle()
    assert engine.batches == [["interim"], ["final"]]
    engine.gates[0].set()
    await settle()
    assert engine.batches == [["interim"], ["final"]], "it would slow the final down"
    await engine.release_all()
    assert engine.batches[2:] == [["other"]]
    await asyncio.gather(*tasks)


async def test_an_interim_is_decoded_beside_a_running_file() -> None:
    engine = Engine(concurrency=2)
    tasks = [engine.submit("file", FILE), engine.submit("interim", INTERIM)]
    await settle()
    assert engine.batches == [["file"], ["interim"]]
    await engine.release_all()
    await asyncio.gather(*tasks)


async def test_time_in_the_queue_counts_against_retry_within_s() -> None:
    engine = Engine()
    tasks = [engine.submit("blocker")]
    await settle()
    hasty = TranscriptionRequest(np.ones(9, np.float32), "hasty", retry_within_s=0.5)
    tasks += [asyncio.create_task(engine.queue.submit(hasty))]
    await settle()
    engine.now += 0.3
    await engine.release_all()
    await asyncio.gather(*tasks)
    blocker, taken = engine.requests
    assert blocker.retry_within_s is None
    assert taken.retry_within_s == pytest.approx(0.2)


async def test_a_full_queue_refuses_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduling, "CAPACITY", 2)
    engine = Engine()
    tasks = [engine.submit("blocker")]
    await settle()
    tasks += [engine.submit(f"{i}") for i in range(2)]
    await settle()
    with pytest.raises(EngineError, match="too many"):
        await engine.submit("one more")
    await engine.release_all()
    await asyncio.gather(*tasks)


async def test_files_of_one_tenant_delay_those_of_another_by_one() -> None:
    engine = Engine(batch_size=1)
    tasks = [engine.submit(f"many {number}", FILE, owner="a") for number in range(4)]
    await settle()
    engine.now += 60  # waiting long does not put a backlog before a newcomer
    tasks += [engine.submit(f"few {number}", FILE, owner="b") for number in range(2)]
    for at in range(6):
        await settle()
        engine.now += 1
        engine.gates[at].set()
    await asyncio.gather(*tasks)
    order = [one for batch in engine.batches for one in batch]
    assert order.index("few 0") == 2 and order.index("few 1") <= 4


async def test_tenants_take_turns_by_the_time_that_they_have_used() -> None:
    engine = Engine(batch_size=1)
    tasks = [engine.submit(f"long {number}", owner="a") for number in range(3)]
    tasks += [engine.submit(f"short {number}", owner="b") for number in range(3)]
    for at in range(6):
        await settle()
        engine.now += 10 if "long" in str(engine.batches[at]) else 1
        engine.gates[at].set()
    await asyncio.gather(*tasks)
    order = [one for batch in engine.batches for one in batch]
    assert order == ["long 0", "short 0", "short 1", "short 2", "long 1", "long 2"]


async def test_a_final_does_not_wait_for_interims_of_its_session() -> None:
    engine = Engine(concurrency=2)
    tasks = [engine.submit("other", FILE, owner="b")]
    await settle()
    engine.gates[0].set()
    await settle()
    tasks += [engine.submit("interim", INTERIM, owner="a"), engine.submit("final", owner="a")]
    await settle()
    assert engine.batches[1:] == [["interim"], ["final"]]
    await engine.release_all()
    await asyncio.gather(*tasks)


async def test_one_slot_stays_free_of_files_of_a_tenant_while_another_comes() -> None:
    engine = Engine(concurrency=2, batch_size=1)
    tasks = [engine.submit("other", owner="b")]
    await settle()
    engine.gates[0].set()
    await settle()
    engine.now += 30
    tasks += [engine.submit(f"many {number}", FILE, owner="a") for number in range(3)]
    await settle()
    assert engine.batches == [["other"], ["many 0"]]
    tasks.append(engine.submit("other again", FILE, owner="b"))
    await settle()
    assert engine.batches[2:] == [["other again"]]
    await engine.release_all()
    await asyncio.gather(*tasks)


async def test_short_files_of_a_tenant_leave_one_slot_free_too() -> None:
    engine = Engine(concurrency=2, batch_size=1)
    tasks = [engine.submit("other", owner="b")]
    await settle()
    engine.gates[0].set()
    await settle()
    tasks += [engine.submit(f"short {number}", owner="a", is_live=False) for number in range(3)]
    await settle()
    assert engine.batches == [["other"], ["short 0"]]
    await engine.release_all()
    await asyncio.gather(*tasks)


async def test_finals_of_a_tenant_leave_one_slot_free_too_while_another_comes() -> None:
    engine = Engine(concurrency=2, batch_size=1)
    tasks = [engine.submit("other", owner="b")]
    await settle()
    engine.gates[0].set()
    await settle()
    tasks += [engine.submit(f"many {number}", owner="a") for number in range(3)]
    await settle()
    assert engine.batches == [["other"], ["many 0"]]
    await engine.release_all()
    await asyncio.gather(*tasks)


async def test_a_batch_is_as_large_as_the_engine_is_fast() -> None:
    """Nothing interrupts it: three files of 17 s took 15 s of two cores."""
    engine = Engine(batch_size=4)
    tasks = [engine.submit("first", FILE, seconds=10)]
    await settle()
    tasks += [engine.submit(f"{number}", FILE, seconds=10) for number in range(4)]
    await settle()
    engine.now += 1.4
    engine.gates[0].set()
    await settle()
    assert engine.batches[1] == ["0", "1"]
    engine.now += 0.1
    engine.gates[1].set()
    await settle()
    tasks += [engine.submit(f"{number}", FILE, seconds=10) for number in (4, 5)]
    await settle()
    await engine.release_all()
    await asyncio.gather(*tasks)
    assert engine.batches[2:] == [["2", "3"], ["4", "5"]]


async def test_a_full_queue_refuses_the_tenant_that_fills_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scheduling, "CAPACITY", 3)
    engine = Engine()
    tasks = [engine.submit(f"{number}", owner="a") for number in range(4)]
    await settle()
    tasks.append(engine.submit("other", owner="b"))
    await settle()
    await engine.release_all()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert [isinstance(one, EngineOverloaded) for one in answers] == [False] * 3 + [True, False]


async def test_late_finals_of_a_tenant_do_not_drop_the_interims_of_another() -> None:
    engine = Engine(batch_size=1)
    tasks = [engine.submit(f"{number}", owner="a") for number in range(3)]
    await settle()
    engine.now += 1
    tasks.append(engine.submit("interim", INTERIM, owner="b"))
    await settle()
    engine.gates[0].set()
    await settle()
    assert engine.batches[1] == ["interim"]
    await engine.release_all()
    await asyncio.gather(*tasks)


async def test_a_batch_of_several_tenants_is_full() -> None:
    engine = Engine()
    tasks = [engine.submit("blocker", owner="a")]
    await settle()
    tasks += [engine.submit(f"{owner}{number}", owner=owner) for owner in "ab" for number in (1, 2)]
    await settle()
    engine.now += 0.5
    await engine.release_all()
    assert engine.batches == [["blocker"], ["b1", "b2", "a1", "a2"]]
    await asyncio.gather(*tasks)
