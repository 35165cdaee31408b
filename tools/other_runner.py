"""The same pipeline and predictions by Beam in this process and by a runner in another, compared.

What Beam's own runner in this process forgives (what cannot be pickled, what is only known here)
shows on Flink, Spark or Dataflow. Run it with `make other-runner`: it builds Prism, Beam's portable
runner, where Go is installed. `--flink-jar` and `--endpoint` take others.
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
BUILT = ROOT / ".tools" / "prism"
FILES, ROWS = 4, 500
MOST_APART = 0.02
"""Rows come in another order from another runner, and the network is another one by that."""
ANSWERS = ("answers_here", "answers_there")
_START_SECONDS = 30.0
CONFIG = {
    "name": "rows",
    "data": {"format": "csv", "path": "rows/*.csv", "label": "stays"},
    "task": "binary",
    "train": {"epochs": 2},
    "evaluate": {"slices": ["plan"]},
}


def build_prism() -> Path:
    """Returns the runner at Beam's version, built once; its sources come from Go's registry."""
    go = shutil.which("go")
    if go is None:
        sys.exit("other-runner: no Go to build Prism with; give --flink-jar or --endpoint")
    binary = BUILT / version("apache-beam") / "prism"
    if not binary.exists():
        print(f"building {PRISM}")
        environment = os.environ | {"GOBIN": str(binary.parent)}
        package = f"{PRISM}@v{version('apache-beam')}"
        subprocess.run([go, "install", package], env=environment, check=True)
    return binary


@contextmanager
def served_by_prism(folder: Path) -> Iterator[str]:
    """Yields the address of a Prism that runs until the end."""
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
    """Files of customers: a number, a category, a sentence, and whether they stay."""
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
    """Runs a command to its end, which has to be a good one; its seconds."""
    begun = time.monotonic()
    line = [sys.executable, str(ROOT / "local_runner.py"), command, "--config", "rows.yaml"]
    done = subprocess.run([*line, *arguments], cwd=folder, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{command} {' '.join(arguments)}: {done.returncode}\n{done.stdout}{done.stderr}")
    return time.monotonic() - begun


def compare_runs(folder: Path, runner: str, configured: Sequence[str]) -> bool:
    """Runs in both ways; whether they read the same and learnt alike."""
    (folder / "rows.yaml").write_text(yaml.safe_dump(CONFIG))
    here = scopeline(folder, "run", "--output", "here")
    there = scopeline(folder, "run", "--output", "there", *configured)
    print(f"run      {here:6.1f} s in this process, {there:6.1f} s by {runner}")
    before, after = summary(folder / "here"), summary(folder / "there")
    apart = {
        name: abs(metric["value"] - after["metrics"][name]["value"])
        for name, metric in before["metrics"].items()
    }
    shown = ", ".join(f"{name} by {difference:.2g}" for name, difference in apart.items())
    print(f"examples {before['examples']} and {after['examples']}; metrics apart: {shown}")
    return before["examples"] == after["examples"] and max(apart.values()) <= MOST_APART


def summary(output: Path) -> dict[str, Any]:
    """Of the one run there."""
    (found,) = output.glob("rows/runs/*/summary.json")
    return dict(json.loads(found.read_text()))


def compare_answers(folder: Path, runner: str, configured: Sequence[str]) -> bool:
    """Predicts in both ways by the same model; whether the answers are equal."""
    (model,) = (folder / "there" / "rows" / "serving" / "rows").iterdir()
    asked = ("--model", str(model), "--input", "rows/*.csv", "--columns", "age", "--output")
    here = scopeline(folder, "predict", *asked, ANSWERS[0], "--runner", "direct")
    there = scopeline(folder, "predict", *asked, ANSWERS[1], *configured, "--runner", "config")
    print(f"predict  {here:6.1f} s in this process, {there:6.1f} s by {runner}")
    names = [f"part-{number:05}-of-{FILES:05}.parquet" for number in range(FILES)]
    tables = [[pq.read_table(folder / where / n) for n in names] for where in ANSWERS]
    is_same = all(one.equals(other) for one, other in zip(*tables, strict=True))
    print(f"answers  {'are equal' if is_same else 'differ'}")
    return is_same


def compare(folder: Path, runner: str, args: Sequence[str]) -> None:
    """Exits with 1 where the two ways do not agree."""
    write_rows(folder)
    configured = ("--set", f"beam.args={json.dumps(list(args))}")
    agree = compare_runs(folder, runner, configured)
    if not (compare_answers(folder, runner, configured) and agree):
        sys.exit(1)


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--flink-jar", metavar="FILE", help="Beam's job server for Flink")
    which.add_argument("--endpoint", metavar="HOST:PORT", help="of a job server that runs")
    parser.add_argument(
        "--workers", default="LOOPBACK", metavar="TYPE", help="--environment_type, such as PROCESS"
    )
    given = parser.parse_args()
    workers = f"--environment_type={given.workers}"
    with tempfile.TemporaryDirectory(prefix="scopeline-runner-") as name:
        folder = Path(name)
        if given.flink_jar:
            jar = Path(given.flink_jar).absolute()
            flink = ("--runner=FlinkRunner", f"--flink_job_server_jar={jar}")
            compare(folder, "Flink", [*flink, "--parallelism=2", workers])
        elif given.endpoint:
            at = ("--runner=PortableRunner", f"--job_endpoint={given.endpoint}")
            compare(folder, given.endpoint, [*at, workers])
        else:
            with served_by_prism(folder) as endpoint:
                at = ("--runner=PortableRunner", f"--job_endpoint={endpoint}")
                compare(folder, "Prism", [*at, workers])


if __name__ == "__main__":
    main()
