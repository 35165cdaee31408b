"""A child process that parses large requests, so that other requests do not wait.

The JSON parser holds Python's lock for a whole body, which takes seconds for 64 MiB. A body may
also need forty times its size in objects; the child process has a memory limit. It sends tensors
back, which are quick to receive. It is started by the first large request.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import importlib
import logging
import os
import resource
import signal
import subprocess
import sys
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from components.serving.server.batching import timeout_error
from components.serving.server.options import ServeOptions
from components.serving.server.protocols.values import as_tensors
from components.serving.server.reading import (
    PredictionRequest,
    ReadRequest,
    json_length,
    memory_of_json,
    read_request,
)
from components.serving.server.replies import Reply, RequestError, error_reply, size_of_part
from trainer_module.export.interface import ModelInterface

logger = logging.getLogger(__name__)

_OBJECT_BYTES = 16
"""The limit of parsed JSON objects, in bytes per byte of the largest body."""
_RESERVED_BYTES = 32
"""The limit of the memory that the process reserves, in bytes per byte of the largest body; orjson
does not use most of it. It is only the second limit, as Python takes minutes to fail at it."""
_TENSOR_BYTES = 2
"""The limit of the tensors, in bytes per byte of the largest body."""
_NICE = 5
"""The niceness of the process: small requests have priority if there are not enough cores."""


_ReadTask = tuple[PredictionRequest, int, ModelInterface]
"""The message to the process before the body: a request without body, the number of a version, and
the interface of its model."""


class _Tensor(NamedTuple):
    """The message that precedes the bytes of a tensor."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    lengths: np.ndarray | None
    """The lengths of the texts; None for numbers."""


class LargeReader:
    """A reader that sends large requests to the child process, one after the other."""

    def __init__(self, options: ServeOptions) -> None:
        """Creates the reader; the process is started later.

        Args:
          options: the options with the limits.
        """
        self._options = options
        self._thread = ThreadPoolExecutor(1, "large requests")
        self._turn = asyncio.Lock()
        """A lock held while the thread reads; the body of a waiting request belongs to its task
        alone."""
        self._process: _Process | None = None

    async def read(
        self, request: PredictionRequest, number: int, interface: ModelInterface
    ) -> ReadRequest | Reply:
        """Parses a request in the child process.

        Args:
          request: the received request.
          number: the version's number.
          interface: the interface of the version's model.

        Returns:
          The parsed request with tensors, or the response of an error.
        """
        until = time.monotonic() + self._options.answer_seconds
        task = request._replace(body=b""), number, interface
        loop = asyncio.get_running_loop()
        await self._turn.acquire()
        asked = self._thread.submit(self._read_in_process, task, request.body, until)

        def release(_: object) -> None:
            with suppress(RuntimeError):  # The loop has ended.
                loop.call_soon_threadsafe(self._turn.release)

        # Released when the thread no longer uses the body, even if the request was cancelled.
        asked.add_done_callback(release)
        return await asyncio.wrap_future(asked)

    def _read_in_process(self, task: _ReadTask, body: bytes, until: float) -> ReadRequest | Reply:
        try:
            if self._process is None or not self._process.is_alive:
                self._end()
                self._process = _Process(self._options)
        except OSError as error:
            logger.error("the process that reads large requests cannot be started: %s", error)
            return error_reply(
                RequestError("large requests cannot be read now: try again later.", 503)
            )
        answer: ReadRequest | Reply | None = None
        try:
            answer = self._process.read(task, body, until)
        except TimeoutError:
            return error_reply(timeout_error(self._options.answer_seconds))
        except (EOFError, OSError):
            return error_reply(_memory_error())
        finally:
            if answer is None:  # A late answer would be taken for that of the next request.
                self._end()
        return answer

    def _end(self) -> None:
        if self._process is not None:
            self._process.end()
            self._process = None


