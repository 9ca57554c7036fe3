"""The number of replicas that a load needs."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from deployments.autoscaling import WAIT_S, RestWhenIdle, by_load, by_load_on_gpus
from models.stt.base import FILE
from tests.deployments.replicas.test_priority_batcher import Engine


@pytest.mark.parametrize(
    ("loads", "least", "most"),
    [
        ([0.0], 0, 0),
        ([0.02], 0.001, 1),  # a replica with any work stays
        ([1.0], 0.001, 1),  # just busy
        ([1.4], 0.001, 1),
        ([1.7], 1.001, 2),
        ([1.0, 1.0], 1.001, 2),  # both busy: neither goes
        ([0.6, 0.6], 0.001, 1),
        ([4.0, 4.0], 7, 8),
    ],
)
def test_replicas_follow_the_sum_of_their_loads(
    loads: list[float], least: float, most: float
) -> None:
    context: Any = SimpleNamespace(
        target_num_replicas=len(loads), aggregated_metrics={"load": dict(enumerate(loads))}
    )
    wanted, state = by_load(context)
    assert least <= wanted <= most and state == {}


@pytest.mark.parametrize(
    ("gpus", "load", "wanted"), [(1, 5.0, 1), (2, 5.0, 2), (0, 5.0, 1), (8, 2.0, 1.5), (1, 0.0, 0)]
)
def test_a_model_gets_at_most_a_replica_for_each_gpu(
    monkeypatch: pytest.MonkeyPatch, gpus: int, load: float, wanted: float
) -> None:
    monkeypatch.setattr(
        "ray.cluster_resources", lambda: {"CPU": 2.0} | ({"GPU": gpus} if gpus else {})
    )
    context: Any = SimpleNamespace(target_num_replicas=1, aggregated_metrics={"load": {0: load}})
    assert by_load_on_gpus(context) == (wanted, {})


@pytest.mark.parametrize("metrics", [None, {}, {"load": {}}])
def test_without_reports_the_number_of_replicas_stays(metrics: Any) -> None:
    context: Any = SimpleNamespace(target_num_replicas=3, aggregated_metrics=metrics)
    assert by_load(context) == (3, {})


def test_a_model_rests_sooner_after_its_start_than_after_use() -> None:
    policy = RestWhenIdle(after_use_s=840)

    def wanted(now: float, load: float) -> float:
        context: Any = SimpleNamespace(
            target_num_replicas=1, aggregated_metrics={"load": {0: load}}, current_time=now
        )
        return policy(context)[0]

    assert wanted(0, 0.0) == 0  # not used since it was loaded
    assert 0 < wanted(10, 0.01) <= 1
    assert 0 < wanted(849, 0.0) <= 1
    assert wanted(850, 0.0) == 0
    assert 1 < wanted(900, 2.0) <= 2
    assert 0 < wanted(1739, 0.0) <= 1


async def test_the_load_counts_busy_slots_and_seconds_of_waiting_work() -> None:
    engine = Engine(batch_size=1)
    assert engine.queue.load == 0
    first = engine.submit("a", FILE, seconds=2)
    await asyncio.sleep(0.01)
    assert engine.queue.load == 1  # nothing waits
    engine.now += 1.0
    engine.gates[0].set()  # half a second for a second of audio
    await first
    waiting = [engine.submit(name, FILE, seconds=8) for name in "bcd"]
    await asyncio.sleep(0.01)
    assert engine.queue.load == pytest.approx(1 + 2 * 4 / WAIT_S)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
