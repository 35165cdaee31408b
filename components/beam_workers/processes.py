"""Processes in which Beam's workers run, as Beam starts, watches and ends them."""

from __future__ import annotations

import threading
from typing import Any
from weakref import WeakKeyDictionary

from apache_beam.portability.api import beam_fn_api_pb2
from apache_beam.runners.portability.fn_api_runner.worker_handlers import (
    ControlConnection,
    ControlFuture,
    GrpcWorkerHandler,
    WorkerHandler,
)
from apache_beam.transforms import environments

from components.beam_workers.failing import died
from components.compat.beam import check_listening
from components.compat.speed import imported
from components.processes.ending import LOOKS_EVERY
from components.processes.launcher import Place, WorkerSpec
from components.processes.local.fork_server import current_server
from components.processes.local.launcher import LocalLauncher

_URN = "scopeline:env:forked_workers:v1"
_MODULE = "components.beam_workers.worker"
_ENDS_WITHIN = 5.0
_crews: WeakKeyDictionary[Any, list[_Connection]] = WeakKeyDictionary()
"""By Beam's server, its connections to the workers of a pipeline: one that fails ends all."""


class ForkedWorkers(environments.Environment):
    """Says to Beam that functions run in such processes."""

    def __init__(self, workers: int) -> None:
        """So many of them share this machine."""
        super().__init__(capabilities=environments.python_sdk_capabilities())
        self._workers = workers

    def to_runner_api_parameter(self, context: Any) -> tuple[str, bytes]:
        """The kind of environment, and how many processes share the machine."""
        return _URN, str(self._workers).encode()


class _Connection:
    """Beam's connection to a worker, which answers in its place once there is no use in waiting.

    Otherwise Beam waits for a worker that has died for ever, and for those of which it asked
    something earlier as long as they take, before it sees that another has failed.
    """

    def __init__(self, connection: ControlConnection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._asked: list[ControlFuture] = []
        self._failure = ""

    def push(self, request: Any) -> ControlFuture:
        """Asks the worker."""
        future = self._connection.push(request)
        with self._lock:
            self._asked = [future, *(one for one in self._asked if not one.is_done())]
            self._answer()
        return future

    def fail(self, failure: str) -> None:
        """Answers whatever it is or will be asked by an error; the first one counts."""
        with self._lock:
            self._failure = self._failure or failure
            self._answer()

    def failure(self) -> str:
        """What it has answered by an error; empty as long as it has not."""
        with self._lock:
            answered = [future.get().error for future in self._asked if future.is_done()]
        return self._failure or next(filter(None, answered), "")

    def is_needless(self) -> bool:
        """Whether nobody needs the worker's answer any more, which may not have come."""
        with self._lock:
            return bool(self._failure) or any(not future.is_done() for future in self._asked)

    def close(self) -> None:
        """Lets the worker end."""
        self._connection.close()

    def _answer(self) -> None:
        for future in self._asked if self._failure else ():
            if not future.is_done():
                future.set(
                    beam_fn_api_pb2.InstructionResponse(
                        instruction_id=future.instruction_id, error=self._failure
                    )
                )


@WorkerHandler.register_environment(_URN, bytes)
class ForkedWorker(GrpcWorkerHandler):
    """A worker in a fork of the run, or in a fresh process where there is no server of forks."""

    def __init__(self, workers: bytes, state: Any, provision_info: Any, grpc_server: Any) -> None:
        """As Beam makes them.

        Args:
          workers: how many there are.
          state: Beam's.
          provision_info: Beam's.
          grpc_server: Beam's, which the worker connects to.

        Raises:
          InternalError: other machines could connect, too.
        """
        check_listening()
        super().__init__(state, provision_info, grpc_server)
        self._launcher = LocalLauncher(current_server(), computing=int(workers))
        self._name = f"Beam {self.worker_id.replace('_', ' ')}"
        connection: ControlConnection = grpc_server.control_handler.get_conn_by_worker_id(
            self.worker_id
        )
        self._connection = self.control_conn = _Connection(connection)
        self._crew = _crews.setdefault(grpc_server, [])
        self._crew.append(self._connection)
        self._stopping = threading.Event()
        self._watch = threading.Thread(target=self._see_it_fail, name="beam-worker", daemon=True)

    def start_worker(self) -> None:
        """Starts the process."""
        self._worker = self._launcher.start(
            WorkerSpec(
                Place("worker", 0, label=self._name),
                _MODULE,
                {
                    "control": self.control_address,
                    "worker": self.worker_id,
                    "name": self._name,
                    "libraries": imported(),
                },
                {"CUDA_VISIBLE_DEVICES": "-1"},
            )
        )
        self._watch.start()

    def close(self) -> None:
        """Ends it; at once where nobody needs its answer, as after an interrupt or a failure."""
        self._stopping.set()
        self._watch.join()
        if self._connection.is_needless():
            self._launcher.stop_all()
        super().close()

    def stop_worker(self) -> None:
        """Waits until it has ended, or ends it."""
        self._launcher.stop_all(within=_ENDS_WITHIN)

    def _see_it_fail(self) -> None:
        while not self._stopping.wait(LOOKS_EVERY):
            status = self._worker.poll()
            if status is not None:
                self._connection.fail(died(self._name, status, self._worker.log_tail()))
            # Again and again, for those of the crew that are only started now.
            if failure := self._connection.failure():
                for connection in self._crew:
                    connection.fail(failure)
