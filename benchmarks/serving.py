"""Measures `serve` under load: compared with the bare model, and during changes of versions."""

from __future__ import annotations

import argparse
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.served import (
    CLIENTS,
    NAME,
    ROOT,
    ServedProcess,
    measure_bare,
    result_of,
    running,
    start_load,
    write_body,
    write_tensors,
)
from components.pusher.variants import read_manifest
from components.pusher.versions import list_versions, push_new_version
from components.serving.model import load_transformed
from trainer_module.export.interface import read_interface
from trainer_module.machine import count_cores

SWAPS = 5
VARIANTS = ("int8", "onnx")
_MODEL = (
    "model={kind: mlp}",
    "train.epochs=1",
    "evaluate.thresholds={auc: {min: 0.5}}",
    f"optimize={{variants: [{', '.join(VARIANTS)}], accept: {{max_metric_drop: 0.01}}}}",
)
LOG_RATE = 500
LATENCY_ROUNDS = 3
LOG_ROUNDS = 3
"""The rounds of measurements with and without a log in turn, because the machine's speed varies."""


def make_model(folder: Path) -> Path:
    """Trains an mlp on the taxi rows; returns the folder of its versions."""
    command = [sys.executable, str(ROOT / "local_runner.py"), "run"]
    command += ["--config", str(ROOT / "configs" / "taxi.yaml"), "--output", str(folder)]
    for setting in _MODEL:
        command += ["--set", setting]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return folder / NAME / "serving" / NAME


@dataclass(frozen=True)
class Speed:
    """The speed of a server under full load by 32 clients."""

    rows: int
    """The number of rows in a request."""
    rate: float
    """The requests per second."""
    cpu: float
    """The server's CPU seconds per request."""
    client_cpu: float
    """The number of cores that the clients used."""
    batch: int
    """The mean number of rows in a batch."""


def measure_full_load(
    server: ServedProcess, body: Path, rows: int, seconds: float, header: str = ""
) -> Speed:
    """Returns the speed under full load; a header selects Open Inference."""
    url = server.infer_url if header else server.url
    result_of(start_load(url, body, 2.0, header=header))  # This load warms up the server.
    metrics = [f"scopeline_batch_rows_{suffix}" for suffix in ("sum", "count")]
    before, used = [server.metric(name) for name in metrics], server.cpu_seconds
    full_load = result_of(start_load(url, body, seconds, header=header))
    used = server.cpu_seconds - used
    batched_rows, batches = (server.metric(n) - b for n, b in zip(metrics, before, strict=True))
    cpu = used / full_load["answered"]
    return Speed(rows, full_load["rate"], cpu, full_load["cpu"], round(batched_rows / batches))


def measure_speed(serving: Path, folder: Path, seconds: float, console: Console) -> float:
    """Measures the latency, and the speed compared with the bare model.

    The server runs with one worker, and with a worker per core.

    Returns:
      The rate of the latency measurement: half of the full rate of requests with one row, with one
      worker.
    """
    half = 0.0
    for rows in (32, 1):
        body = folder / f"{rows}.json"
        write_body(serving, body, rows)
        for workers in (1, count_cores()):
            with running(serving, folder / "log", "--workers", str(workers)) as server:
                full_load = measure_full_load(server, body, rows, seconds)
                console.print(
                    f"{rows} rows per request, {CLIENTS} clients, {workers} workers:"
                    f" {full_load.rate * rows:,.0f} rows/s in batches of {full_load.batch},"
                    f" {1000 * full_load.cpu:.3f} ms of CPU per request; clients used"
                    f" {full_load.client_cpu:.2f} of a core"
                )
                if workers == 1:
                    half = full_load.rate / 2
                    _measure_latency(server, body, half, seconds, console)
            _compare_to_bare(serving, body, full_load, console)
    return half


def _compare_to_bare(serving: Path, body: Path, full_load: Speed, console: Console) -> None:
    bare = measure_bare(serving, body, [full_load.batch])[str(full_load.batch)]
    for call, found in bare.items():
        console.print(
            f"  the bare model by {call}: {found['rows_a_second']:,.0f} rows/s; the server reaches"
            f" [bold]{full_load.rate * full_load.rows / found['rows_a_second']:.0%}[/bold];"
            f" by CPU {full_load.rows / full_load.cpu / found['rows_a_cpu_second']:.0%}"
        )


def _measure_latency(
    server: ServedProcess, body: Path, rate: float, seconds: float, console: Console
) -> None:
    ratios, core = [], server.leave_core()
    for _ in range(LATENCY_ROUNDS):
        alone = result_of(start_load(server.url, body, 2.0, clients=1, core=core))
        found = result_of(start_load(server.url, body, seconds, rate, core=core))
        ratios.append(found["p99"] / alone["p50"])
        console.print(
            f"  at half of this rate: p50 {found['p50']:.1f} ms, p99 {found['p99']:.1f} ms; one"
            f" client alone {alone['p50']:.1f} ms: {ratios[-1]:.1f} times;"
            f" failed {found['failed'] or 0}"
        )
    console.print(f"  [bold]{statistics.median(ratios):.1f} times[/bold] in the median")


