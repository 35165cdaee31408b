"""`serve` under load: against the bare model, and while versions come, go and are corrupt."""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import requests
from rich.console import Console

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from components.example_gen.builtin import BUILTIN_DATA  # noqa: E402
from components.pusher.versions import list_versions, push_new_version  # noqa: E402
from trainer_module.interface import read_interface  # noqa: E402

CLIENTS = 32
SWAPS = 5
NAME = "taxi"
_MODEL = ("model={kind: mlp}", "train.epochs=1", "evaluate.thresholds={auc: {min: 0.5}}")


@dataclass(frozen=True)
class Server:
    """A server that runs."""

    process: subprocess.Popen[bytes]
    address: str

    @property
    def url(self) -> str:
        """Where predictions are asked for."""
        return f"{self.address}/v1/models/{NAME}:predict"

    @property
    def megabytes(self) -> float:
        """What it has of memory."""
        return float(psutil.Process(self.process.pid).memory_info().rss / 2**20)

    def metric(self, name: str) -> float:
        """The value of a metric without labels."""
        text = requests.get(f"{self.address}/metrics", timeout=10).text
        found = re.search(rf"^{name} (\S+)$", text, re.MULTILINE)
        return float(found[1]) if found else 0.0


@contextmanager
def running(serving: Path, log: Path) -> Iterator[Server]:
    """`serve` over a folder of versions, from when it answers."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    command = [sys.executable, str(ROOT / "local_runner.py"), "serve", "--model", str(serving)]
    began = time.monotonic()
    process = subprocess.Popen(
        [*command, "--name", NAME, "--port", str(port)],
        stderr=log.open("w"),
        env={**os.environ, "SCOPELINE_API_KEY": ""},
    )
    server = Server(process, f"http://127.0.0.1:{port}")
    try:
        while not _is_ready(server):
            assert process.poll() is None, log.read_text()  # noqa: S101
            time.sleep(0.02)
        print(f"ready after {time.monotonic() - began:.1f} s")
        yield server
    finally:
        process.kill()
        process.wait()


def _is_ready(server: Server) -> bool:
    try:
        return requests.get(f"{server.address}/v2/health/ready", timeout=1).ok
    except requests.ConnectionError:
        return False


def make_model(folder: Path) -> Path:
    """Trains mlp on the taxi rows; gives the folder of its versions."""
    command = [sys.executable, str(ROOT / "local_runner.py"), "run"]
    command += ["--config", str(ROOT / "configs" / "taxi.yaml"), "--output", str(folder)]
    for setting in _MODEL:
        command += ["--set", setting]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return folder / NAME / "serving" / NAME


def write_body(serving: Path, path: Path, rows: int) -> None:
    """A request for the first rows of the shipped data."""
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
    url: str, body: Path, seconds: float, rate: float = 0.0, clients: int = CLIENTS
) -> subprocess.Popen[str]:
    """Begins to ask, in a process of its own."""
    options = {"--clients": clients, "--rate": rate, "--seconds": seconds}
    arguments = [str(item) for pair in options.items() for item in pair]
    return subprocess.Popen(
        [sys.executable, str(ROOT / "benchmarks" / "load.py"), url, str(body), *arguments],
        stdout=subprocess.PIPE,
        text=True,
    )


def result_of(load: subprocess.Popen[str]) -> dict[str, Any]:
    """What it found, when it has ended."""
    return dict(json.loads(load.communicate()[0]))


def measure_speed(serving: Path, folder: Path, seconds: float, console: Console) -> float:
    """Against the bare model, and latency at half the load; gives that rate of requests."""
    half = 0.0
    for rows in (32, 1):
        body = folder / f"{rows}.json"
        write_body(serving, body, rows)
        with running(serving, folder / "log") as server:
            result_of(start_load(server.url, body, 2.0))  # Warm.
            before = [server.metric(f"scopeline_batch_rows_{what}") for what in ("sum", "count")]
            most = result_of(start_load(server.url, body, seconds))
            after = [server.metric(f"scopeline_batch_rows_{what}") for what in ("sum", "count")]
            half = most["rate"] / 2
            alone = result_of(start_load(server.url, body, 2.0, clients=1))
            open_loop = result_of(start_load(server.url, body, seconds, half))
        batch = round((after[0] - before[0]) / (after[1] - before[1]))
        bare = measure_bare(serving, body, [1, batch])
        share = most["rate"] * rows / bare[str(batch)]["rows_a_second"]
        console.print(
            f"{rows} rows a request, {CLIENTS} clients: {most['rate'] * rows:,.0f} rows/s, batches"
            f" of {batch}; the bare model in these {bare[str(batch)]['rows_a_second']:,.0f}:"
            f" [bold]{share:.0%}[/bold]"
        )
        console.print(
            f"  at half of it: p50 {open_loop['p50']:.1f} ms, p99 {open_loop['p99']:.1f} ms; one"
            f" client alone {alone['p50']:.1f} ms:"
            f" [bold]{open_loop['p99'] / alone['p50']:.1f} times[/bold];"
            f" failed {open_loop['failed'] or 0}"
        )
    return half


def measure_bare(serving: Path, body: Path, rows: list[int]) -> dict[str, Any]:
    """The newest version in a loop, in a process of its own."""
    command = [sys.executable, str(ROOT / "benchmarks" / "bare_model.py")]
    command += [str(list_versions(serving)[-1]), str(body), "--rows", *map(str, rows)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return dict(json.loads(done.stdout))


def change_versions(serving: Path, seconds: float) -> None:
    """Swaps, a corrupt version and a rollback, spread over some seconds."""
    pause = seconds / (SWAPS + 3)
    for _ in range(SWAPS):
        time.sleep(pause)
        push_new_version(list_versions(serving)[-1], serving)
    time.sleep(pause)
    good = list_versions(serving)[-1]
    corrupt = serving / f"{int(good.name) + 1}"
    shutil.copytree(good, serving / "corrupt")
    (data,) = (serving / "corrupt" / "variables").glob("*.data*")
    content = bytearray(data.read_bytes())
    content[len(content) // 2] ^= 0xFF
    data.write_bytes(content)
    (serving / "corrupt").rename(corrupt)
    time.sleep(pause)
    push_new_version(list_versions(serving)[0], serving)  # A rollback.
    time.sleep(pause)


def measure_changes(
    serving: Path, folder: Path, seconds: float, rate: float, console: Console
) -> None:
    """Load at a fixed rate while versions change, up to a stop."""
    with running(serving, folder / "log") as server:
        load = start_load(server.url, folder / "1.json", seconds + 3, rate)
        time.sleep(seconds / 10)
        early = server.megabytes
        change_versions(serving, seconds * 0.9)
        late, version = server.megabytes, server.metric("scopeline_serving_version")
        failed_versions = server.metric("scopeline_failed_versions")
        stopped = time.time()
        server.process.send_signal(signal.SIGTERM)
        code = server.process.wait(60)
        found = result_of(load)
    first = found["first_failure"]
    console.print(
        f"{seconds:.0f} s at {rate:.0f} requests/s: {found['answered']:,} answered, p99"
        f" {found['p99']:.1f} ms; before the stop failed"
        f" [bold]{0 if first is None or first > stopped else found['failed']}[/bold];"
        f" version {version:.0f} at the end, {failed_versions:.0f} refused, exit code {code};"
        f" {early:.0f} MB then {late:.0f} MB: [bold]{late / early - 1:+.0%}[/bold]"
    )


def main() -> None:
    """Runs all of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement")
    parser.add_argument("--changes", type=float, default=60.0, help="seconds of load with changes")
    parser.add_argument("--serving", type=Path, help="versions of taxi; else one is trained")
    given = parser.parse_args()
    console = Console(highlight=False)
    with tempfile.TemporaryDirectory(prefix="scopeline-") as scratch:
        folder = Path(scratch)
        serving = folder / "versions" / NAME
        push_new_version(list_versions(given.serving or make_model(folder))[-1], serving)
        rate = measure_speed(serving, folder, given.seconds, console)
        measure_changes(serving, folder, given.changes, rate, console)


if __name__ == "__main__":
    main()
