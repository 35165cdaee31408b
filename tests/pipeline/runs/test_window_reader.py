"""The older spans of a window: read one after another, each with what there is to say of it."""

from __future__ import annotations

import io
import re
from pathlib import Path

from pipeline.config.sections.data import SpanKind
from pipeline.records.event_log import EventKind, EventLog
from pipeline.records.run_events import RunEvents
from pipeline.run_context import BY_HAND, RunRequest, resolve_run
from pipeline.runs.console import RunConsole
from pipeline.runs.window_reader import WindowReader
from pipeline.schedule.span_states import accept_span
from tests.support.tiny_data import ROWS, TinyPipeline


def test_notes_on_a_span_name_it(tmp_path: Path) -> None:
    pipeline = TinyPipeline(tmp_path, "{SPAN}/*.csv")
    for span in (1, 2):
        pipeline.write(file=f"{span}/rows.csv")
    config = pipeline.config(schedule={"window": {"last": 2}, "cron": "0 3 * * *"})
    context = resolve_run(config, pipeline.layout, RunRequest())
    assert context.window is not None
    event_log = EventLog(pipeline.layout.event_log)
    run_events = RunEvents(event_log, config, "run 1", list(context.data), BY_HAND)
    reader, stream = WindowReader(context, event_log, run_events, "run 1"), io.StringIO()
    usable = reader.read(context.window, RunConsole(stream))
    assert [span.name for span in usable] == ["1", "2"]
    note = "split 'eval' has no example of 1 class that 'train' has, such as 0"
    assert reader.notes == [f"span 1: {note}"]
    assert stream.getvalue().rstrip().endswith(f"train 11, eval 1; warning: {note}")


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


def test_each_hour_is_read_as_it_comes_and_compared_with_the_one_before(tmp_path: Path) -> None:
    pipeline = TinyPipeline(tmp_path, "{YYYY}-{MM}-{DD}/{HH}-*.csv")
    header, *lines = ROWS.splitlines()
    lines *= 20
    for hour, left_out in {"2026-01-01T23": 2, "2026-01-02T00": 1, "2026-01-02T01": 0}.items():
        rows = "\n".join([header, *lines[left_out:]])
        if hour.endswith("01"):
            rows = rows.replace("north", "south")
        pipeline.write(rows, file=f"{hour.replace('T', '/')}-7-ab.csv")
        checked = pipeline.check(drift={"columns": {"side": {"infinity_norm": 0.2}}})
        assert checked.code == 0, checked.screen
        (read,) = (event for event in checked.events if event.kind == EventKind.INGESTED)
        assert read.details["span"] == SpanKind.HOUR.parse(hour)
        assert sum(read.details["examples"].values()) == len(lines) - left_out
    screen = " ".join(checked.screen.split())
    assert re.search(r"compared with span 2026-01-02T00: 'north' from \d+ % to none", screen)
