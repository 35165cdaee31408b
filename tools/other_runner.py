"""Compares the results of the pipeline on Beam's direct runner and on another runner.

The direct runner hides some errors, such as objects that cannot be pickled, and state that exists
only in this process. They appear on Flink, Spark or Dataflow. `make other-runner` builds Prism,
Beam's portable runner, if Go is installed. `--flink-jar` and `--endpoint` select other runners.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import yaml

ROOT = Path(__file__).parent.parent
PRISM = "github.com/apache/beam/sdks/v2/go/cmd/prism"
BUILD_FOLDER = ROOT / ".tools" / "prism"
FILES, ROWS = 4, 500
MAX_DIFFERENCE = 0.02
"""The maximum accepted difference of a metric.

Another runner changes the order of rows, and therefore the trained network."""
PREDICTIONS = ("answers_here", "answers_there")
_START_SECONDS = 30.0
CONFIG = {
    "name": "rows",
    "data": {"format": "csv", "path": "rows/*.csv", "label": "stays"},
    "task": "binary",
    "train": {"epochs": 2},
    "evaluate": {"slices": ["plan"]},
}


def build_prism() -> Path:
    """Returns the Prism binary of Beam's version, built once from the Go module registry."""
    go = shutil.which("go")
    if go is None:
        sys.exit(
            "other-runner: Go is not installed, so Prism cannot be built; give --flink-jar or "
            "--endpoint"
        )
    binary = BUILD_FOLDER / version("apache-beam") / "prism"
    if not binary.exists():
        print(f"building {PRISM}")
        environment = os.environ | {"GOBIN": str(binary.parent)}
        package = f"{PRISM}@v{version('apache-beam')}"
        subprocess.run([go, "install", package], env=environment, check=True)
    return binary


@contextmanager
def start_prism(folder: Path) -> Iterator[str]:
    """Starts a Prism process, yields its address, and stops the process afterwards."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(build_prism()), f"--job_port={port}", "--serve_http=false", "--log_level=warn"]
    with (folder / "prism.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        until = time.monotonic() + _START_SECONDS
        while time.monotonic() < until and process.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.2)
        yield f"localhost:{port}"
    finally:
        process.terminate()
        process.wait()


def write_rows(folder: Path) -> None:
    """Writes files of customers: a number, a category, a sentence, and the label."""
    generator = random.Random(1)  # noqa: S311
    (folder / "rows").mkdir()
    for number in range(FILES):
        lines = ["age,plan,note,stays"]
        for _ in range(ROWS):
            age, plan = generator.uniform(20, 80), generator.choice(["gold", "basic"])
            note = generator.choice(["late again", "all went well", "thank you for that"])
            stays = int(age + 10 * (plan == "gold") > 55)
            lines.append(f"{age:.1f},{plan},{note} {generator.randint(1, 99)},{stays}")
        (folder / "rows" / f"{number}.csv").write_text("\n".join(lines) + "\n")


def scopeline(folder: Path, command: str, *arguments: str) -> float:
    """Runs a command of Scopeline, and returns its duration in seconds; exits if it fails."""
    begun = time.monotonic()
    line = [sys.executable, str(ROOT / "local_runner.py"), command, "--config", "rows.yaml"]
    done = subprocess.run([*line, *arguments], cwd=folder, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{command} {' '.join(arguments)}: {done.returncode}\n{done.stdout}{done.stderr}")
    return time.monotonic() - begun


def compare_runs(folder: Path, runner: str, overrides: Sequence[str]) -> bool:
    """Runs the pipeline on both runners; returns whether the examples and metrics agree."""
    (folder / "rows.yaml").write_text(yaml.safe_dump(CONFIG))
    here = scopeline(folder, "run", "--output", "here")
    there = scopeline(folder, "run", "--output", "there", *overrides)
    print(f"run      {here:6.1f} s in this process, {there:6.1f} s by {runner}")
    local_summary, other_summary = summary(folder / "here"), summary(folder / "there")
    differences = {
        name: abs(metric["value"] - other_summary["metrics"][name]["value"])
        for name, metric in local_summary["metrics"].items()
    }
    details = ", ".join(f"{name} by {difference:.2g}" for name, difference in differences.items())
    print(
        f"examples {local_summary['examples']} and {other_summary['examples']};"
        f" metrics differ: {details}"
    )
    return (
        local_summary["examples"] == other_summary["examples"]
        and max(differences.values()) <= MAX_DIFFERENCE
    )


def summary(output: Path) -> dict[str, Any]:
    """Returns the summary of the only run in an output folder."""
    (path,) = output.glob("rows/runs/*/summary.json")
    return dict(json.loads(path.read_text()))


def compare_predictions(folder: Path, runner: str, overrides: Sequence[str]) -> bool:
    """Predicts on both runners with the same model; returns whether the predictions are equal."""
    (model,) = (folder / "there" / "rows" / "serving" / "rows").iterdir()
    arguments = ("--model", str(model), "--input", "rows/*.csv", "--columns", "age", "--output")
    here = scopeline(folder, "predict", *arguments, PREDICTIONS[0], "--runner", "direct")
    there = scopeline(
        folder, "predict", *arguments, PREDICTIONS[1], *overrides, "--runner", "config"
    )
    print(f"predict  {here:6.1f} s in this process, {there:6.1f} s by {runner}")
    names = [f"part-{number:05}-of-{FILES:05}.parquet" for number in range(FILES)]
    tables = [[pq.read_table(folder / where / n) for n in names] for where in PREDICTIONS]
    is_same = all(table.equals(other) for table, other in zip(*tables, strict=True))
    print(f"predictions {'are equal' if is_same else 'differ'}")
    return is_same


def compare(folder: Path, runner: str, args: Sequence[str]) -> None:
    """Compares both runners; exits with 1 if they disagree."""
    write_rows(folder)
    overrides = ("--set", f"beam.args={json.dumps(list(args))}")
    runs_agree = compare_runs(folder, runner, overrides)
    if not (compare_predictions(folder, runner, overrides) and runs_agree):
        sys.exit(1)


def main() -> None:
    """Runs the comparison that the command line specifies."""
    parser = argparse.ArgumentParser(description=__doc__)
    runners = parser.add_mutually_exclusive_group()
    runners.add_argument("--flink-jar", metavar="FILE", help="Beam's job server for Flink")
    runners.add_argument(
        "--endpoint", metavar="HOST:PORT", help="the address of a running job server"
    )
    parser.add_argument(
        "--workers",
        default="LOOPBACK",
        metavar="TYPE",
        help="the value of Beam's --environment_type, such as PROCESS",
    )
    options = parser.parse_args()
    workers = f"--environment_type={options.workers}"
    with tempfile.TemporaryDirectory(prefix="scopeline-runner-") as name:
        folder = Path(name)
        if options.flink_jar:
            jar = Path(options.flink_jar).absolute()
            flink = ("--runner=FlinkRunner", f"--flink_job_server_jar={jar}")
            compare(folder, "Flink", [*flink, "--parallelism=2", workers])
        elif options.endpoint:
            runner_arguments = ("--runner=PortableRunner", f"--job_endpoint={options.endpoint}")
            compare(folder, options.endpoint, [*runner_arguments, workers])
        else:
            with start_prism(folder) as endpoint:
                runner_arguments = ("--runner=PortableRunner", f"--job_endpoint={endpoint}")
                compare(folder, "Prism", [*runner_arguments, workers])


if __name__ == "__main__":
    main()
