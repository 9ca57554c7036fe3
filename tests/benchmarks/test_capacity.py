"""The simulation of docs/sizing.md: sessions are conserved, it agrees with M/M/c and with the
closed form, and both know every figure that is committed."""

import random
from dataclasses import replace

import pytest

from benchmarks.capacity.derivation import Stage, Turns, erlang_c, late_share, limits, plan
from benchmarks.capacity.figures import Figures, read
from benchmarks.capacity.simulation import MARGIN, Autoscaler, Cluster, Station, run

TURNS = Turns(
    cycle_s=12.0,
    delay_s=0.7,
    stages={"stt": Stage(0.15, 0.25), "llm": Stage(0.2, 0.3), "tts": Stage(0.02, 0.05)},
    gateway_cores=0.02,
)
FIGURES: Figures = {
    "ledger": {
        "one_workspace": {"pairs_per_s": 250.0},
        "thousand_workspaces_pgbench": {"postgres_cpu_ms_per_pair": 0.5},
    },
    "outbox": {"one_worker": {"worker_cpu_ms": 2.0, "deliveries_per_s": 450.0}},
    "sockets": {"idle_redis_cores": 0.02},
}


@pytest.mark.parametrize(("servers", "load"), [(1, 0.7), (4, 3.2), (20, 17.0)])
def test_a_station_agrees_with_erlang_c(servers: int, load: float) -> None:
    chance, station = random.Random(3), Station(servers)
    now, waits, calls = 0.0, [], 150_000
    for _ in range(calls):
        now += chance.expovariate(load)  # with a mean service time of 1 s
        service_s = chance.expovariate(1.0)
        waits.append(station.serve(now, service_s) - service_s - now)
    assert sum(w > 1e-9 for w in waits) / calls == pytest.approx(erlang_c(servers, load), rel=0.08)
    expected = erlang_c(servers, load) / (servers - load)
    assert sum(waits) / calls == pytest.approx(expected, rel=0.12)
    late = late_share(servers, load, 1.0, 0.5)
    assert sum(w > 0.5 for w in waits) / calls == pytest.approx(late, rel=0.12)


@pytest.mark.parametrize("scales", [True, False])
def test_every_session_that_arrived_has_ended_or_is_open(scales: bool) -> None:
    cluster = Cluster(
        400, TURNS, {"stt": 20, "llm": 30, "tts": 5}, scales=scales, rise_s=120.0, peak_s=60.0
    )
    done = cluster.run()
    assert done.arrived == done.ended + done.open + done.refused > 400
    assert not done.refused and done.answered <= done.turns
    assert done.open == pytest.approx(400, rel=0.2)  # the peak


@pytest.mark.slow
def test_sessions_are_refused_where_no_gateway_has_room() -> None:
    few = replace(TURNS, gateway_cores=0.0)
    cores = dict.fromkeys(TURNS.stages, 200)
    cluster = Cluster(2500, few, cores, scales=False)
    cluster.gateways = 1
    done = cluster.run()
    assert done.refused and done.open <= 2000
    assert done.arrived == done.ended + done.open + done.refused


@pytest.mark.parametrize("sessions", [100, 1000])
def test_with_the_planned_cores_few_turns_wait(sessions: int) -> None:
    found = run(sessions, TURNS, FIGURES, scales=False)
    assert found["turns"] == pytest.approx(sessions * 300 / TURNS.cycle_s, rel=MARGIN)
    assert found["delay_p50_s"] == pytest.approx(TURNS.delay_s, rel=MARGIN)
    assert found["delay_p95_s"] < TURNS.delay_s + 0.5
    assert found["turns_with_gaps"] < 0.01 and not found["refused"]


def test_replicas_that_follow_the_load_are_about_those_that_are_planned() -> None:
    found = run(1000, TURNS, FIGURES)
    assert found["most_replicas"]["stt"] == pytest.approx(found["planned"]["stt"], rel=MARGIN)
    assert not found["refused"]


def test_a_decision_of_the_autoscaler_has_to_last() -> None:
    sizes: list[tuple[int, float]] = []
    load = [3.0]
    scaler = Autoscaler(lambda _: load[0], lambda n, at: sizes.append((n, at)), replicas=1)
    for second in range(1, 10):
        scaler.tick(float(second))
    assert sizes == []
    scaler.tick(11.0)
    assert sizes == [(3, 26.0)]
    load[0] = 0.2
    for second in range(12, 330):
        scaler.tick(float(second))
    assert sizes[1:] == [(1, 312.0)]


def test_more_sessions_need_more_of_everything() -> None:
    small, large = plan(100, TURNS, FIGURES), plan(1_000_000, TURNS, FIGURES)
    assert large["cores"] > 5000 * small["cores"] / 2
    assert large["clusters"] > 1 and small["clusters"] == 1
    assert large["models"]["stt"]["cores"] / large["models"]["stt"]["busy_cores"] < 1.01
    assert min(limits(TURNS, FIGURES).values()) > 10


def test_the_committed_figures_are_those_that_the_closed_form_reads() -> None:
    figures = read()
    turns = Turns.measured(figures)
    assert plan(100, turns, figures)["cores"] > 1 and limits(turns, figures)
