"""A child process that parses large requests, so that other requests do not wait.

The JSON parser holds Python's lock until it has parsed a whole body, which takes seconds for 64
MiB. The parsed objects may also take forty times the memory of the body, so the child process has a
memory limit. The child process sends tensors back, which the server receives quickly. The first
large request starts the child process.
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
    ParsedRequest,
    PredictionRequest,
    estimate_json_memory,
    json_length,
    read_request,
)
from components.serving.server.replies import Reply, RequestError, error_reply, size_of_part
from trainer_module.export.interface import ModelInterface

logger = logging.getLogger(__name__)

_OBJECT_BYTES_PER_BYTE = 16
"""The limit of the estimated memory of parsed JSON, in bytes per byte of the largest body."""
_RESERVED_BYTES_PER_BYTE = 32
"""The limit of the memory that the process reserves, in bytes per byte of the largest body. orjson
does not use most of the memory that it reserves. The estimate is checked first, as Python takes
minutes to fail at this limit."""
_TENSOR_BYTES_PER_BYTE = 2
"""The limit of the memory of the tensors, in bytes per byte of the largest body."""
_NICENESS = 5
"""The niceness of the process, so that small requests have priority if there are too few cores."""


_ReadTask = tuple[PredictionRequest, int, ModelInterface]
"""The message to the process before the body: the request without its body, the number of the
version, and the interface of its model."""


class _Tensor(NamedTuple):
    """The message that precedes the bytes of a tensor."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    lengths: np.ndarray | None
    """The lengths of the texts, or None for numbers."""


class LargeReader:
    """A reader that sends large requests to the child process, one after another."""

    def __init__(self, options: ServeOptions) -> None:
        """Creates the reader. The process is started later."""
        self._options = options
        self._thread = ThreadPoolExecutor(1, "large requests")
        self._lock = asyncio.Lock()
        """The lock for the process. Only the task of a waiting request refers to its body, so that
        a cancelled request frees the body."""
        self._process: _Process | None = None

    async def read(
        self, request: PredictionRequest, number: int, interface: ModelInterface
    ) -> ParsedRequest | Reply:
        """Parses a request in the child process.

        Returns:
          The parsed request with tensors, or the response of an error.
        """
        until = time.monotonic() + self._options.answer_seconds
        task = request._replace(body=b""), number, interface
        loop = asyncio.get_running_loop()
        await self._lock.acquire()
        future = self._thread.submit(self._read_in_process, task, request.body, until)

        def release(_: object) -> None:
            with suppress(RuntimeError):  # The loop has ended.
                loop.call_soon_threadsafe(self._lock.release)

        # Even if the request is cancelled, the lock is held until the thread has read the body.
        future.add_done_callback(release)
        return await asyncio.wrap_future(future)

    def _read_in_process(self, task: _ReadTask, body: bytes, until: float) -> ParsedRequest | Reply:
        try:
            if self._process is None or not self._process.is_alive:
                self._end()
                self._process = _Process(self._options)
        except OSError as error:
            logger.error("the process that reads large requests cannot be started: %s", error)
            return error_reply(
                RequestError("large requests cannot be read at present: try again later.", 503)
            )
        answer: ParsedRequest | Reply | None = None
        try:
            answer = self._process.read(task, body, until)
        except TimeoutError:
            return error_reply(timeout_error(self._options.answer_seconds))
        except (EOFError, OSError):
            return error_reply(_memory_error())
        finally:
            if answer is None:  # The next request would receive the late answer of this request.
                self._end()
        return answer

    def _end(self) -> None:
        if self._process is not None:
            self._process.end()
            self._process = None


class _Process:
    """The child process and the connection to it, in the server's process."""

    def __init__(self, options: ServeOptions) -> None:
        self._connection, child_end = Pipe()
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
        # With -P, modules in the current folder do not hide the modules of this process.
        command = [sys.executable, "-P", "-m", __name__, str(child_end.fileno())]
        command += [str(options.max_bytes), str(options.max_rows)]
        with child_end:
            process = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, pass_fds=[child_end.fileno()]
            )
        self._process = process
        self.end = weakref.finalize(self, _end, process, self._connection)

    @property
    def is_alive(self) -> bool:
        """Whether the process is running."""
        return self._process.poll() is None

    def read(self, task: _ReadTask, body: bytes, until: float) -> ParsedRequest | Reply:
        """Sends a request, and receives the parsed request or an error response.

        Raises:
          TimeoutError: the request takes too long.
          EOFError, OSError: the process has died.
        """
        self._connection.send(task)
        self._connection.send_bytes(body)
        if not self._connection.poll(max(0.0, until - time.monotonic())):
            raise TimeoutError
        # Only objects of the process itself are unpickled. The data of the client follows as bytes.
        result: ParsedRequest | Reply = self._connection.recv()
        if isinstance(result, Reply):
            return result
        tensors: Any = result.inputs
        return result._replace(inputs={t.name: _receive(t, self._connection) for t in tensors})


