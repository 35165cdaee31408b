"""Workers as forks: they are what fresh processes are, and none outlives the server or the run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from components.processes.local import fork_server
from components.processes.local.fork_server import may_fork

_RUN = """
import fcntl, json, logging, os, random, signal, sys, time
from dataclasses import replace
from pathlib import Path
import numpy, psutil
from tests.support.cluster_workers import workers
from components.processes.local.fork_server import current_server, run_fork_server
from components.processes.local.launcher import LocalLauncher
from trainer_module.scratch import own_temporary_files

folder = Path(sys.argv[1])

def finish(launcher, *specs):
    started = [launcher.start(spec) for spec in specs]
    deadline = time.monotonic() + 20
    while any(worker.poll() is None for worker in started):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)
    return started

def server_process():
    return next(
        child for child in psutil.Process().children() if "fork_server" in " ".join(child.cmdline())
    )

def tell(value):
    print(json.dumps(value))
"""
"""What the run of each test begins with; it ends with a line of JSON, or without."""


def run(folder: Path, script: str) -> Any:
    """Runs a script in a process of its own, as pytest has threads; returns what it tells."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", _RUN + script, str(folder)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_how_tasks_end_is_known(tmp_path: Path) -> None:
    told = run(
        tmp_path,
        """
with run_fork_server():
    launcher = LocalLauncher(current_server())
    ends = {"do": "finish"}, {"do": "exit_early"}, {"do": "die_until", "lives_at": 9}
    started = finish(launcher, *workers(*[{"restarts": [], **end} for end in ends], folder=folder))
    said = [[event.kind for event in worker.events()] for worker in started]
    left = server_process().children()
    launcher.stop_all()
tell([[worker.poll() for worker in started], said,
      [p.name() for p in left if p.status() == "zombie"],
      [p.pid for p in psutil.Process().children()]])
""",
    )
    statuses, said, zombies, children = told
    assert statuses == [0, 3, -signal.SIGKILL]
    assert said == [
        ["alive", "ready", "progress", "progress", "done"],
        ["alive"],
        ["alive", "ready"],
    ]
    assert (zombies, children) == ([], [])


def test_task_is_what_a_fresh_process_is(tmp_path: Path) -> None:
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
tell(seen)
"""
    forked, fresh = run(tmp_path, script)
    assert forked.pop("title") == "cluster_workers worker 0"
    assert fresh.pop("title").endswith("cluster_workers worker 0")
    for told in (forked, fresh):
        # Not in the run's own folder: names of sockets may not be long.
        assert str(Path(told.pop("temporary")).parents[1]) == tempfile.gettempdir()
    assert forked == fresh
    assert forked["variables"] == {"OWN": "2", "LATE": "x" * 2000, "EARLY": None}
    assert forked["folder"] == str(tmp_path / "here")
    assert (forked["leads"], forked["finds"]) == (True, True)


def test_siblings_draw_other_numbers(tmp_path: Path) -> None:
    script = """
random.seed(1)
numpy.random.seed(1)
with run_fork_server():
    launcher = LocalLauncher(current_server())
    drawn = []
    for _ in range(2):
        finish(launcher, *workers({"do": "draw"}, folder=folder))
        drawn += json.loads((folder / "drawn").read_text())
    launcher.stop_all()
tell(drawn)
"""
    assert len(set(run(tmp_path, script))) == 4


def test_lock_of_the_run_is_its_own(tmp_path: Path) -> None:
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
        tell("the server has released it")
    except BlockingIOError:
        os.close(held)
        lock()
        tell("nobody else holds it")
    launcher.stop_all()
"""
    assert run(tmp_path, script) == "nobody else holds it"


def test_server_that_is_lost_takes_its_tasks_along(tmp_path: Path) -> None:
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
    tell([len(left), worker.poll(), again.poll()])
"""
    assert run(tmp_path, script) == [0, -signal.SIGKILL, 0]


def test_process_that_does_not_begin_is_none(tmp_path: Path) -> None:
    told = run(
        tmp_path,
        """
from components.processes.local.forking import ForkRequest, fork
with run_fork_server():
    birth = ForkRequest("builtins:print", [], dict(os.environ), str(folder / "absent"), [0])
    try:
        fork(current_server()._requests, birth, [0])
    except OSError as error:
        tell(str(error))
""",
    )
    assert told == "the fork server cannot fork"


def test_module_that_is_not_there(tmp_path: Path) -> None:
    script = """
with run_fork_server():
    launcher = LocalLauncher(current_server())
    (spec,) = workers({"do": "finish"}, folder=folder)
    (worker,) = finish(launcher, replace(spec, module="no_such_module"))
    launcher.stop_all()
    tell([worker.poll(), worker.log_tail()[-1]])
"""
    assert run(tmp_path, script) == [1, "ModuleNotFoundError: No module named 'no_such_module'"]


@pytest.mark.usefixtures("one_thread")
def test_what_cannot_be_forked(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_threads_cannot_be_forked() -> None:
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    assert not may_fork()
    done.set()
    thread.join()
