"""Starts a server in a separate process, writes its requests and measures it under load."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import requests

from components.example_gen.builtin import BUILTIN_DATA
from components.pusher.versions import list_versions
from components.serving.server.options import KEY_VARIABLE
from trainer_module.export.interface import ModelInterface, read_interface

ROOT = Path(__file__).parent.parent
CLIENTS = 32
NAME = "taxi"


@dataclass(frozen=True)
class ServedProcess:
    """A running server process."""

    process: subprocess.Popen[bytes]
    address: str

    @property
    def url(self) -> str:
        """The URL of predictions."""
        return f"{self.address}/v1/models/{NAME}:predict"

    @property
    def infer_url(self) -> str:
        """The URL of predictions by Open Inference."""
        return f"{self.address}/v2/models/{NAME}/infer"

    @property
    def megabytes(self) -> float:
        """The resident memory of all processes in megabytes."""
        return sum(float(p.memory_info().rss) for p in self._processes) / 2**20

    @property
    def cpu_seconds(self) -> float:
        """The CPU seconds that all processes have used."""
        all_times = [process.cpu_times() for process in self._processes]
        return sum(float(times.user + times.system) for times in all_times)

    def leave_core(self) -> int | None:
        """Reserves the last core for clients, if there are several cores; returns its number or
        None.

        Without a reserved core, the kernel may run a client and the server on the same core for
        some milliseconds while another core is idle, which would count as latency of the server.
        """
        process = psutil.Process(self.process.pid)
        *others, last = process.cpu_affinity()
        if not others:
            return None
        process.cpu_affinity(others)
        return int(last)

    @property
    def _processes(self) -> list[psutil.Process]:
        """The server process and its workers."""
        process = psutil.Process(self.process.pid)
        return [process, *process.children(recursive=True)]

    def metric(self, name: str) -> float:
        """Returns the value of a metric without labels, or 0 if the server does not report it."""
        text = requests.get(f"{self.address}/metrics", timeout=10).text
        match = re.search(rf"^{name} (\S+)$", text, re.MULTILINE)
        return float(match[1]) if match else 0.0


@contextmanager
def running(serving: Path, log: Path, *options: str) -> Iterator[ServedProcess]:
    """Starts `serve` for a folder of versions, and yields the server when it is ready."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    command = [sys.executable, str(ROOT / "local_runner.py"), "serve", "--model", str(serving)]
    began = time.monotonic()
    process = subprocess.Popen(
        [*command, "--name", NAME, "--port", str(port), *options],
        stderr=log.open("w"),
        env={name: value for name, value in os.environ.items() if name != KEY_VARIABLE},
    )
    server = ServedProcess(process, f"http://127.0.0.1:{port}")
    try:
        while not _is_ready(server):
            assert process.poll() is None, log.read_text()  # noqa: S101
            time.sleep(0.02)
        print(f"ready after {time.monotonic() - began:.1f} s")
        yield server
    finally:
        process.kill()
        process.wait()


def _is_ready(server: ServedProcess) -> bool:
    try:
        return requests.get(f"{server.address}/v2/health/ready", timeout=1).ok
    except requests.ConnectionError:
        return False


def write_tensors(interface: ModelInterface, rows: Path, path: Path) -> str:
    """Writes the rows of a JSON request as an Open Inference request; returns the needed header."""
    from components.serving.server.protocols.open_inference import HEADER_LENGTH, to_tensors
    from components.serving.server.protocols.values import rows_to_arrays

    instances = json.loads(rows.read_text())["instances"]
    inputs, tail = to_tensors(rows_to_arrays(instances, interface))
    content = {"inputs": inputs, "parameters": {"binary_data_output": True}}
    head = json.dumps(content).encode()
    path.write_bytes(head + tail)
    return f"{HEADER_LENGTH}: {len(head)}"


def write_body(serving: Path, path: Path, rows: int) -> None:
    """Writes a request for the first rows of the shipped data."""
    import pyarrow.csv as pa_csv

    table = pa_csv.read_csv(BUILTIN_DATA["taxi"].locate(path.parent)).slice(0, rows).to_pylist()
    columns = read_interface(list_versions(serving)[-1]).columns
    instances = [
        {
            c.request: "" if c.dtype == "string" and row[c.name] is None else row[c.name]
            for c in columns
        }
        for row in table
    ]
    path.write_text(json.dumps({"signature_name": "serving_raw", "instances": instances}))


def start_load(
    url: str,
    body: Path,
    seconds: float,
    rate: float = 0.0,
    clients: int = CLIENTS,
    header: str = "",
    core: int | None = None,
) -> subprocess.Popen[str]:
    """Starts `benchmarks/load.py` in a separate process."""
    options = {"--clients": clients, "--rate": rate, "--seconds": seconds}
    arguments = [str(item) for pair in options.items() for item in pair]
    arguments += ["--header", header] if header else []
    arguments += [] if core is None else ["--core", str(core)]
    return subprocess.Popen(
        [sys.executable, str(ROOT / "benchmarks" / "load.py"), url, str(body), *arguments],
        stdout=subprocess.PIPE,
        text=True,
    )


def result_of(load: subprocess.Popen[str]) -> dict[str, Any]:
    """Waits for the end of a load process, and returns the results."""
    return dict(json.loads(load.communicate()[0]))


def measure_bare(serving: Path, body: Path, rows: list[int], *options: str) -> dict[str, Any]:
    """Returns the speed of the newest version in a loop without a server, in a separate process."""
    command = [sys.executable, str(ROOT / "benchmarks" / "bare_model.py")]
    command += [str(list_versions(serving)[-1]), str(body), "--rows", *map(str, rows), *options]
    done = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    return dict(json.loads(done.stdout))
