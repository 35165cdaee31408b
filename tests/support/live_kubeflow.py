"""Kubeflow Pipelines over HTTP whose runs are executed, for the command line to submit and follow.

The API is that of the small server, which checks every request; what it tells of a run, and of its
logs, is how the test executor's processes stand at that moment.
"""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.support import warm
from tests.support.kfp_executor import BackendError, Execution
from tests.support.kfp_server import KfpServer, RefusedError
from tests.support.kubeflow_cluster import ROOT, Cluster, Run, check
from tests.support.played_runs import NEVER, Frame, Play

MOST_SECONDS = 600


@dataclass
class LivePlay(Play):
    """A run that goes on while it is looked at."""

    execution: Execution = field(kw_only=True)
    outcome: Future[Run] = field(kw_only=True)

    def look(self, run: str) -> tuple[str, list[dict[str, Any]]]:
        has_ended = self.outcome.done()
        begun = [task for task in list(self.execution.tasks.values()) if task.attempts]
        begun.sort(key=lambda task: task.started)
        self.frames = [
            Frame(
                str(self.outcome.result().state) if has_ended else "RUNNING",
                {task.name: "RUNNING" if task.is_running else str(task.state) for task in begun},
                {task.name: len(task.attempts) for task in begun},
            )
        ]
        state, nodes = super().look(run)
        return state, [node | self._times(node["display_name"]) for node in nodes]

    def log(self, pod: str) -> str | None:
        for task, attempts in self.now.attempts.items():
            if pod == self._pod(task, self.now):
                return self.execution.tasks[task].attempts[attempts - 1].log
        return None

    def _times(self, name: str) -> dict[str, str]:
        task = self.execution.tasks.get(name)
        if task is None:
            return {}
        ended = NEVER if task.is_running else _rfc3339(task.ended)
        return {"start_time": _rfc3339(task.started), "end_time": ended}


@dataclass(kw_only=True)
class LiveKubeflow(KfpServer):
    """The API of a cluster."""

    cluster: Cluster
    threads: ThreadPoolExecutor = field(default_factory=ThreadPoolExecutor)

    def begin(self, run: str, specification: str, parameters: dict[str, Any]) -> Play:
        check(specification)
        try:
            execution = self.cluster.executor_of(specification).begin(run)
        except BackendError as error:
            raise RefusedError(400, str(error)) from None
        outcome = self.threads.submit(execution.run, parameters)
        return LivePlay(execution=execution, outcome=outcome)

    def outcome(self, run: str) -> Run:
        """What became of a run, which is awaited."""
        play = self.plays[run]
        assert isinstance(play, LivePlay)
        return play.outcome.result(MOST_SECONDS)

    def __exit__(self, *_: object) -> None:
        for play in self.plays.values():
            assert isinstance(play, LivePlay)
            play.execution.end()
        self.threads.shutdown()
        super().__exit__()

    def scopeline(
        self, command: str, config: Path, *arguments: str
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command of `kubeflow_runner.py` as a user does."""
        settings = [f"kubeflow.endpoint={self.url}", *self.cluster.settings]
        options = [word for setting in settings for word in ("--set", setting)]
        program = [sys.executable, str(ROOT / "kubeflow_runner.py"), command]
        desk = self.cluster.volume.parent / "desk"
        desk.mkdir(exist_ok=True)
        return warm.run(
            [*program, "--config", str(config), *options, *arguments],
            cwd=desk,
            capture_output=True,
            text=True,
            timeout=MOST_SECONDS,
        )


def _rfc3339(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
