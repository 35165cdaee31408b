"""Processes of this machine: their output, their environment, and that none outlives its parent."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from components.processes import ports
from components.processes.local.launcher import LocalLauncher
from tests.support.cluster_workers import workers
from trainer_module.machine import count_cores

_PARENT = """
import sys
from contextlib import nullcontext
from pathlib import Path
from tests.support.cluster_workers import workers
from components.processes.local.fork_server import current_server, run_fork_server
from components.processes.local.launcher import LocalLauncher
from components.processes.supervisor import ClusterJob, Supervisor
folder = Path(sys.argv[1])
gang = workers({"do": "sleep_stubbornly"}, {"do": "sleep_stubbornly"}, folder=folder)
with run_fork_server() if sys.argv[2] == "forked" else nullcontext():
    assert (current_server() is not None) == (sys.argv[2] == "forked")
    Supervisor(LocalLauncher(current_server()), ClusterJob(gang)).run()
"""


def wait_until(condition: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except (psutil.NoSuchProcess, ProcessLookupError):  # It may end while it is looked at.
        return False


@pytest.fixture
def parent(tmp_path: Path, kind: str) -> subprocess.Popen[bytes]:
    """A process with two children, each of which has one of its own."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", _PARENT, str(tmp_path), kind]
    process = subprocess.Popen(command, env=environment)
    wait_until(lambda: len(list(tmp_path.glob("*.grandchild"))) == 2)
    wait_until(lambda: all(path.read_text() for path in tmp_path.glob("*.grandchild")))
    return process


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "how"),
    [("fresh", signal.SIGKILL), ("forked", signal.SIGKILL), ("forked", signal.SIGTERM)],
)
def test_workers_and_their_children_end_with_the_parent(
    parent: subprocess.Popen[bytes], tmp_path: Path, how: signal.Signals
) -> None:
    children = [int(path.stem) for path in tmp_path.glob("*.grandchild")]
    grandchildren = [int(path.read_text()) for path in tmp_path.glob("*.grandchild")]
    everything = [child.pid for child in psutil.Process(parent.pid).children(recursive=True)]
    assert set(children + grandchildren) < set(everything)
    parent.send_signal(how)
    wait_until(lambda: not any(map(is_running, everything)))
    assert parent.wait() == -how


@pytest.mark.slow
def test_output_is_copied_with_the_name_of_the_task(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": {}}))
    for name in ("OMP_NUM_THREADS", "TF_NUM_INTEROP_THREADS"):
        monkeypatch.delenv(name, raising=False)
    launcher = LocalLauncher()
    specs = workers({"do": "talk"}, {"do": "talk"}, folder=tmp_path)
    launcher.allocate([spec.place for spec in specs])
    worker = [launcher.start(spec) for spec in specs][-1]
    wait_until(lambda: worker.poll() is not None)
    launcher.stop_all()
    threads = max(1, count_cores() // 2)
    assert worker.log_tail() == ["said to stdout", "said to stderr", f" None {threads} 3"]
    assert "[worker 1] said to stdout\n[worker 1] said to stderr\n" in capfd.readouterr().err


def test_ports_are_free_and_not_those_of_outgoing_connections() -> None:
    low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    found = ports.free_ports(50)
    assert len(set(found)) == 50
    assert not any(low <= port <= high for port in found)
    assert all(map(ports.is_free, found))
