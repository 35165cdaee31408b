"""The server's side of `fork_server`: forks tasks, waits for them, and ends with the run."""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import importlib
import json
import logging
import os
import select
import signal
import socket
import sys
import tempfile
import traceback
from typing import Any, NoReturn, TextIO

from components.processes.local.parent_watch import be_killed_with
from components.processes.local.process_title import set_title
from components.processes.local.task_process import run_local_task

MAX_REQUEST = 150_000
"""Bytes: less than what Linux lets wait in a socket."""
_DESCRIPTORS = 4


def run_server(requests: socket.socket, run: int) -> NoReturn:
    """Makes a server of this process, which a run has just forked.

    Args:
      requests: where the run says what to do; its end is that of the server.
      run: the process id of the run.
    """
    try:
        be_killed_with(run)
        _leave_run(requests)
        _Server(requests).serve()
    finally:
        os._exit(1)


def _leave_run(requests: socket.socket) -> None:
    """Gives up all that the run has, but for its memory."""
    os.setsid()  # The terminal's Ctrl-C is for the run.
    # What is garbage by now may hold numbers of files that are given up here.
    gc.freeze()
    faulthandler.disable()
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        # Not closed, as Python's own objects would one day close the number of another file.
        if descriptor not in (null, requests.fileno()) and _is_open(descriptor):
            os.dup2(null, descriptor, inheritable=descriptor <= 2)
    os.close(null)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    loggers = [logging.root, *logging.root.manager.loggerDict.values()]
    for logger in loggers:
        if isinstance(logger, logging.Logger):
            # As they are in a process that sets up its logging before it imports TensorFlow.
            logger.handlers = [h for h in logger.handlers if isinstance(h, logging.NullHandler)]
    set_title(__name__)


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


class _Server:
    """Forks a task for each request; it has a single thread."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        self._reports: dict[int, int] = {}
        """For each task's process id, where to report how it ended."""
        self._ended, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)

    def serve(self) -> NoReturn:
        """Serves until the run has ended, or closed its end."""
        while True:
            ready, _, _ = select.select([self._requests, self._ended], [], [])
            if self._ended in ready:
                os.read(self._ended, 4096)
                self._report_ended()
            if self._requests in ready:
                self._take_request()

    def _report_ended(self) -> None:
        for pid, report in list(self._reports.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                del self._reports[pid]
                # The run may not want to know any more.
                with contextlib.suppress(BrokenPipeError):
                    os.write(report, b"%d\n" % os.waitstatus_to_exitcode(status))
                os.close(report)

    def _take_request(self) -> None:
        message, descriptors, _, _ = socket.recv_fds(
            self._requests, MAX_REQUEST, _DESCRIPTORS, socket.MSG_CMSG_CLOEXEC
        )
        if not message:
            os._exit(0)
        request = json.loads(message)
        if "kill" not in request:
            self._fork(request, *descriptors)
        elif request["kill"] in self._reports:
            os.killpg(request["kill"], signal.SIGKILL)

    def _fork(
        self, request: dict[str, Any], stdin: int, output: int, events: int, report: int
    ) -> None:
        """Forks a task; that it cannot is said by closing `report` without a word."""
        server = os.getpid()
        try:
            pid = os.fork()
        except OSError:
            pid = -1
        if pid == 0:
            try:
                self._leave_server()
                _become_task(request, stdin, output, report)
                run_local_task(request["module"], server, events, sys.stdin.buffer)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        for descriptor in (stdin, output, events):
            os.close(descriptor)
        if pid > 0:
            self._reports[pid] = report
        else:
            os.close(report)

    def _leave_server(self) -> None:
        """Gives up, in a task, what the server has."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self._requests.close()
        for descriptor in (self._ended, self._wake, *self._reports.values()):
            os.close(descriptor)


def _become_task(request: dict[str, Any], stdin: int, output: int, report: int) -> None:
    """Makes of this process what a new interpreter is when it has begun."""
    os.setsid()
    for descriptor, number in ((stdin, 0), (output, 1), (output, 2)):
        os.dup2(descriptor, number)
    os.close(stdin)
    os.close(output)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - until it ends
    sys.stdout, sys.stderr = (_open_output(number) for number in (1, 2))
    # From now on it can be ended by its group, and its errors are seen.
    os.write(report, b"%d\n" % os.getpid())
    os.close(report)
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.path[:] = os.environ["PYTHONPATH"].split(os.pathsep)
    sys.argv = [request["module"], request["name"]]
    set_title(" ".join(sys.argv))
    os.chdir(request["folder"])
    importlib.invalidate_caches()
    tempfile.tempdir = None
    # Python's own generator does so by itself.
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()


def _open_output(number: int) -> TextIO:
    return open(
        number, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False
    )
