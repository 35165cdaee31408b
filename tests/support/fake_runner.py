"""Stands for `local_runner.py`: takes `run` and its options, records its events, trains nothing.

What it does stands in the file `behaviour` in the output folder: the status that it ends with, or
`hang`, `deaf` (hangs, and ignores SIGTERM), `hard of hearing` (ignores the first), `done` (is not
blessed, although SIGTERM came), `killed`, or one of those that record nothing: `silent`
(ends with 1), `refused` (with 2) and `later` (with 75).

`skew --record` records that the columns in the file `skewed` are, and compares nothing.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from datetime import datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from pipeline.config.loading import load_config
from pipeline.config.sections.data import SpanKind
from pipeline.config.settings import PipelineConfig
from pipeline.data.files import count_rows, locate_data
from pipeline.data.spans import choose_window, list_spans
from pipeline.layout import Layout, new_run_id
from pipeline.lock import run_lock
from pipeline.records.data_records import new_requests, record_skew
from pipeline.records.event_log import EventLog
from pipeline.records.notify import wait_for_deliveries
from pipeline.records.run_events import RunEvents
from pipeline.records.summary import ErrorSummary, RunSummary, Status

WORDLESS = {"refused": 2}


def record(config: PipelineConfig, event_log: EventLog, skewed: list[str]) -> None:
    files = new_requests(config, event_log)
    rows = sum(count_rows(files).values())
    print(record_skew(config, event_log, files, 7, rows, {n: f"{n} moved" for n in skewed}))
    wait_for_deliveries()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["run", "skew"])
    parser.add_argument("--config", type=Path)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--output", type=Path)
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--because")
    parser.add_argument("--through")
    parser.add_argument("--validate-only", action="store_true")
    given = parser.parse_args()
    config = load_config(given.config, given.set)
    layout = Layout.of(config.name, config.push, given.output)
    if given.command == "skew":
        record(config, EventLog(layout.event_log), (given.output / "skewed").read_text().split())
        return
    behaviour = (given.output / "behaviour").read_text().strip()
    with (given.output / "calls").open("a") as calls:
        calls.write(f"{config.name} {given.through} {os.getpid()}\n")
    print(f"run of {config.name}: {behaviour}", flush=True)
    if behaviour in WORDLESS:
        sys.exit(WORDLESS[behaviour])
    deaf = behaviour == "deaf"
    signal.signal(signal.SIGTERM, signal.SIG_IGN if deaf else signal.default_int_handler)
    with run_lock(layout):
        through = SpanKind.DAY.parse(given.through)
        spans, now = (
            list_spans(config.data, locate_data(config.data, layout)),
            datetime.now().astimezone(),
        )
        data = list(
            choose_window(spans, config.data, config.schedule_or_default, now, through).spans
        )
        run = new_run_id()
        event_log = EventLog(layout.event_log)
        run_events = RunEvents(event_log, config, run, data, given.because)
        run_events.record_start()
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
        run_events.record_end(summary, None)
        sys.exit(status.exit_code)


def _behave(behaviour: str) -> Status:
    if behaviour == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if behaviour not in ("hang", "deaf"):
        return Status(behaviour)
    try:
        time.sleep(120)
    except KeyboardInterrupt:
        return Status.INTERRUPTED
    return Status.FAILED


if __name__ == "__main__":
    main()
