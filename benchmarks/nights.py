"""Measures commands and disk space of a pipeline that has retrained nightly for years.

The benchmark simulates a thousand nights (`tools/simulated_days`) and keeps all of them. It times
each command without its imports, and times it again after retention with the default limits.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path

import yaml
from rich.console import Console
from rich.table import Table

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")

from pipeline.cli.models import show_models
from pipeline.cli.run import show_plan
from pipeline.cli.schedule import history
from pipeline.config.loading import load_config
from pipeline.schedule.scheduled_pipeline import load_pipelines
from pipeline.schedule.scheduler import check_once
from pipeline.versions.retention import Retention
from tools.simulated_days.nights import Nights

KEEP_ALL = {"versions": "all", "runs": "all"}


def seconds(command: Callable[[], object]) -> float:
    """Returns the duration of a command in seconds, without its imports."""
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere):
        command()
        began = time.perf_counter()
        command()
        return time.perf_counter() - began


def measure(nights: Nights) -> dict[str, float]:
    """Returns the duration of each command, and the size of each growing file."""
    config, output = load_config(nights.file), nights.output
    pipelines = load_pipelines([nights.file], [], output)
    lock = nights.layout.scheduler_lock

    def check() -> None:
        check_once(pipelines, lock, ["nothing", "is", "due"], lambda: nights.now)

    return {
        "history, s": seconds(lambda: history(nights.file, [], output, False, None, [])),
        "models, s": seconds(lambda: show_models(config, output, as_json=False)),
        "plan, s": seconds(lambda: show_plan(config, output, verbose=False)),
        "scheduler check, s": seconds(check),
        "metadata.db, MB": nights.layout.metadata.stat().st_size / 1e6,
        "ledger.db, MB": nights.layout.event_log.stat().st_size / 1e6,
    }


def main() -> None:
    """Simulates and measures the nights that the options specify."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nights", type=int, default=1000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="nights-") as folder:
        nights = Nights(Path(folder), keep=KEEP_ALL)
        nights.play(options.nights)
        before_retention = measure(nights)
        settings = yaml.safe_load(nights.file.read_text())
        settings["schedule"]["keep"] = {"versions": 10, "runs": 30}
        nights.file.write_text(yaml.safe_dump(settings))
        config = load_config(nights.file)
        began = time.perf_counter()
        limits = config.schedule, config.drift, config.metadata
        Retention(*limits, nights.layout, nights.event_log).apply()
        retention_seconds = time.perf_counter() - began
        after_retention = measure(nights)
    table = Table("", "all kept", "the newest 30 runs", title=f"{options.nights:,} nights")
    for name, value in before_retention.items():
        table.add_row(name, f"{value:.2f}", f"{after_retention[name]:.2f}")
    console = Console()
    console.print(table)
    console.print(f"the deletion of the other runs took {retention_seconds:.1f} s")


if __name__ == "__main__":
    main()
