"""Trains in the processes of a cluster, which this process forks as a run does.

`python cluster_run.py` gets the arguments of `run_fn` and the settings as JSON in a file.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from components.processes.local.fork_server import current_server, run_fork_server
from components.processes.local.launcher import LocalLauncher
from components.processes.supervisor import ClusterJob, Supervisor
from components.trainer.workers import Training, make_workers, restart_policy
from trainer_module.runtime import WorkerContext
from trainer_module.settings import Strategy, TrainerSettings
from trainer_module.trainer import run_fn


def main(file: Path) -> None:
    """Trains, and ends when all tasks have."""
    order: dict[str, Any] = json.loads(file.read_text())
    settings = TrainerSettings.from_custom_config(order["arguments"]["custom_config"])
    training = Training(
        f"{run_fn.__module__}.{run_fn.__name__}",
        order["arguments"],
        settings,
        WorkerContext(backup_directory=order["backup"]),
        order["scratch"],
    )
    strategy = Strategy(settings.train.strategy.kind)
    tasks = make_workers(training, strategy, None)
    with run_fork_server():
        assert current_server() is not None, "nothing keeps this process from forking"
        launcher = LocalLauncher(current_server())
        Supervisor(launcher, ClusterJob(tasks, restart_policy(strategy), 100)).run()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
