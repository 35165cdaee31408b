"""The cores and the memory that a process may use: fewer than its machine has, in a container."""

from __future__ import annotations

from pathlib import Path

import pytest

from components.processes.local.process import share_machine
from trainer_module import machine
from trainer_module.machine import count_cores, free_memory, total_memory

GB = 1 << 30


def set_groups(monkeypatch: pytest.MonkeyPatch, root: Path, own: str = "0::/\n") -> None:
    """Has control groups be found below a folder, and the process in some of them."""
    monkeypatch.setattr(machine, "_CGROUPS", root)
    monkeypatch.setattr(machine, "_OWN_GROUPS", root / "own")
    (root / "own").write_text(own)


def test_limits_of_a_container_count(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    set_groups(monkeypatch, tmp_path)
    monkeypatch.setattr(machine.os, "sched_getaffinity", lambda _: set(range(16)))
    assert count_cores() == 16
    (tmp_path / "cpu.max").write_text("150000 100000\n")
    assert count_cores() == 2
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert count_cores() == 16
    (tmp_path / "memory.max").write_text(f"{GB}\n")
    (tmp_path / "memory.current").write_text(f"{GB // 4}\n")
    assert free_memory() == GB * 3 // 4
    assert total_memory() == GB
    (tmp_path / "memory.stat").write_text(f"anon 5\ninactive_file {GB // 8}\n")
    assert free_memory() == GB * 7 // 8


def test_limits_of_parent_groups_count(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    set_groups(monkeypatch, tmp_path, "0::/batch.slice/ours.service\n")
    monkeypatch.setattr(machine.os, "sched_getaffinity", lambda _: set(range(16)))
    own = tmp_path / "batch.slice" / "ours.service"
    own.mkdir(parents=True)
    (own / "cpu.max").write_text("max 100000\n")
    (own.parent / "cpu.max").write_text("300000 100000\n")
    assert count_cores() == 3
    (own / "cpu.max").write_text("200000 100000\n")
    assert count_cores() == 2


@pytest.mark.parametrize("path", ["/pods/ours", "/unseen/from/inside"])
def test_limits_of_cgroup_v1_count(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, path: str
) -> None:
    own = f"4:memory:{path}\n2:cpu,cpuacct:{path}\n1:name=systemd:/\n0::/\n"
    set_groups(monkeypatch, tmp_path, own)
    monkeypatch.setattr(machine.os, "sched_getaffinity", lambda _: set(range(16)))
    files: dict[str, dict[str, object]] = {
        "cpu": {"cpu.cfs_quota_us": -1, "cpu.cfs_period_us": 100_000},
        "memory": {
            "memory.limit_in_bytes": GB,
            "memory.usage_in_bytes": GB // 2,
            "memory.stat": f"inactive_file 5\ntotal_inactive_file {GB // 4}",
        },
    }
    for name, values in files.items():
        group = tmp_path / name / ("pods/ours" if path == "/pods/ours" else "")
        group.mkdir(parents=True)
        for limit, value in values.items():
            (group / limit).write_text(f"{value}\n")
    assert count_cores() == 16
    assert free_memory() == GB * 3 // 4
    for file in tmp_path.rglob("cpu.cfs_quota_us"):
        file.write_text("350000\n")
    assert count_cores() == 4


def test_tasks_share_the_quota(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    set_groups(monkeypatch, tmp_path)
    monkeypatch.setattr(machine.os, "sched_getaffinity", lambda _: set(range(16)))
    (tmp_path / "cpu.max").write_text("400000 100000\n")
    assert share_machine(2)["TF_NUM_INTRAOP_THREADS"] == "2"
