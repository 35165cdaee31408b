"""A process that reads large requests, so that no other request waits while JSON is parsed.

The parser holds Python's lock for all of a body, for seconds if it has 64 MiB; and a body may ask
for forty times its size in objects, of which a process of its own can be given a limit. It sends
tensors back, which take no time to take over. It is started for the first such request.
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

from components.serving.server.batching import late
from components.serving.server.options import ServeOptions
from components.serving.server.protocols.values import as_tensors
from components.serving.server.reading import (
    PredictionRequest,
    ReadRequest,
    json_length,
    memory_of_json,
    read_request,
)
from components.serving.server.replies import Reply, RequestError, refusal, size_of_part
from trainer_module.export.interface import ModelInterface

logger = logging.getLogger(__name__)

_OBJECT_BYTES = 16
"""For each byte of the largest body: what the objects of JSON may take."""
_RESERVED_BYTES = 32
"""For each byte of the largest body: what the process may reserve, of which orjson does not use
most. Python takes minutes to find out that it has no more, so this is the second limit."""
_TENSOR_BYTES = 2
"""For each byte of the largest body: what tensors may take."""
_NICE = 5
"""Small requests go first where there are not enough cores."""


_Question = tuple[PredictionRequest, int, ModelInterface]
"""What the process is asked, besides the body: a request without it, the number of a version, and
what that takes."""


class _Tensor(NamedTuple):
    """What is sent of a tensor, before its bytes."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    lengths: np.ndarray | None
    """Of its texts; None of numbers."""


class LargeReader:
    """Has large requests read, one after the other."""

    def __init__(self, options: ServeOptions) -> None:
        """Starts nothing yet.

        Args:
          options: have the limits.
        """
        self._options = options
        self._thread = ThreadPoolExecutor(1, "large requests")
        self._turn = asyncio.Lock()
        """Held while the thread reads: a request that waits belongs to its task alone."""
        self._process: _Process | None = None

    async def read(
        self, request: PredictionRequest, number: int, interface: ModelInterface
    ) -> ReadRequest | Reply:
        """Reads a request.

        Args:
          request: all of it.
          number: of the version.
          interface: of its model.

        Returns:
          What it asks, as tensors; or what it is refused with.
        """
        until = time.monotonic() + self._options.answer_seconds
        question = request._replace(body=b""), number, interface
        loop = asyncio.get_running_loop()
        await self._turn.acquire()
        asked = self._thread.submit(self._ask, question, request.body, until)

        def release(_: object) -> None:
            with suppress(RuntimeError):  # The loop has ended.
                loop.call_soon_threadsafe(self._turn.release)

        # When the thread has let go of the body, also where nobody waits for it any more.
        asked.add_done_callback(release)
        return await asyncio.wrap_future(asked)

    def _ask(self, question: _Question, body: bytes, until: float) -> ReadRequest | Reply:
        try:
            if self._process is None or not self._process.is_alive:
                self._end()
                self._process = _Process(self._options)
        except OSError as error:
            logger.error("the process that reads large requests cannot be started: %s", error)
            return refusal(RequestError("large requests cannot be read: come again later.", 503))
        answer: ReadRequest | Reply | None = None
        try:
            answer = self._process.ask(question, body, until)
        except TimeoutError:
            return refusal(late(self._options.answer_seconds))
        except (EOFError, OSError):
            return refusal(_takes_too_much())
        finally:
            if answer is None:  # What it sends yet would be taken for the next answer.
                self._end()
        return answer

    def _end(self) -> None:
        if self._process is not None:
            self._process.end()
            self._process = None


class _Process:
    """The process, as the server sees it."""

    def __init__(self, options: ServeOptions) -> None:
        self._connection, other = Pipe()
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
        # -P: the folder that it starts in hides no module that this process finds.
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
        """Whether it has not ended."""
        return self._process.poll() is None

    def ask(self, question: _Question, body: bytes, until: float) -> ReadRequest | Reply:
        """Has a request read.

        Raises:
          TimeoutError: it takes too long.
          EOFError, OSError: the process has died.
        """
        self._connection.send(question)
        self._connection.send_bytes(body)
        if not self._connection.poll(max(0.0, until - time.monotonic())):
            raise TimeoutError
        # What is unpickled is the process's own: what a client has sent comes as bytes after it.
        found: ReadRequest | Reply = self._connection.recv()
        if isinstance(found, Reply):
            return found
        tensors: Any = found.inputs
        return found._replace(inputs={t.name: _take(t, self._connection) for t in tensors})


def _end(process: subprocess.Popen[bytes], connection: Connection) -> None:
    process.kill()
    process.wait()
    connection.close()


def _takes_too_much() -> RequestError:
    return RequestError("the request takes too much memory to read: send fewer rows at once.", 413)


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


def _read(question: _Question, body: bytes, most_bytes: int, most_rows: int) -> ReadRequest | Reply:
    """What a request asks, as tensors; or what it is refused with."""
    given, number, interface = question
    try:
        request = given._replace(body=body)
        if memory_of_json(body[: json_length(request)]) > _OBJECT_BYTES * most_bytes:
            raise _takes_too_much()
        read = read_request(request, number, interface, most_rows)
        tensors = as_tensors(read.inputs, interface)
        if size_of_part(tensors) > _TENSOR_BYTES * most_bytes:
            raise _takes_too_much()
        return read._replace(inputs=tensors)
    except MemoryError:
        return refusal(_takes_too_much())
    except Exception as error:
        return refusal(error)


def _answer(connection: Connection, found: ReadRequest | Reply) -> None:
    if isinstance(found, Reply):
        connection.send(found)
        return
    inputs: Any = found.inputs
    sent = [_send(name, values) for name, values in inputs.items()]
    described: Any = [tensor for tensor, _ in sent]
    connection.send(found._replace(inputs=described))
    for _, data in sent:
        connection.send_bytes(data)


def main(descriptor: str, most_bytes: str, most_rows: str) -> None:
    """Reads requests until the server has gone."""
    os.nice(_NICE)
    for number in (signal.SIGINT, signal.SIGTERM):  # They are for the server, with which it ends.
        signal.signal(number, signal.SIG_IGN)
    _limit_memory(_RESERVED_BYTES * int(most_bytes))
    gc.freeze()
    gc.disable()  # What is parsed has no cycles, and would be searched for them again and again.
    connection = Connection(int(descriptor))
    with suppress(EOFError, OSError):
        while True:
            question: _Question = connection.recv()
            found = _read(question, connection.recv_bytes(), int(most_bytes), int(most_rows))
            _answer(connection, found)
            del found
            gc.collect()
            with suppress(AttributeError):  # Other C libraries than glibc do it by themselves.
                ctypes.CDLL(None).malloc_trim(0)


def _limit_memory(more: int) -> None:
    """Lets this process take so many bytes more than it has."""
    status = Path("/proc/self/status")
    if status.is_file():
        kilobytes = int(status.read_text().partition("VmData:")[2].split()[0])
        limit = (kilobytes << 10) + more
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    # By its own name, as what it pickles is of that module.
    importlib.import_module(str(__spec__.name)).main(*sys.argv[1:])
