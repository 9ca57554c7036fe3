"""The memory that is free, in cgroups of both versions."""

from pathlib import Path

import pytest

from configs import environment
from configs.environment import free_bytes

MB = 10**6


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the groups of a machine; this process is in /a/b of both versions."""
    (tmp_path / "own").write_text("0::/a/b\n4:memory,cpu:/a/b\n1:name=systemd:/\n")
    monkeypatch.setattr(environment, "_CGROUP", tmp_path / "own")
    monkeypatch.setattr(environment, "_CGROUPS", tmp_path)
    return tmp_path


def limit(folder: Path, *, version: int, most: str, used: int, cached: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    v1 = version == 1
    (folder / ("memory.limit_in_bytes" if v1 else "memory.max")).write_text(f"{most}\n")
    (folder / ("memory.usage_in_bytes" if v1 else "memory.current")).write_text(f"{used}\n")
    prefix = "total_" if v1 else ""
    counts = {"inactive_file": cached - cached // 3, "active_file": cached // 3, "anon": 1}
    stat = [f"{prefix}{name} {count}\n" for name, count in counts.items()]
    (folder / "memory.stat").write_text("".join(stat))


@pytest.mark.parametrize(("version", "root"), [(1, "memory"), (2, "")])
@pytest.mark.parametrize("place", ["a/b", "a", ""])
def test_a_group_or_one_above_limits_what_is_free(
    groups: Path, version: int, root: str, place: str
) -> None:
    limit(groups / root / place, version=version, most=str(90 * MB), used=50 * MB, cached=0)
    assert free_bytes() == 40 * MB


@pytest.mark.parametrize(("version", "root"), [(1, "memory"), (2, "")])
def test_what_a_group_has_cached_of_files_is_free(groups: Path, version: int, root: str) -> None:
    folder = groups / root / "a"
    limit(folder, version=version, most=str(90 * MB), used=80 * MB, cached=70 * MB)
    assert free_bytes() == 80 * MB


def test_a_group_without_a_limit_leaves_the_memory_of_the_machine(groups: Path) -> None:
    before = free_bytes()
    limit(groups / "a", version=2, most="max", used=50 * MB, cached=0)
    limit(groups / "memory", version=1, most=str(2**63 - 4096), used=50 * MB, cached=0)
    assert free_bytes() > before / 2