def measure_forms(serving: Path, folder: Path, rows: int, seconds: float, console: Console) -> None:
    """Measures requests with JSON and with tensors, and variants with transformed features."""
    version = list_versions(serving)[-1]
    body, tensors, features = (folder / name for name in ("rows.json", "tensors", "features.json"))
    write_body(serving, body, rows)
    header = write_tensors(read_interface(version), body, tensors)
    measure_bare(serving, body, [rows], "--features", str(features))
    with running(serving, folder / "log") as server:
        json_speed = measure_full_load(server, body, rows, seconds)
        tensor_speed = measure_full_load(server, tensors, rows, seconds, header)
    best = max(json_speed.rate, tensor_speed.rate)
    _print_form("the SavedModel, by JSON", json_speed, best, console)
    _print_form("the SavedModel, by tensors", tensor_speed, best, console)
    for variant in (name for name in VARIANTS if name in read_manifest(version)):
        of_features = load_transformed(version, variant).interface
        header = write_tensors(of_features, features, tensors)
        with running(serving, folder / "log", "--variant", variant, "--transformed") as server:
            found = measure_full_load(server, features, rows, seconds)
            _print_form(f"the variant {variant}, by JSON", found, best, console)
            found = measure_full_load(server, tensors, rows, seconds, header)
            _print_form(f"the variant {variant}, by tensors", found, best, console)


def _print_form(form: str, found: Speed, best: float, console: Console) -> None:
    console.print(
        f"{found.rows} rows per request, {form}: {found.rate * found.rows:,.0f} rows/s, [bold]"
        f"{found.rate / best:.1f} times[/bold] the SavedModel's best; {1000 * found.cpu:.3f} ms of"
        " CPU per request"
    )


def measure_log(serving: Path, folder: Path, seconds: float, console: Console) -> None:
    """Measures latency at a fixed rate, with and without a log of all requests."""
    body = folder / "1.json"
    write_body(serving, body, 1)
    found: dict[bool, list[float]] = {False: [], True: []}
    options = ("--log-requests", str(folder / "requests"))
    with (
        running(serving, folder / "log") as without,
        running(serving, folder / "log", *options) as with_log,
    ):
        for _ in range(LOG_ROUNDS):
            for server in (without, with_log):
                result_of(
                    start_load(server.url, body, 1.0, LOG_RATE)
                )  # This load warms up the server.
                load = start_load(server.url, body, seconds, LOG_RATE)
                found[server is with_log].append(result_of(load)["p99"])
    plain, logged = (statistics.median(found[kind]) for kind in (False, True))
    console.print(
        f"request log at {LOG_RATE} requests/s: p99 {logged:.1f} ms, {plain:.1f} ms without:"
        f" [bold]{logged / plain:.2f} times[/bold]"
    )


def change_versions(serving: Path, seconds: float) -> None:
    """Pushes versions, a corrupt version and a rollback, spread over some seconds."""
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
    push_new_version(list_versions(serving)[0], serving)  # This push is a rollback.
    time.sleep(pause)


def measure_changes(
    serving: Path, folder: Path, seconds: float, rate: float, console: Console
) -> None:
    """Measures load at a fixed rate while versions change, until the server is stopped."""
    with running(serving, folder / "log") as server:
        load = start_load(server.url, folder / "1.json", seconds + 3, rate)
        time.sleep(seconds / 10)
        first_megabytes = server.megabytes
        change_versions(serving, seconds * 0.9)
        last_megabytes, version = server.megabytes, server.metric("scopeline_serving_version")
        failed_versions = server.metric("scopeline_failed_versions")
        stopped = time.time()
        server.process.send_signal(signal.SIGTERM)
        code = server.process.wait(60)
        found = result_of(load)
    first = found["first_failure"]
    console.print(
        f"{seconds:.0f} s at {rate:.0f} requests/s: {found['answered']:,} answered, p99"
        f" {found['p99']:.1f} ms; failures before the stop:"
        f" [bold]{0 if first is None or first > stopped else found['failed']}[/bold];"
        f" version {version:.0f} at the end, {failed_versions:.0f} versions refused,"
        f" exit code {code};"
        f" {first_megabytes:.0f} MB at first, then {last_megabytes:.0f} MB:"
        f" [bold]{last_megabytes / first_megabytes - 1:+.0%}[/bold]"
    )


def main() -> None:
    """Runs all measurements of the server."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--seconds", type=float, default=10.0, help="the seconds of each measurement"
    )
    parser.add_argument(
        "--changes", type=float, default=60.0, help="the seconds of load with changing versions"
    )
    parser.add_argument(
        "--serving", type=Path, help="a folder with versions of taxi; default: a new model"
    )
    options = parser.parse_args()
    console = Console(highlight=False)
    with tempfile.TemporaryDirectory(prefix="scopeline-") as scratch:
        folder = Path(scratch)
        serving = folder / "versions" / NAME
        push_new_version(list_versions(options.serving or make_model(folder))[-1], serving)
        rate = measure_speed(serving, folder, options.seconds, console)
        for rows in (32, 512):
            measure_forms(serving, folder, rows, options.seconds, console)
        measure_log(serving, folder, options.seconds, console)
        measure_changes(serving, folder, options.changes, rate, console)


if __name__ == "__main__":
    main()
