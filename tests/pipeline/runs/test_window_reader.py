"""The older spans of a window are read and checked one after another."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from pipeline.records.event_log import EventKind, EventLog
from pipeline.records.run_events import RunEvents
from pipeline.run_context import BY_HAND, RunRequest, resolve_run
from pipeline.runs.console import RunConsole
from pipeline.runs.window_reader import WindowReader
from pipeline.schedule.span_states import accept_span
from tests.support.tiny_data import ROWS, TinyPipeline


@pytest.mark.slow
def test_days_refused_for_a_shift_are_judged_anew_once_its_first_day_is_accepted(
    tmp_path: Path,
) -> None:
    pipeline = TinyPipeline(tmp_path, "{SPAN}/*.csv")
    for span in (1, 4):
        pipeline.write(file=f"{span}/rows.csv")
    for span in (2, 3):
        pipeline.write(ROWS.replace("north", "south"), file=f"{span}/rows.csv")
    config = pipeline.config(
        schedule={"window": {"last": 4}, "on_new_data": True, "missing_span": "skip"},
        drift={"columns": {"side": {"infinity_norm": 0.2}}, "on_drift": "fail"},
    )
    event_log = EventLog(pipeline.layout.event_log)

    def read(run: str) -> list[str]:
        context = resolve_run(config, pipeline.layout, RunRequest())
        assert context.window is not None
        run_events = RunEvents(event_log, config, run, list(context.data), BY_HAND)
        reader = WindowReader(context, event_log, run_events, run)
        usable = reader.read(context.window, RunConsole(io.StringIO()))
        return [span.name for span in usable]

    assert read("run 1") == ["1", "4"]
    assert read("run 2") == ["1", "4"]
    accept_span(config, pipeline.layout, event_log, "2", "a new shop")
    assert read("run 3") == ["1", "2", "3", "4"]
    assert [e.details["span"] for e in event_log.events(EventKind.UNUSABLE_SPAN)] == [2, 3]
