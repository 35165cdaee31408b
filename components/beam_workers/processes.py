"""Starts, monitors and ends the processes of Beam's workers.

Beam forwards only the text of a worker's traceback. The worker therefore appends its error to the
text as JSON, and the run raises the error again.
"""

from __future__ import annotations

import functools
import json
import logging
import threading
import traceback
from collections.abc import Sequence
from importlib import import_module
from typing import Any
from weakref import WeakKeyDictionary

from apache_beam.portability.api import beam_fn_api_pb2
from apache_beam.runners.portability.fn_api_runner.worker_handlers import (
    DATA_BUFFER_TIME_LIMIT_MS,
    FNAPI_RUNNER_CAPABILITIES,
    MB_TO_BYTES,
    STATE_CACHE_SIZE_MB,
    ControlConnection,
    ControlFuture,
    GrpcWorkerHandler,
    WorkerHandler,
)
from apache_beam.transforms import environments

from components import row_progress
from components.compat.beam import DescribingHarness, check_listening
from components.compat.speed import imported_libraries, speed_up
from components.processes.ending import POLL_SECONDS
from components.processes.failures import Failure, describe
from components.processes.launcher import Place, WorkerSpec
from components.processes.local.fork_server import current_server
from components.processes.local.launcher import LocalLauncher
from components.processes.worker import Channel
from trainer_module.errors import WorkerError

_MARK = "\nThe error of "


def describe_error(worker: str, error: BaseException) -> str:
    """Returns an error in a worker as text for Beam: its traceback, and the error as JSON."""
    text = "".join(traceback.format_exception(error))
    return text + _MARK + json.dumps([worker, describe(error)])


def describe_exit(worker: str, status: int, log_tail: Sequence[str]) -> str:
    """Returns the error of a worker that ended early as text for Beam, like `describe_error`.

    Args:
      status: the exit status of the worker's process, or minus the number of the signal that ended
        the process.
    """
    failure = Failure.of_exit(worker, status)
    last_line = (
        f" The last line of its log: {log_tail[-1]}" if log_tail and not failure.signal else ""
    )
    error = WorkerError(
        f"{failure.sentence}.{last_line} Its unfinished output is discarded. Run again; if the"
        " worker fails again, use one process: beam.workers: 1."
    )
    return describe_error(worker, error)


def find_cause(error: BaseException) -> Exception | None:
    """Returns the worker's error in the text of Beam's error, or None if the text has no error."""
    _, mark, error_json = str(error).rpartition(_MARK)
    if not mark:
        return None
    worker, values = json.loads(error_json)
    return Failure.of_error(worker, values).to_exception(())


_URN = "scopeline:env:forked_workers:v1"
_MODULE = "components.beam_workers.processes"
_END_TIMEOUT = 5.0
"""The seconds after which a worker that does not end is killed."""
_connections_by_server: WeakKeyDictionary[Any, list[_Connection]] = WeakKeyDictionary()
"""The connections of each of Beam's servers to the workers of a pipeline. If a worker fails, all
workers of the pipeline are ended."""


class ForkedWorkers(environments.Environment):
    """A Beam environment whose functions run in forked workers."""

    def __init__(self, workers: int) -> None:
        super().__init__(capabilities=environments.python_sdk_capabilities())
        self._workers = workers

    def to_runner_api_parameter(self, context: Any) -> tuple[str, bytes]:
        """Returns the URN of the environment, and the number of processes on this machine."""
        return _URN, str(self._workers).encode()


