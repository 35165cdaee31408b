"""Workers as forks: they are what fresh processes are, and none outlives the server or the run."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from components.processes.local import fork_server
from components.processes.local.fork_server import may_fork
from tests.support import warm

_RUN = """
import fcntl, json, logging, os, signal, sys, time
from dataclasses import replace
from pathlib import Path
import psutil
from tests.support.cluster_workers import workers
from components.processes.local.fork_server import current_server, run_fork_server
from components.processes.local.launcher import LocalLauncher
from trainer_module.scratch import own_temporary_files

folder = Path(sys.argv[1])

def finish(launcher, *specs):
    started = [launcher.start(spec) for spec in specs]
    deadline = time.monotonic() + 120
    while any(worker.poll() is None for worker in started):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)
    return started

def server_process():
    return next(
        child for child in psutil.Process().children() if "fork_server" in " ".join(child.cmdline())
    )

def answer(value):
    print(json.dumps(value))
"""
"""The beginning of each test's script, which ends with a line of JSON."""


def run(folder: Path, script: str) -> Any:
    """Runs a script in a process of its own, as pytest has threads; returns its line of JSON."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = warm.run(
        [sys.executable, "-c", _RUN + script, str(folder)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_exit_statuses_and_events_of_forked_workers_are_known(tmp_path: Path) -> None:
    found = run(
        tmp_path,
        """
with run_fork_server():
    launcher = LocalLauncher(current_server())
    ends = {"do": "finish"}, {"do": "exit_early"}, {"do": "die_until", "lives_at": 9}
    started = finish(launcher, *workers(*[{"restarts": [], **end} for end in ends], folder=folder))
    kinds = [[event.kind for event in worker.events()] for worker in started]
    left = server_process().children()
    launcher.stop_all()
answer([[worker.poll() for worker in started], kinds,
      [p.name() for p in left if p.status() == "zombie"],
      [p.pid for p in psutil.Process().children()]])
""",
    )
    statuses, kinds, zombies, children = found
    assert statuses == [0, 3, -signal.SIGKILL]
    assert kinds == [
        ["alive", "ready", "progress", "progress", "done"],
        ["alive"],
        ["alive", "ready"],
    ]
    assert (zombies, children) == ([], [])


def test_forked_worker_equals_a_fresh_process(tmp_path: Path) -> None:
    """But for the modules that it holds, and the files that its numbers lead to."""
    script = """
signal.signal(signal.SIGTERM, signal.default_int_handler)
logging.basicConfig(level=logging.INFO)
kept = open(folder / "kept", "w")
os.environ["EARLY"] = "1"
with own_temporary_files(), run_fork_server():
    server = current_server()
    (folder / "here").mkdir()
    os.chdir(folder / "here")
    sys.path.append(str(folder))
    del os.environ["EARLY"]
    os.environ["LATE"] = "x" * 2000
    seen = []
    for launcher in (LocalLauncher(server), LocalLauncher()):
        (spec,) = workers({"do": "describe"}, folder=folder)
        finish(launcher, replace(spec, environment={"OWN": "2"}))
        seen.append(json.loads((folder / "described").read_text()))
        assert Path(seen[-1]["temporary"]).exists()
        launcher.stop_all()
        assert not Path(seen[-1]["temporary"]).parent.exists()
answer(seen)
"""
    forked, fresh = run(tmp_path, script)
    assert forked.pop("title") == "tests.support.cluster_workers worker 0"
    assert fresh.pop("title").endswith("tests.support.cluster_workers worker 0")
    for found in (forked, fresh):
        # Not in the run's own folder: names of sockets may not be long.
        assert str(Path(found.pop("temporary")).parents[1]) == tempfile.gettempdir()
    assert forked == fresh
    assert forked["variables"] == {"OWN": "2", "LATE": "x" * 2000, "EARLY": None}
    assert forked["folder"] == str(tmp_path / "here")
    assert (forked["leads"], forked["finds"]) == (True, True)


def test_fork_server_holds_no_lock_of_the_run(tmp_path: Path) -> None:
    script = """
def lock():
    descriptor = os.open(folder / "lock", os.O_CREAT | os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return descriptor

held = lock()
with run_fork_server():
    launcher = LocalLauncher(current_server())
    launcher.start(workers({"do": "sleep"}, folder=folder)[0])
    try:
        lock()
        answer("the server has released it")
    except BlockingIOError:
        os.close(held)
        lock()
        answer("nobody else holds it")
    launcher.stop_all()
"""
    assert run(tmp_path, script) == "nobody else holds it"


def test_workers_end_with_a_killed_fork_server(tmp_path: Path) -> None:
    script = """
with run_fork_server():
    launcher = LocalLauncher(current_server())
    worker = launcher.start(workers({"do": "sleep_stubbornly"}, folder=folder)[0])
    while not worker.events():
        time.sleep(0.01)
    everything = psutil.Process().children(recursive=True)
    server_process().kill()
    while worker.poll() is None:
        time.sleep(0.01)
    (again,) = finish(launcher, *workers({"do": "finish"}, folder=folder))
    launcher.stop_all()
    gone, left = psutil.wait_procs(everything, timeout=5)
    left = [process for process in left if process.status() != "zombie"]
    answer([len(left), worker.poll(), again.poll()])
"""
    assert run(tmp_path, script) == [0, -signal.SIGKILL, 0]


@pytest.mark.usefixtures("one_thread")
def test_process_that_has_used_tensorflow_is_not_forked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "tensorflow.python.eager.context", raising=False)
    assert may_fork()
    context: object | None = None
    fake = SimpleNamespace(context_safe=lambda: context)
    monkeypatch.setitem(sys.modules, "tensorflow.python.eager.context", fake)
    assert may_fork()
    context = object()
    assert not may_fork()
    # Of another TensorFlow nothing is known.
    monkeypatch.delattr(fake, "context_safe")
    assert not may_fork()
    monkeypatch.delitem(sys.modules, "tensorflow.python.eager.context")
    monkeypatch.setattr(fork_server, "_DRIVERS", (os.devnull,))
    with Path(os.devnull).open():
        assert not may_fork()


@pytest.fixture
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "active_count", lambda: 1)


def test_process_with_threads_is_not_forked() -> None:
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    assert not may_fork()
    done.set()
    thread.join()


def test_hung_worker_is_detected_and_killed(tmp_path: Path) -> None:
    script = """
from components.processes import supervisor
supervisor.CLUSTER_GRACE_SECONDS = 0.1
with run_fork_server():
    job = supervisor.ClusterJob(
        workers({"do": "sleep"}, {"do": "never_ready"}, folder=folder), start_timeout=4
    )
    try:
        supervisor.Supervisor(LocalLauncher(current_server()), job).run()
    except Exception as error:
        answer([type(error).__name__, str(error), len(server_process().children())])
"""
    kind, message, left = run(tmp_path, script)
    assert (kind, left) == ("StartTimeoutError", 0)
    assert "worker 1" in message
    assert "worker 0" not in message


def test_killed_forked_worker_restarts_the_gang(tmp_path: Path) -> None:
    script = """
from components.processes import supervisor
supervisor.CLUSTER_GRACE_SECONDS = 0.1
with run_fork_server():
    gang = workers({"do": "die_until", "lives_at": 1}, {"do": "finish"}, folder=folder)
    launcher = LocalLauncher(current_server())
    answer(supervisor.Supervisor(launcher, supervisor.ClusterJob(gang)).run())
"""
    assert run(tmp_path, script) == ["worker 0 was killed by SIGKILL"]
    assert len((tmp_path / "worker1.starts").read_text().splitlines()) == 2
