"""Logs of steps that are long, or whose connection breaks, or whose pod goes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from pipeline.kubeflow.api.client import Kubeflow, Polling
from pipeline.kubeflow.api.errors import UnavailableError
from pipeline.kubeflow.api.steps import LogReader
from pipeline.kubeflow.cluster_layout import settings_of
from tests.support.kfp_server import KfpServer
from tests.support.played_runs import Frame, Play
from tests.support.small_pipeline import COMPILED, load
from trainer_module.errors import DataError

QUICK = Polling(interval=0.01, retry_seconds=5)
RUNNING = Frame("RUNNING", {"trainer": "RUNNING"})
FAILED = Frame("FAILED", {"trainer": "FAILED"})


@dataclass(kw_only=True)
class Streaming(KfpServer):
    """Sends every log in chunks, as the API does, and the connection may break between them."""

    pieces: list[bytes] = field(default_factory=list)
    breaks: list[int] = field(default_factory=list)
    """After how many pieces each of the next answers ends."""
    goes_on: threading.Event | None = None
    """What is waited for after the first piece."""

    def handle(self, http: BaseHTTPRequestHandler) -> None:
        if not http.path.endswith("/log"):
            super().handle(http)
            return
        sent = self.pieces[: self.breaks.pop(0)] if self.breaks else [*self.pieces, b""]
        http.close_connection = True
        http.send_response(200)
        http.send_header("Transfer-Encoding", "chunked")
        http.end_headers()
        for piece in sent:
            http.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            http.wfile.flush()
            if self.goes_on is not None:
                self.goes_on.wait(5)


@pytest.fixture
def streaming() -> Iterator[Streaming]:
    with Streaming(play=Play([FAILED])) as server:
        yield server


def begin(server: KfpServer, folder: Path) -> tuple[Kubeflow, str]:
    """A run that has been started, and where."""
    kubeflow = Kubeflow(settings_of(load(folder, server.url)))
    return kubeflow, kubeflow.start_run(kubeflow.ensure_version(COMPILED), {})


def test_lines_are_written_as_they_arrive(streaming: Streaming, tmp_path: Path) -> None:
    kubeflow, run = begin(streaming, tmp_path)
    streaming.pieces = [b"one\ntw", b"o\nthree"]
    streaming.goes_on = goes_on = threading.Event()
    written: list[bytes] = []
    early: list[bytes] = []

    def write(text: bytes) -> None:
        if not goes_on.is_set():
            early.append(text)
            goes_on.set()
        written.append(text)

    LogReader(kubeflow, run, "trainer", write).read()
    assert early == [b"one\n"]
    assert written == [b"one\n", b"two\n", b"three"]


def test_broken_connection_repeats_no_lines(streaming: Streaming, tmp_path: Path) -> None:
    kubeflow, run = begin(streaming, tmp_path)
    streaming.pieces = [(b"line %d\n" % i) * 40_000 for i in range(9)]
    streaming.breaks = [3, 6, 2, 8]
    written: list[bytes] = []
    reader = LogReader(kubeflow, run, "trainer", written.append)
    shown = []
    while streaming.breaks:
        with pytest.raises(UnavailableError):
            reader.read()
        shown.append(len(b"".join(written)))
    assert shown == [len(streaming.pieces[0]) * count for count in (3, 6, 6, 8)]
    reader.read(QUICK)
    assert b"".join(written) == b"".join(streaming.pieces)


@pytest.mark.parametrize("step", [None, "trainer"])
def test_last_lines_of_a_deleted_pod_are_written(
    server: KfpServer, tmp_path: Path, step: str | None
) -> None:
    class Going(Play):
        """Its pod goes with the end of the run."""

        def log(self, pod: str) -> str | None:
            return super().log(pod) if self.now is RUNNING else None

    server.play = Going([RUNNING, RUNNING, FAILED], {"trainer": "line 1\nlast words"})
    kubeflow, run = begin(server, tmp_path)
    written: list[bytes] = []
    reader = LogReader(kubeflow, run, step, written.append)
    if step is None:
        reader.read(QUICK)
    else:
        with pytest.raises(DataError, match="cannot be read: Failed to read logs"):
            reader.read(QUICK)
    lines = b"".join(written).decode().splitlines()
    shown = [line for line in lines if not line.startswith("the log of ")]
    assert shown == ["== trainer"] * (step is None) + ["line 1", "last words"]
    assert len(lines) - len(shown) == (step is None)