class _Connection:
    """A connection of Beam to a worker. If the worker fails, the connection answers Beam's requests
    with an error.

    Without these answers Beam would wait indefinitely for a worker that has died, and would report
    a failure only after all other workers have answered.
    """

    def __init__(self, connection: ControlConnection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._requests: list[ControlFuture] = []
        self._failure = ""

    def push(self, request: Any) -> ControlFuture:
        """Sends a request to the worker."""
        future = self._connection.push(request)
        with self._lock:
            self._requests = [future, *(open_ for open_ in self._requests if not open_.is_done())]
            self._answer()
        return future

    def fail(self, failure: str) -> None:
        """Answers all open and later requests with an error. Later calls keep the first error."""
        with self._lock:
            self._failure = self._failure or failure
            self._answer()

    def failure(self) -> str:
        """Returns the error with which a request was answered, or "" if there was no error."""
        with self._lock:
            answered = [future.get().error for future in self._requests if future.is_done()]
        return self._failure or next(filter(None, answered), "")

    def can_be_killed(self) -> bool:
        """Returns whether `close` may end the worker immediately.

        The worker has failed, or has open requests that Beam has abandoned.
        """
        with self._lock:
            return bool(self._failure) or any(not future.is_done() for future in self._requests)

    def close(self) -> None:
        """Closes the connection, so that the worker ends."""
        self._connection.close()

    def _answer(self) -> None:
        for future in self._requests if self._failure else ():
            if not future.is_done():
                future.set(
                    beam_fn_api_pb2.InstructionResponse(
                        instruction_id=future.instruction_id, error=self._failure
                    )
                )


@WorkerHandler.register_environment(_URN, bytes)
class ForkedWorker(GrpcWorkerHandler):
    """A worker in a fork of the run, or in a new process if there is no fork server."""

    def __init__(self, workers: bytes, state: Any, provision_info: Any, grpc_server: Any) -> None:
        """Creates the worker with the arguments that Beam passes.

        Raises:
          InternalError: Beam's server accepts connections from other machines.
        """
        check_listening()
        super().__init__(state, provision_info, grpc_server)
        self._launcher = LocalLauncher(current_server(), computing=int(workers))
        self._name = f"Beam {self.worker_id.replace('_', ' ')}"
        connection: ControlConnection = grpc_server.control_handler.get_conn_by_worker_id(
            self.worker_id
        )
        self._connection = self.control_conn = _Connection(connection)
        self._pipeline_connections = _connections_by_server.setdefault(grpc_server, [])
        self._pipeline_connections.append(self._connection)
        self._stopping = threading.Event()
        self._watch = threading.Thread(target=self._watch_process, name="beam-worker", daemon=True)

    def start_worker(self) -> None:
        """Starts the process of the worker."""
        self._worker = self._launcher.start(
            WorkerSpec(
                Place("worker", 0, label=self._name),
                _MODULE,
                {
                    "control": self.control_address,
                    "worker": self.worker_id,
                    "name": self._name,
                    "libraries": imported_libraries(),
                    "rows": [row_progress.shared_path, len(self._pipeline_connections)],
                },
                {"CUDA_VISIBLE_DEVICES": "-1"},
            )
        )
        self._watch.start()

    def close(self) -> None:
        """Ends the worker; after an interrupt or a failure, the worker ends immediately."""
        self._stopping.set()
        self._watch.join()
        if self._connection.can_be_killed():
            self._launcher.stop_all()
        super().close()

    def stop_worker(self) -> None:
        """Waits until the worker has ended, and kills it after a timeout."""
        self._launcher.stop_all(grace_seconds=_END_TIMEOUT)

    def _watch_process(self) -> None:
        while not self._stopping.wait(POLL_SECONDS):
            status = self._worker.poll()
            if status is not None:
                self._connection.fail(describe_exit(self._name, status, self._worker.log_tail()))
            # The loop repeats this for workers of the pipeline that start after the failure.
            if failure := self._connection.failure():
                for connection in self._pipeline_connections:
                    connection.fail(failure)


def main(payload: dict[str, Any], channel: Channel) -> None:
    """Runs a worker until Beam closes its connection.

    Args:
      payload: a dict with `control`, the address of Beam's server in the run; `worker`, Beam's id
        of this worker; `name`, the worker's name in messages; `libraries`, the modules that the
        worker imports and `speed_up` changes; and `rows`, the arguments of `share_counts`.
      channel: not used, as Beam has its own connection.
    """
    logging.basicConfig(level=logging.WARNING)
    row_progress.share_counts(*payload["rows"])
    for library in payload["libraries"]:
        import_module(library)
    speed_up()
    DescribingHarness(
        functools.partial(describe_error, payload["name"]),
        payload["control"],
        worker_id=payload["worker"],
        state_cache_size=STATE_CACHE_SIZE_MB * MB_TO_BYTES,
        data_buffer_time_limit_ms=DATA_BUFFER_TIME_LIMIT_MS,
        runner_capabilities=FNAPI_RUNNER_CAPABILITIES,
    ).run()
