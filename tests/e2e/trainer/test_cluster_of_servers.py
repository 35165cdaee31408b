"""A standing cluster as its user sees it: started, trained on from the notebook, hurt, stopped."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import nbformat
import psutil
import pytest

from tests.support.project import ROOT, Project, plain
from tools.capture_notebook import execute

pytestmark = pytest.mark.slow

NAMES = ["worker 0", "worker 1", "parameter server 0"]


@pytest.fixture(scope="module")
def started(project: Project) -> Iterator[str]:
    """What `cluster start` output; the cluster is stopped when the tests are done."""
    done = project.scopeline("cluster", "start", "--workers", 2, "--parameter-servers", 1)
    assert done.returncode == 0, done.stderr
    yield plain(done.stdout)
    project.scopeline("cluster", "stop")


@pytest.fixture(scope="module")
def file(project: Project, started: str) -> Path:
    return project.output / "cluster" / "cluster.json"


@pytest.fixture(scope="module")
def notebook(file: Path) -> nbformat.NotebookNode:
    """The notebook of the docs, executed on the cluster."""
    return execute(ROOT / "docs" / "notebook.ipynb", {"SCOPELINE_CLUSTER": str(file)})


def rows(project: Project) -> tuple[int, list[tuple[str, str]]]:
    """The exit code of `cluster status`, and the names and states of the servers."""
    done = project.scopeline("cluster", "status")
    lines = plain(done.stdout).splitlines()
    matches = [re.fullmatch(r"(\w.*?) +localhost:\d+ +\d+  (up|dead)", line) for line in lines]
    return done.returncode, [(match[1], match[2]) for match in matches if match]


def pids(file: Path) -> dict[str, int]:
    servers = json.loads(file.read_text())["servers"]
    return dict(zip(NAMES, (server["pid"] for server in servers), strict=True))


def test_servers_outlive_the_command_in_sessions_of_their_own(file: Path) -> None:
    for name, pid in pids(file).items():
        assert os.getsid(pid) == pid
        assert (file.parent / f"{name.replace(' ', '-')}.log").exists()


def test_status(project: Project, file: Path) -> None:
    assert rows(project) == (0, [(name, "up") for name in NAMES])


def test_notebook_trains_two_models(notebook: nbformat.NotebookNode) -> None:
    outputs = [out for cell in notebook.cells for out in cell.get("outputs", [])]
    assert {output.output_type for output in outputs} == {"stream"}
    assert {output.name for output in outputs} == {"stdout"}
    devices, *epochs, verdict = [output.text for output in outputs]
    assert devices.count("/job:worker/") == 2
    for text in epochs:
        learnt = [float(value) for value in re.findall(r"epoch \d: accuracy (.*)", text)]
        assert len(learnt) == 8
        assert learnt[-1] > 0.8
    accuracy = dict(re.findall(r"(\w+): (\S+) of the held-out digits are right", verdict))
    assert float(accuracy["dense"]) > 0.8
    assert float(accuracy["convolutional"]) > 0.9


def test_status_shows_a_dead_worker(
    project: Project, file: Path, notebook: nbformat.NotebookNode
) -> None:
    psutil.Process(pids(file)["worker 1"]).kill()
    time.sleep(0.2)
    states = [("worker 0", "up"), ("worker 1", "dead"), ("parameter server 0", "up")]
    assert rows(project) == (1, states)


def test_stop_leaves_no_process(project: Project, file: Path) -> None:
    processes = pids(file)
    done = project.scopeline("cluster", "stop")
    assert done.returncode == 0, done.stderr
    first, second, third, last = plain(done.stdout).splitlines()
    assert first == f"worker 0, process {processes['worker 0']}: stopped"
    assert second == f"worker 1, process {processes['worker 1']}: had ended already"
    assert third.startswith(f"parameter server 0, process {processes['parameter server 0']}: ")
    assert last == "removed output/cluster/cluster.json"
    assert not file.exists()
    for pid in processes.values():
        assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    assert project.scopeline("cluster", "status").returncode == 2
