"""A standing cluster as its user sees it: started, trained on from the notebook, hurt, stopped."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
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
    """What `cluster start` said; the cluster is stopped when the tests are done."""
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


def test_start_says_how_to_connect(started: str, file: Path) -> None:
    first, *ready = started.splitlines()
    assert first == "starting worker 0, worker 1, parameter server 0"
    assert {re.split(r" is ready at localhost:\d+", line)[0] for line in ready[:3]} == set(NAMES)
    assert f"  strategy = persistent.connect('{file}')\n" in started
    assert f'  TF_CONFIG="$(cat {file.relative_to(file.parents[2])})" ' in started
    assert "cluster stop" in started


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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, r"^there is no {file} \(looked for in .*\); start a cluster with `scopeline clu"),
        (
            "{",
            r"^{file} is not the file of a cluster: its content is not JSON \(.*\); `scopeline ",
        ),
        (
            '{"cluster": {"worker": ["a:1", "b:2"]}, "task": {"type": "worker", "index": 0}}',
            r"^{file} is not the file of a persistent cluster: it names worker, but `worker` and ",
        ),
        (
            '{"cluster": {"chief": ["localhost:1"], "worker": ["localhost:2"], '
            '"ps": ["localhost:3"]}, "task": {"type": "chief", "index": 0}}',
            r"^no answer from worker 0 at localhost:2, parameter server 0 at localhost:3, of the ",
        ),
    ],
)
def test_connecting_to_what_is_no_running_cluster(
    tmp_path: Path, text: str | None, message: str
) -> None:
    from trainer_module.errors import ConfigError
    from trainer_module.strategies import persistent

    file = tmp_path / "cluster.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ConfigError, match=message.replace("{file}", re.escape(str(file)))):
        persistent.connect(file)


def test_connecting_with_keras_3(file: Path) -> None:
    code = "from trainer_module.strategies import persistent; persistent.connect()"
    environment = {**os.environ, "SCOPELINE_CLUSTER": str(file), "PYTHONPATH": str(ROOT)}
    environment["TF_USE_LEGACY_KERAS"] = "0"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True)
    assert (
        "ConfigError: tensorflow.keras is Keras 3 in this process, and Keras 3 cannot train with "
        "parameter servers: TF_USE_LEGACY_KERAS is 0, or was set after TensorFlow had been "
        "imported; restart the kernel, and set "
    ) in done.stderr.decode()


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