class _Process:
    """A handle of the child process in the server."""

    def __init__(self, options: ServeOptions) -> None:
        self._connection, other = Pipe()
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
        # -P: modules in the working directory do not shadow those of this process.
        command = [sys.executable, "-P", "-m", __name__, str(other.fileno())]
        command += [str(options.max_bytes), str(options.max_rows)]
        with other:
            process = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, pass_fds=[other.fileno()]
            )
        self._process = process
        self.end = weakref.finalize(self, _end, process, self._connection)

    @property
    def is_alive(self) -> bool:
        """Whether the process is running."""
        return self._process.poll() is None

    def read(self, task: _ReadTask, body: bytes, until: float) -> ReadRequest | Reply:
        """Sends a request, and receives the parsed request or an error response.

        Raises:
          TimeoutError: the request takes too long.
          EOFError, OSError: the process has died.
        """
        self._connection.send(task)
        self._connection.send_bytes(body)
        if not self._connection.poll(max(0.0, until - time.monotonic())):
            raise TimeoutError
        # Only objects of the process itself are unpickled; data of a client follows as bytes.
        found: ReadRequest | Reply = self._connection.recv()
        if isinstance(found, Reply):
            return found
        tensors: Any = found.inputs
        return found._replace(inputs={t.name: _take(t, self._connection) for t in tensors})


def _end(process: subprocess.Popen[bytes], connection: Connection) -> None:
    process.kill()
    process.wait()
    connection.close()


def _memory_error() -> RequestError:
    return RequestError(
        "the request takes too much memory to read: send fewer rows per request.", 413
    )


def _take(tensor: _Tensor, connection: Connection) -> np.ndarray:
    data = connection.recv_bytes()
    if tensor.lengths is None:
        return np.frombuffer(data, tensor.dtype).reshape(tensor.shape)
    ends = np.cumsum(tensor.lengths).tolist()
    starts = [0, *ends][:-1]
    texts = np.empty(len(ends), object)
    texts[:] = [data[start:end] for start, end in zip(starts, ends, strict=True)]
    return texts.reshape(tensor.shape)


def _send(name: str, values: np.ndarray) -> tuple[_Tensor, bytes | memoryview]:
    if values.dtype != object:
        whole = np.ascontiguousarray(values)
        return _Tensor(name, values.shape, values.dtype, None), whole.reshape(-1).view("b").data
    flat = values.ravel().tolist()
    lengths = np.fromiter(map(len, flat), np.int64, len(flat))
    return _Tensor(name, values.shape, values.dtype, lengths), b"".join(flat)


def _read(task: _ReadTask, body: bytes, most_bytes: int, most_rows: int) -> ReadRequest | Reply:
    """Returns the parsed request with tensors, or the response of an error."""
    given, number, interface = task
    try:
        request = given._replace(body=body)
        if memory_of_json(body[: json_length(request)]) > _OBJECT_BYTES * most_bytes:
            raise _memory_error()
        read = read_request(request, number, interface, most_rows)
        tensors = as_tensors(read.inputs, interface)
        if size_of_part(tensors) > _TENSOR_BYTES * most_bytes:
            raise _memory_error()
        return read._replace(inputs=tensors)
    except MemoryError:
        return error_reply(_memory_error())
    except Exception as error:
        return error_reply(error)


def _answer(connection: Connection, result: ReadRequest | Reply) -> None:
    if isinstance(result, Reply):
        connection.send(result)
        return
    inputs: Any = result.inputs
    sent = [_send(name, values) for name, values in inputs.items()]
    described: Any = [tensor for tensor, _ in sent]
    connection.send(result._replace(inputs=described))
    for _, data in sent:
        connection.send_bytes(data)


def main(descriptor: str, most_bytes: str, most_rows: str) -> None:
    """Parses requests until the server closes the connection."""
    os.nice(_NICE)
    for number in (signal.SIGINT, signal.SIGTERM):  # The process ends with the server.
        signal.signal(number, signal.SIG_IGN)
    _limit_memory(_RESERVED_BYTES * int(most_bytes))
    gc.freeze()
    gc.disable()  # Parsed JSON has no cycles, so searching it would only take time.
    connection = Connection(int(descriptor))
    with suppress(EOFError, OSError):
        while True:
            task: _ReadTask = connection.recv()
            found = _read(task, connection.recv_bytes(), int(most_bytes), int(most_rows))
            _answer(connection, found)
            del found
            gc.collect()
            with suppress(AttributeError):  # C libraries other than glibc return memory unasked.
                ctypes.CDLL(None).malloc_trim(0)


def _limit_memory(more: int) -> None:
    """Limits the memory of this process to its current memory plus some bytes."""
    status = Path("/proc/self/status")
    if status.is_file():
        kilobytes = int(status.read_text().partition("VmData:")[2].split()[0])
        limit = (kilobytes << 10) + more
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    # Imported by its real name, as pickled classes must not belong to `__main__`.
    importlib.import_module(str(__spec__.name)).main(*sys.argv[1:])
