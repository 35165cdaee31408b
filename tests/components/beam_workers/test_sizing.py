"""How many processes a pipeline gets: as many as pay, and as the machine can bear."""

from __future__ import annotations

from pathlib import Path

import pytest

from components.beam_workers import runner
from components.beam_workers.options import AUTO, Workers
from components.beam_workers.runner import choose_workers, note_cores
from components.spreading import SpreadFiles

MB, GB = 1 << 20, 1 << 30


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """One of 16 cores and 64 GiB, without a GPU and outside of a container."""
    monkeypatch.setattr(runner, "count_cores", lambda: 16)
    monkeypatch.setattr(runner, "free_memory", lambda: 64 * GB)
    monkeypatch.setattr(runner, "_GPUS", str(tmp_path / "nvidia*"))
    return monkeypatch


def work(folder: Path, sizes: list[int], runs_models: bool = False) -> SpreadFiles:
    """Files of some sizes, without content."""
    files = []
    for number, size in enumerate(sizes):
        with (folder / f"{number}").open("wb") as file:
            file.truncate(size)
        files.append(file.name)
    return SpreadFiles(files, files, runs_models)


@pytest.mark.parametrize(
    ("sizes", "most", "expected"),
    [
        ([MB] * 8, AUTO, 1),
        ([8 * MB] * 8, AUTO, 2),
        ([100 * MB] * 8, AUTO, 8),
        ([100 * MB] * 40, AUTO, 16),
        ([900 * MB], AUTO, 1),
        ([1] * 8, 4, 4),
        ([1] * 40, 99, 16),
        ([], AUTO, 1),
    ],
)
def test_bytes_files_and_cores_decide(
    machine: pytest.MonkeyPatch, tmp_path: Path, sizes: list[int], most: Workers, expected: int
) -> None:
    assert choose_workers([work(tmp_path, sizes)], most) == expected


def test_a_process_needs_memory(machine: pytest.MonkeyPatch, tmp_path: Path) -> None:
    much = [work(tmp_path, [100 * MB] * 16)]
    machine.setattr(runner, "free_memory", lambda: 3 * GB)
    assert choose_workers(much) == 3
    machine.setattr(runner, "free_memory", lambda: 0)
    assert choose_workers(much) == 1
    assert choose_workers(much, 4) == 4, "whoever asks for a number gets it"


def test_models_on_a_gpu_run_in_one_process(machine: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "nvidia0").touch()
    assert choose_workers([work(tmp_path, [100 * MB] * 4, runs_models=True)]) == 1
    assert choose_workers([work(tmp_path, [100 * MB] * 4)]) == 4


def test_sizes_of_many_files_are_sampled(machine: pytest.MonkeyPatch, tmp_path: Path) -> None:
    machine.setattr(runner, "_SAMPLE_FILES", 2)
    assert choose_workers([work(tmp_path, [16 * MB, 0, 16 * MB, 0])]) == 2


def test_deleted_file_counts_as_small(machine: pytest.MonkeyPatch, tmp_path: Path) -> None:
    much = work(tmp_path, [100 * MB] * 3)
    Path(much.files[1]).unlink()
    assert choose_workers([much]) == 3


def test_more_workers_than_cores_are_noted(machine: pytest.MonkeyPatch) -> None:
    assert note_cores("auto") == note_cores(16) == []
    (note,) = note_cores(17)
    assert note.startswith("beam.workers is 17, but this machine has 16 cores")
