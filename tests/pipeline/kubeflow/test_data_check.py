"""The check for new data: what it submits, when it waits, and what it finds of runs that died."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pipeline.config.settings import PipelineConfig
from pipeline.data.files import locate_data
from pipeline.data.spans import list_spans
from pipeline.kubeflow.api.client import Kubeflow
from pipeline.kubeflow.cluster_layout import cluster_layout, config_for_pods, settings_of
from pipeline.kubeflow.compiled import ParameterValue
from pipeline.kubeflow.data_check import check
from pipeline.records.event_log import EventKind, EventLog
from pipeline.records.run_events import RunEvents
from pipeline.records.summary import RunSummary, Status
from tests.support.kfp_server import KfpServer
from tests.support.small_pipeline import COMPILED, load
from trainer_module.errors import ConfigError

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)


class ScheduledPipeline:
    """A volume with days of data, and a Kubeflow Pipelines whose runs write the ledger."""

    def __init__(self, server: KfpServer, folder: Path) -> None:
        self.server = server
        self.volume = folder / "volume"
        self.volume.mkdir()
        self.config: PipelineConfig = load(
            folder,
            server.url,
            data={"format": "csv", "path": "days/{SPAN}/*.csv", "label": "y"},
            schedule={"on_new_data": True, "cron": "0 3 * * *"},
            kubeflow={"volume": {"claim": "scopeline", "path": str(self.volume)}},
        )
        self.layout = cluster_layout(self.config)
        self.event_log = EventLog(self.layout.event_log)
        self.kubeflow = Kubeflow(settings_of(self.config))

    def deliver(self, span: int, rows: str = "1,0\n") -> None:
        path = self.volume / "days" / str(span) / "x.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("a,y\n" + rows)
        an_hour_ago = (NOON - timedelta(hours=1)).timestamp()
        os.utime(path, (an_hour_ago, an_hour_ago))

    def check(self, once: bool = True, now: datetime = NOON) -> str:
        return check(self.config, self.kubeflow, self._submit, once, now)

    def _submit(self, parameters: dict[str, ParameterValue]) -> str:
        return self.kubeflow.start_run(self.kubeflow.ensure_version(COMPILED), parameters)

    def runs(self) -> list[str]:
        return list(self.server.runs)

    def end(self, run: str, state: str) -> None:
        self.server.runs[run]["state"] = state

    def run_events(self, run: str) -> RunEvents:
        """What the first and the last step of a run write by."""
        config = config_for_pods(self.config)
        run_events = RunEvents(
            self.event_log,
            config,
            run,
            list_spans(config.data, locate_data(config.data, self.layout))[-1:],
            "on Kubeflow",
        )
        run_events.record_start()
        return run_events

    def push(self, run: str) -> None:
        """The run goes well."""
        summary = RunSummary(
            run_id=run, pipeline="digits", started="", strategy="default", status=Status.PUSHED
        )
        self.run_events(run).record_end(summary, None)
        self.end(run, "SUCCEEDED")


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ScheduledPipeline]:
    monkeypatch.chdir(tmp_path)
    with KfpServer() as server:
        yield ScheduledPipeline(server, tmp_path)


def test_a_new_span_is_submitted_once(watched: ScheduledPipeline) -> None:
    watched.deliver(1)
    shown = watched.check()
    (run,) = watched.runs()
    assert shown == f"run {run} is submitted: new or changed: 1"
    assert watched.server.runs[run]["runtime_config"]["parameters"] == {"span": "1"}
    assert [event.kind for event in watched.event_log.events()] == [EventKind.DUE]
    assert watched.check() == f"nothing to do: run {run} is under way"
    watched.push(run)
    assert watched.check() == "nothing to do: nothing new"
    watched.deliver(2)
    assert watched.check().endswith("is submitted: new or changed: 2")
    assert len(watched.runs()) == 2


def test_dry_check_submits_and_records_nothing(watched: ScheduledPipeline) -> None:
    watched.deliver(1)
    assert watched.check(once=False) == "due: new or changed: 1"
    assert watched.runs() == []
    assert watched.event_log.events() == []


@pytest.mark.parametrize("begins", [True, False])
def test_run_that_died_without_a_report_is_retried(
    watched: ScheduledPipeline, begins: bool
) -> None:
    watched.deliver(1)
    watched.check()
    (run,) = watched.runs()
    if begins:
        watched.run_events(run)
    watched.end(run, "FAILED")
    assert re.match("nothing to do: the last run failed; the run is retried at", watched.check())
    (failed,) = watched.event_log.events(EventKind.FAILED)
    assert failed.run == run
    assert failed.message == f"run {run} on Kubeflow ended as failed, and left no report"
    later = datetime.now(UTC) + timedelta(hours=1)
    assert "is submitted: attempt 2 of 3" in watched.check(now=later)
    assert len(watched.runs()) == 2


def test_due_run_that_was_not_submitted_is_submitted_next(
    watched: ScheduledPipeline,
) -> None:
    watched.deliver(1)
    submit, watched._submit = watched._submit, _broken
    with pytest.raises(ConfigError):
        watched.check()
    watched._submit = submit
    assert "starts the run that was due but did not begin" in watched.check()
    assert len(watched.runs()) == 1


def _broken(parameters: dict[str, ParameterValue]) -> str:
    raise ConfigError(f"the API is away: {parameters}")
