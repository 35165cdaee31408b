"""SIGTERM and Ctrl-C reach processes in destructors, in C code, and while they clean up."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[3]
BEGIN = """
import ctypes, os, signal, subprocess, sys, threading, time
from components.processes import stopping
stopping.REPEAT_SECONDS, stopping.RUN_GRACE_SECONDS, stopping.CHILDREN_GRACE_SECONDS = 0.2, 1.0, 0.6
def stop(number=signal.SIGTERM):
    os.kill(os.getpid(), number)
def attempt(work):
    stopping.install_handlers()
    error = stopping.attempt(work, lambda: print("last words", flush=True), 130)
    print(type(error).__name__, stopping.received_signal(), flush=True)
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    """Runs code in a process of its own, to its end."""
    command = [sys.executable, "-c", BEGIN + code]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30)


def test_stop_swallowed_by_a_destructor_is_raised_again() -> None:
    done = run("""
class Old:
    def __del__(self):
        stop(signal.SIGINT)
        time.sleep(0.1)
def work():
    Old()
    print("goes on", flush=True)
    time.sleep(20)
    print("never comes to this")
attempt(work)
""")
    assert done.stdout.split("\n")[:2] == ["goes on", "KeyboardInterrupt SIGINT"]
    assert "Exception ignored" in done.stderr, "it was swallowed"


def test_process_stuck_in_c_is_ended_with_its_children() -> None:
    """The main thread is in C, where no handler of Python's runs; a child ignores SIGTERM."""
    done = run("""
def work():
    stubborn = "import signal, time; signal.signal(15, signal.SIG_IGN); print(1, flush=True);"
    stubborn += "time.sleep(60)"
    child = subprocess.Popen([sys.executable, "-c", stubborn], stdout=subprocess.PIPE)
    child.stdout.readline()
    print(child.pid, flush=True)
    threading.Timer(0.1, stop).start()
    lock = ctypes.create_string_buffer(64)
    for _ in range(2):
        ctypes.CDLL(None).pthread_mutex_lock(lock)
attempt(work)
""")
    child, printed = done.stdout.split("\n", 1)
    assert (printed, done.returncode) == ("last words\n", 130)
    assert not psutil.pid_exists(int(child))


def test_a_stop_prevents_the_last_act_or_comes_too_late() -> None:
    done = run("""
def before():
    try:
        stop()
    except KeyboardInterrupt:  # As a library might.
        pass
    stopping.commit_or_abort()
    print("pushed")
def after():
    stopping.commit_or_abort()
    stop()
    time.sleep(0.5)
    print("pushed", flush=True)
attempt(before)
attempt(after)
""")
    assert done.stdout == "KeyboardInterrupt SIGTERM\npushed\nNoneType SIGTERM\n"


def test_a_stop_of_the_last_work_ends_only_that_work() -> None:
    done = run("""
def first():
    stop()
def last():
    stop(signal.SIGINT)
    stop()
    time.sleep(20)
    print("never comes to this")
attempt(first)
print(stopping.attempt_last(last, lambda: None, 0), flush=True)
stop()
stop(signal.SIGINT)
print(stopping.attempt_last(lambda: print("written"), lambda: None, 0))
stopping.exit_process(3)
""")
    assert done.stdout.split("\n")[1:] == ["False", "written", "True", ""]
    assert done.returncode == 3


def test_deferred_stop_follows_the_clean_up() -> None:
    done = run("""
def work():
    with stopping.defer_stop():
        stop()
        time.sleep(0.5)
        print("clean", flush=True)
    print("never comes to this")
attempt(work)
""")
    assert done.stdout == "clean\nKeyboardInterrupt SIGTERM\n"


def test_a_stopped_process_waits_for_no_thread() -> None:
    done = run("""
threading.Thread(target=time.sleep, args=(60,)).start()
def work():
    stop()
attempt(work)
stopping.exit_process(130)
""")
    assert (done.returncode, done.stdout) == (130, "KeyboardInterrupt SIGTERM\n")
