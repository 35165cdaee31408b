"""How many processes a pipeline gets: as many as pay, and as the machine can bear."""

from __future__ import annotations

from pathlib import Path

import pytest

from components.beam_workers import control_groups, sizing
from components.beam_workers.options import AUTO, Workers
from components.beam_workers.sizing import (
    choose_workers,
    count_cores,
    free_memory,
    note_cores,
)
from components.spreading import SpreadFiles

MB, GB = 1 << 20, 1 << 30


def set_groups(monkeypatch: pytest.MonkeyPatch, root: Path, own: str = "0::/\n") -> None:
    """Has control groups be found below a folder, and the process in some of them."""
    monkeypatch.setattr(control_groups, "_ROOT", root)
    monkeypatch.setattr(control_groups, "_OWN", root / "own")
    (root / "own").write_text(own)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """One of 16 cores and 64 GiB, without a GPU and outside of a container."""
    monkeypatch.setattr(sizing.os, "sched_getaffinity", lambda _: set(range(16)))
    monkeypatch.setattr(sizing, "free_memory", lambda: 64 * GB)
    monkeypatch.setattr(sizing, "_GPUS", str(tmp_path / "nvidia*"))
    set_groups(monkeypatch, tmp_path)
    return monkeypatch


def work(folder: Path, sizes: list[int], asks_models: bool = False) -> SpreadFiles:
    """Files of some sizes, without content."""
    files = []
    for number, size in enumerate(sizes):
        with (folder / f"{number}").open("wb") as file:
            file.truncate(size)
        files.append(file.name)
    return SpreadFiles(files, files, asks_models)


@pytest.mark.parametrize(
    ("sizes", "most", "expected"),
    [
        ([MB] * 8, AUTO, 1),
        ([8 * MB] * 8, AUTO, 2),
        ([100 * MB] * 8, AUTO, 8),
        ([100 * MB] * 40, AUTO, 16),
        ([900 * MB], AUTO, 1),
        ([1] * 8, 4, 4),
        ([1] * 3, 4, 3),
        ([1] * 40, 99, 16),
        ([100 * MB] * 8, 2, 2),
        ([], AUTO, 1),
    ],
)
def test_bytes_files_and_cores_decide(
    machine: pytest.MonkeyPatch, tmp_path: Path, sizes: list[int], most: Workers, expected: int
) -> None:
    assert choose_workers([work(tmp_path, sizes)], most) == expected


def test_without_files_there_is_one() -> None:
    assert choose_workers([]) == choose_workers([], 8) == 1


def test_a_process_needs_memory(machine: pytest.MonkeyPatch, tmp_path: Path) -> None:
    much = [work(tmp_path, [100 * MB] * 16)]
    machine.setattr(sizing, "free_memory", lambda: 3 * GB)
    assert choose_workers(much) == 3
    machine.setattr(sizing, "free_memory", lambda: 0)
    assert choose_workers(much) == 1
    assert choose_workers(much, 4) == 4, "whoever asks for a number gets it"


def test_a_gpu_is_asked_by_one(machine: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "nvidia0").touch()
    assert choose_workers([work(tmp_path, [100 * MB] * 4, asks_models=True)]) == 1
    assert choose_workers([work(tmp_path, [100 * MB] * 4)]) == 4


def test_a_container_may_have_less_than_its_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    set_groups(monkeypatch, tmp_path)
    monkeypatch.setattr(sizing.os, "sched_getaffinity", lambda _: set(range(16)))
    assert count_cores() == 16
    (tmp_path / "cpu.max").write_text("150000 100000\n")
    assert count_cores() == 2
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert count_cores() == 16
    (tmp_path / "memory.max").write_text(f"{GB}\n")
    (tmp_path / "memory.current").write_text(f"{GB // 4}\n")
    assert free_memory() == GB * 3 // 4
    (tmp_path / "memory.stat").write_text(f"anon 5\ninactive_file {GB // 8}\n")
    assert free_memory() == GB * 7 // 8


def test_groups_have_groups_above_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    set_groups(monkeypatch, tmp_path, "0::/batch.slice/ours.service\n")
    monkeypatch.setattr(sizing.os, "sched_getaffinity", lambda _: set(range(16)))
    own = tmp_path / "batch.slice" / "ours.service"
    own.mkdir(parents=True)
    (own / "cpu.max").write_text("max 100000\n")
    (own.parent / "cpu.max").write_text("300000 100000\n")
    assert count_cores() == 3
    (own / "cpu.max").write_text("200000 100000\n")
    assert count_cores() == 2


@pytest.mark.parametrize("path", ["/pods/ours", "/unseen/from/inside"])
def test_groups_of_the_first_version_count(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, path: str
) -> None:
    own = f"4:memory:{path}\n2:cpu,cpuacct:{path}\n1:name=systemd:/\n0::/\n"
    set_groups(monkeypatch, tmp_path, own)
    monkeypatch.setattr(sizing.os, "sched_getaffinity", lambda _: set(range(16)))
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


def test_some_of_many_files_tell_how_large_all_are(
    machine: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    machine.setattr(sizing, "_LOOKED_AT", 2)
    assert choose_workers([work(tmp_path, [16 * MB, 0, 16 * MB, 0])]) == 2


def test_a_file_that_was_deleted_is_its_readers_to_tell(
    machine: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    much = work(tmp_path, [100 * MB] * 3)
    Path(much.files[1]).unlink()
    assert choose_workers([much]) == 3


def test_more_workers_than_cores_are_noted(machine: pytest.MonkeyPatch) -> None:
    assert note_cores("auto") == note_cores(16) == []
    (note,) = note_cores(17)
    assert note.startswith("beam.workers: 17, and this machine has 16 cores")
