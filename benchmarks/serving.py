"""`serve` under load: compared with the bare model, and during changes of versions."""

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
"""The rounds of measurements with and without a log in turn, as the machine's speed varies."""


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
    """The rows of a request."""
    rate: float
    """The requests per second."""
    cpu: float
    """The server's CPU seconds per request."""
    client_cpu: float
    """The number of cores that the clients used."""
    batch: int
    """The mean number of rows in a batch."""


def measure_most(
    server: ServedProcess, body: Path, rows: int, seconds: float, header: str = ""
) -> Speed:
    """Returns the speed under full load; a header selects Open Inference."""
    url = server.infer_url if header else server.url
    result_of(start_load(url, body, 2.0, header=header))  # Warm.
    metrics = [f"scopeline_batch_rows_{what}" for what in ("sum", "count")]
    before, used = [server.metric(name) for name in metrics], server.cpu_seconds
    most = result_of(start_load(url, body, seconds, header=header))
    used = server.cpu_seconds - used
    asked, batches = (server.metric(n) - b for n, b in zip(metrics, before, strict=True))
    cpu = used / most["answered"]
    return Speed(rows, most["rate"], cpu, most["cpu"], round(asked / batches))


def measure_speed(serving: Path, folder: Path, seconds: float, console: Console) -> float:
    """Measures the speed compared with the bare model, with one worker and one per core, and
    latency.

    Returns:
      Half of the rate of requests of a row with one worker, at which latency is measured.
    """
    half = 0.0
    for rows in (32, 1):
        body = folder / f"{rows}.json"
        write_body(serving, body, rows)
        for workers in (1, count_cores()):
            with running(serving, folder / "log", "--workers", str(workers)) as server:
                most = measure_most(server, body, rows, seconds)
                console.print(
                    f"{rows} rows a request, {CLIENTS} clients, {workers} workers:"
                    f" {most.rate * rows:,.0f} rows/s in batches of {most.batch},"
                    f" {1000 * most.cpu:.3f} ms of CPU a request; clients took"
                    f" {most.client_cpu:.2f} of a core"
                )
                if workers == 1:
                    half = most.rate / 2
                    _measure_latency(server, body, half, seconds, console)
            _compare_to_bare(serving, body, most, console)
    return half


def _compare_to_bare(serving: Path, body: Path, most: Speed, console: Console) -> None:
    bare = measure_bare(serving, body, [most.batch])[str(most.batch)]
    for how, found in bare.items():
        console.print(
            f"  the bare model by {how}: {found['rows_a_second']:,.0f} rows/s:"
            f" [bold]{most.rate * most.rows / found['rows_a_second']:.0%}[/bold];"
            f" by CPU {most.rows / most.cpu / found['rows_a_cpu_second']:.0%}"
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
            f"  at half of it: p50 {found['p50']:.1f} ms, p99 {found['p99']:.1f} ms; one client"
            f" alone {alone['p50']:.1f} ms: {ratios[-1]:.1f} times; failed {found['failed'] or 0}"
        )
    console.print(f"  [bold]{statistics.median(ratios):.1f} times[/bold] in the median")


def measure_forms(serving: Path, folder: Path, rows: int, seconds: float, console: Console) -> None:
    """Measures requests of JSON and of tensors, and variants, which take transformed features."""
    version = list_versions(serving)[-1]
    body, tensors, features = (folder / name for name in ("rows.json", "tensors", "features.json"))
    write_body(serving, body, rows)
    header = write_tensors(read_interface(version), body, tensors)
    measure_bare(serving, body, [rows], "--features", str(features))
    with running(serving, folder / "log") as server:
        network = measure_most(server, body, rows, seconds)
        by_tensors = measure_most(server, tensors, rows, seconds, header)
    best = max(network.rate, by_tensors.rate)
    _print_form("the SavedModel, by JSON", network, best, console)
    _print_form("the SavedModel, by tensors", by_tensors, best, console)
    for variant in (name for name in VARIANTS if name in read_manifest(version)):
        of_features = load_transformed(version, variant).interface
        header = write_tensors(of_features, features, tensors)
        with running(serving, folder / "log", "--variant", variant, "--transformed") as server:
            found = measure_most(server, features, rows, seconds)
            _print_form(f"{variant} alone, by JSON", found, best, console)
            found = measure_most(server, tensors, rows, seconds, header)
            _print_form(f"{variant} alone, by tensors", found, best, console)


def _print_form(form: str, found: Speed, best: float, console: Console) -> None:
    console.print(
        f"{found.rows} rows a request, {form}: {found.rate * found.rows:,.0f} rows/s, [bold]"
        f"{found.rate / best:.1f} times[/bold] the SavedModel's best; {1000 * found.cpu:.3f} ms of"
        " CPU a request"
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
                result_of(start_load(server.url, body, 1.0, LOG_RATE))  # Warm.
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
    push_new_version(list_versions(serving)[0], serving)  # A rollback.
    time.sleep(pause)


def measure_changes(
    serving: Path, folder: Path, seconds: float, rate: float, console: Console
) -> None:
    """Measures load at a fixed rate while versions change, until the server is stopped."""
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
    """Runs all measurements of the server."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--seconds", type=float, default=10.0, help="the seconds of each measurement"
    )
    parser.add_argument(
        "--changes", type=float, default=60.0, help="the seconds of load with changing versions"
    )
    parser.add_argument(
        "--serving", type=Path, help="a folder with versions of taxi; by default, a new one"
    )
    given = parser.parse_args()
    console = Console(highlight=False)
    with tempfile.TemporaryDirectory(prefix="scopeline-") as scratch:
        folder = Path(scratch)
        serving = folder / "versions" / NAME
        push_new_version(list_versions(given.serving or make_model(folder))[-1], serving)
        rate = measure_speed(serving, folder, given.seconds, console)
        for rows in (32, 512):
            measure_forms(serving, folder, rows, given.seconds, console)
        measure_log(serving, folder, given.seconds, console)
        measure_changes(serving, folder, given.changes, rate, console)


if __name__ == "__main__":
    main()
