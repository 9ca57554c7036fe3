import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

import models.runtimes.openmp as module
from models.runtimes.openmp import LOOK_S, AdaptiveBarriers
from tests.patience import block_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and libgomp")


class Machine:
    """Two cores, whose use by this process and by others the test sets."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.used_s = 0.0
        self.own_s = 0.0

    def passes(self, seconds: float, own: float, others: float) -> None:
        self.now_s += seconds
        self.own_s += seconds * own
        self.used_s += seconds * (own + others)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine()
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1})
    monkeypatch.setattr(module, "used_seconds", lambda _cpus: machine.used_s)
    clock = SimpleNamespace(monotonic=lambda: machine.now_s, process_time=lambda: machine.own_s)
    monkeypatch.setattr(module, "time", clock)
    return machine


@pytest.fixture
def look(machine: Machine) -> Iterator[Callable[..., bool]]:
    """Lets time pass, and tells whether threads sleep at barriers then."""
    barriers = AdaptiveBarriers(2)
    barriers.look()

    def look(others: float, seconds: float = LOOK_S, own: float = 2.0) -> bool:
        machine.passes(seconds, own - others, others)
        barriers.look()
        return barriers.sleeps

    yield look
    for _ in range(2):
        look(0.0)  # ends the threads of the team


@pytest.mark.parametrize("others", [0.0, 0.25, 0.5])
def test_threads_spin_while_the_cores_are_theirs(look: Callable[..., bool], others: float) -> None:
    assert not look(others)
    assert not look(others)


def test_threads_spin_only_while_no_others_use_a_core(look: Callable[..., bool]) -> None:
    assert look(0.62)  # what is left of a core that spinning threads want, too
    assert look(1.0)
    assert look(0.7)
    assert not look(0.6)  # others have ended


def test_one_moment_is_measured_and_not_the_time_before_the_work(look: Callable[..., bool]) -> None:
    assert not look(2.0, seconds=60.0, own=2.0)  # while no token was made
    assert look(1.0)
    assert look(0.0, seconds=0.1)  # too soon


def test_cores_that_the_threads_leave_are_free_for_others(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1, 2, 3})
    barriers = AdaptiveBarriers(2)
    barriers.look()
    machine.passes(LOOK_S, 2.0, 2.0)
    barriers.look()
    assert not barriers.sleeps


def test_libgomp_has_more_threads_than_cores_while_threads_sleep(look: Callable[..., bool]) -> None:
    def threads() -> set[str]:
        return set(os.listdir("/proc/self/task"))

    before = threads()  # of which those of earlier tests may end meanwhile
    assert look(1.0)
    block_until(lambda: len(threads() - before) >= 3)  # a team of three, on two cores
    team = threads() - before
    assert not look(0.0)
    block_until(lambda: len(threads() & team) <= len(team) - 3)


def test_without_libgomp_nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr("ctypes.CDLL", missing)
    barriers = AdaptiveBarriers(2)
    barriers.look()
    assert not barriers.sleeps


def test_the_use_of_the_cores_is_that_of_the_named_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stat = tmp_path / "stat"
    stat.write_text(
        "cpu  9 9 9 9 9 9 9 9 9 9\n"
        "cpu0 100 20 30 5000 40 5 5 40 70 0\n"
        "cpu1 200 0 0 5000 0 0 0 0 0 0\n"
        "cpu2 7000 0 0 5000 0 0 0 0 0 0\n"
        "intr 5\n"
    )
    monkeypatch.setattr(module, "Path", lambda _path: stat)
    ticks = module.used_seconds({0, 1}) * os.sysconf("SC_CLK_TCK")
    assert round(ticks) == 100 + 20 + 30 + 5 + 5 + 40 + 200


def test_looking_is_safe_from_several_threads(look: Callable[..., bool], machine: Machine) -> None:
    barriers = AdaptiveBarriers(2)
    several = [threading.Thread(target=barriers.look) for _ in range(8)]
    for one in several:
        one.start()
    for one in several:
        one.join()
    assert not barriers.sleeps
