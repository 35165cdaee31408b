"""One of the processes that answer behind one socket."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait

from components.serving.imports import import_tensorflow
from components.serving.server.options import ServeOptions
from components.serving.server.processes.logs import log_as_json
from components.serving.server.workers import WorkerPlace
from trainer_module.errors import ScopelineError

_EXIT_UNUSABLE = 2
"""As the command line ends where no version can be served."""


def work(
    options: ServeOptions, bound: socket.socket, place: WorkerPlace, failed: Connection
) -> None:
    """Answers until a signal comes, or the parent process is gone.

    Args:
      options: checked.
      bound: the socket that all workers share.
      place: of this one among them.
      failed: takes the sentence that says why there is nothing to serve.
    """
    log_as_json(place.number)
    threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()
    if not options.transformed:
        import_tensorflow()
    # The parent process imports this module as well, and does without TensorFlow.
    from components.serving.server.processes.answering import answer, open_repository

    try:
        repository = open_repository(options)
    except ScopelineError as error:
        failed.send(str(error))
        sys.exit(_EXIT_UNUSABLE)
    answer(options, repository, bound, place)


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)
