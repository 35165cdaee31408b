"""Stands for `local_runner.py`: takes `run` and its options, writes the ledger, trains nothing.

Its behaviour is read from `behaviour` in the output folder: a status, or `hang`, `deaf` (to SIGTERM
as well), `silent` (an exit code of 1 and a line), `refused` (2).
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from datetime import datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from pipeline.config.loading import load_config
from pipeline.layout import Layout, new_run_id
from pipeline.lock import one_at_a_time
from pipeline.records.event_log import EventLog
from pipeline.records.run_events import RunEvents
from pipeline.records.summary import ErrorSummary, RunSummary, Status
from pipeline.run_context import RunRequest, resolve_run


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["run"])
    parser.add_argument("--config", type=Path)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--output", type=Path)
    parser.add_argument("--because")
    parser.add_argument("--through")
    parser.add_argument("--validate-only", action="store_true")
    given = parser.parse_args()
    config = load_config(given.config, given.set)
    layout = Layout.of(config, given.output)
    behaviour = (given.output / "behaviour").read_text().strip()
    with (given.output / "calls").open("a") as calls:
        calls.write(f"{config.name} {given.through} {os.getpid()}\n")
    print(f"run of {config.name}: {behaviour}", flush=True)
    if behaviour == "silent":
        sys.exit(1)
    if behaviour == "refused":
        sys.exit(2)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with one_at_a_time(layout):
        request = RunRequest(given.because, given.through, given.validate_only)
        data = list(resolve_run(config, layout, request).data)
        run = new_run_id()
        run_events = RunEvents(EventLog(layout.event_log), config, run, data, given.because)
        run_events.started()
        status = _behave(behaviour)
        summary = RunSummary(
            run_id=run,
            pipeline=config.name,
            started=datetime.now().isoformat(),
            strategy="default",
            status=status,
        )
        if status is Status.FAILED:
            summary.error = ErrorSummary(component="Trainer", message="it broke", log="run.log")
        run_events.concluded(summary, None)
        sys.exit(status.exit_code)


def _behave(behaviour: str) -> Status:
    if behaviour == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if behaviour not in ("hang", "deaf"):
        return Status(behaviour)
    if behaviour == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        time.sleep(120)
    except KeyboardInterrupt:
        return Status.INTERRUPTED
    return Status.FAILED


if __name__ == "__main__":
    main()
