"""The cheap attackers of `benchmarks.hostile` at once, on the service of `serve_config.yaml`.

Latency is left out: a test may run beside others. `make bench-hostile ARGS=--all` measures it.
"""

import resource
import sys
from pathlib import Path

import pytest
import yaml

from benchmarks.hostile.attacker import ATTACKS, Attacker, Target
from benchmarks.hostile.attacks import connections
from benchmarks.hostile.program import attacked, hostile_service
from tests.promises.conftest import config_without_weights

pytestmark = pytest.mark.ray

SECONDS = 10.0
LEAST_ATTACKERS = 25


def test_there_are_at_least_25_attackers_and_each_says_what_it_does() -> None:
    assert len(ATTACKS) >= LEAST_ATTACKERS
    assert all(one.text for one in ATTACKS.values())


async def test_an_attack_with_fewer_connections_than_it_says_has_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    attacker, counts = Attacker(Target("http://127.0.0.1:1", "", "", "")), list[int]()

    async def many(count: int, work: object) -> None:
        counts.append(count)

    monkeypatch.setattr(attacker, "many", many)
    for files in (1024, 20_000, resource.RLIM_INFINITY):
        with monkeypatch.context() as patch:
            patch.setattr(resource, "getrlimit", lambda _, most=files: (most, most))
            await connections.idle_connections(attacker)
    assert counts == [524, 10_000, 10_000]
    assert attacker.outcomes == {"failed: 524 connections only": 1}


@pytest.mark.slow
async def test_cheap_attackers_at_once_cause_no_refusal_failure_or_loss(tmp_path: Path) -> None:
    file = tmp_path / "serve.yaml"
    file.write_text(yaml.safe_dump(config_without_weights()))
    command = [sys.executable, "-m", "deployments.main", "--config", str(file), "--num-cpus", "2"]
    cheap = [one.name for one in ATTACKS.values() if one.cheap]
    with hostile_service(tmp_path, command) as (service, authority):
        async with attacked(service, authority, tmp_path) as place:
            result = await place.attack(cheap, SECONDS)
            assert place.watch.ledger_fault() == ""
    assert result.damage == [], result
    assert not result.beside.refused, result
    idle = [name for name, seen in result.outcomes.items() if not seen]
    assert set(idle) <= {"slow-heads", "stalled-bodies", "pipelined-requests", "huge-header"}, idle