def _end(process: subprocess.Popen[bytes], connection: Connection) -> None:
    process.kill()
    process.wait()
    connection.close()


def _memory_error() -> RequestError:
    return RequestError(
        "reading the request takes too much memory: send fewer rows per request.", 413
    )


def _receive(tensor: _Tensor, connection: Connection) -> np.ndarray:
    """Returns a tensor, whose bytes are the next message of the connection."""
    data = connection.recv_bytes()
    if tensor.lengths is None:
        return np.frombuffer(data, tensor.dtype).reshape(tensor.shape)
    ends = np.cumsum(tensor.lengths).tolist()
    starts = [0, *ends][:-1]
    texts = np.empty(len(ends), object)
    texts[:] = [data[start:end] for start, end in zip(starts, ends, strict=True)]
    return texts.reshape(tensor.shape)


def _pack(name: str, values: np.ndarray) -> tuple[_Tensor, bytes | memoryview]:
    """Returns the description of a tensor, and its bytes."""
    if values.dtype != object:
        data = np.ascontiguousarray(values).reshape(-1).view("b").data
        return _Tensor(name, values.shape, values.dtype, None), data
    flat = values.ravel().tolist()
    lengths = np.fromiter(map(len, flat), np.int64, len(flat))
    return _Tensor(name, values.shape, values.dtype, lengths), b"".join(flat)


def _read(task: _ReadTask, body: bytes, max_bytes: int, max_rows: int) -> ParsedRequest | Reply:
    """Returns the parsed request with tensors, or the response of an error."""
    request, number, interface = task
    try:
        request = request._replace(body=body)
        if estimate_json_memory(body[: json_length(request)]) > _OBJECT_BYTES_PER_BYTE * max_bytes:
            raise _memory_error()
        parsed = read_request(request, number, interface, max_rows)
        tensors = as_tensors(parsed.inputs, interface)
        if size_of_part(tensors) > _TENSOR_BYTES_PER_BYTE * max_bytes:
            raise _memory_error()
        return parsed._replace(inputs=tensors)
    except MemoryError:
        return error_reply(_memory_error())
    except Exception as error:
        return error_reply(error)


def _answer(connection: Connection, result: ParsedRequest | Reply) -> None:
    """Sends a response, or a parsed request with its tensors as bytes."""
    if isinstance(result, Reply):
        connection.send(result)
        return
    inputs: Any = result.inputs
    packed = [_pack(name, values) for name, values in inputs.items()]
    tensors: Any = [tensor for tensor, _ in packed]
    connection.send(result._replace(inputs=tensors))
    for _, data in packed:
        connection.send_bytes(data)


def main(descriptor: str, max_bytes: str, max_rows: str) -> None:
    """Parses requests until the server closes the connection.

    Args:
      descriptor: the file descriptor of the connection.
      max_bytes: the most bytes of a body.
      max_rows: the most rows of a request.
    """
    os.nice(_NICENESS)
    for number in (signal.SIGINT, signal.SIGTERM):  # The process ends with the server.
        signal.signal(number, signal.SIG_IGN)
    _limit_memory(_RESERVED_BYTES_PER_BYTE * int(max_bytes))
    gc.freeze()
    gc.disable()  # Parsed JSON has no reference cycles, so garbage collection would free nothing.
    connection = Connection(int(descriptor))
    with suppress(EOFError, OSError):
        while True:
            task: _ReadTask = connection.recv()
            result = _read(task, connection.recv_bytes(), int(max_bytes), int(max_rows))
            _answer(connection, result)
            del result
            gc.collect()
            with suppress(AttributeError):  # C libraries other than glibc have no malloc_trim.
                ctypes.CDLL(None).malloc_trim(0)


def _limit_memory(additional_bytes: int) -> None:
    """Limits the memory of this process to its present memory plus the given bytes."""
    status = Path("/proc/self/status")
    if status.is_file():
        kilobytes = int(status.read_text().partition("VmData:")[2].split()[0])
        limit = (kilobytes << 10) + additional_bytes
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    # The module is imported by its real name, as pickled classes must not belong to `__main__`.
    importlib.import_module(str(__spec__.name)).main(*sys.argv[1:])
