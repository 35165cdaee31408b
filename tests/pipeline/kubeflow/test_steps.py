"""The first and the last step of a run: what they refuse, and what they make of other steps' ends.

They run in this process, with the metadata in a file, as one process has no need of a server.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pipeline.config.settings import PipelineConfig
from pipeline.kubeflow import step
from pipeline.kubeflow.cluster_layout import cluster_layout, run_root
from pipeline.kubeflow.compiled import (
    FINALIZE,
    ComponentResult,
    StepReport,
    pack,
    read_report,
    read_summary,
)
from pipeline.kubeflow.declared_outputs import outputs_of
from pipeline.kubeflow.image import code_hash
from pipeline.kubeflow.steps.run_record import RunFolder
from pipeline.records.event_log import EventKind, EventLog
from pipeline.records.summary import RunSummary, State, Status

NAN = {"auc": {"value": None, "in_service": None, "needs": "", "ok": False}}
ROOT = Path(__file__).parents[3]
RUN = "0b5b6d40-8f9b-4d4b-a5a8-0a5c8c4f6f11"


class Pod:
    """Runs steps of one run, one after another."""

    def __init__(self, folder: Path, capfd: pytest.CaptureFixture[str], **sections: Any) -> None:
        self._capfd = capfd
        self.volume = folder / "volume"
        self.volume.mkdir()
        (self.volume / "rows.csv").write_text("x,y\n1.5,0\n2.5,1\n")
        values = {
            "name": "digits",
            "data": {"format": "csv", "path": "rows.csv", "label": "y"},
            "task": "binary",
            "model": {"kind": "mlp"},
            "kubeflow": {
                "image": "x:1",
                "volume": {"claim": "scopeline", "path": str(self.volume)},
            },
            **sections,
        }
        self.config = PipelineConfig.model_validate(values)
        self.told = pack(self.config.model_dump_json(by_alias=True, exclude_unset=True).encode())
        self.layout = cluster_layout(self.config)
        self.log = ""

    def _step(self, *arguments: str) -> int:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", ["step", *arguments, "--run-id", RUN])
            with pytest.raises(SystemExit) as ended:
                step.main()
        self.log = "".join(self._capfd.readouterr())
        return ended.value.code

    def begin(self, code: str | None = None, **parameters: str) -> int:
        values = {"epochs": "2", "strategy": "default", "span": ""} | parameters
        given = [f"--{name}={value}" for name, value in values.items()]
        return self._step("begin", "--config", self.told, "--code", code or code_hash(), *given)

    def conclude(self, *outputs: str) -> RunSummary:
        assert self._step("conclude", "--config", self.told, *outputs) == 0, self.log
        summary = read_summary(self.log)
        assert summary is not None
        return summary

    def report(self) -> StepReport:
        found = read_report(self.log)
        assert found is not None, self.log
        return found

    @property
    def record(self) -> Path:
        return Path(run_root(self.layout)) / "runs" / RUN / "begun.json"

    @property
    def ends(self) -> list[str]:
        return [
            e.message
            for e in EventLog(self.layout.event_log).events(EventKind.FINISHED, EventKind.FAILED)
        ]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # Steps go where relative paths begin.


def test_begin_records_config_and_nodes(tmp_path: Path, capfd: Any) -> None:
    pod = Pod(tmp_path, capfd)
    assert pod.begin(epochs="7") == 0, pod.log
    record = json.loads(pod.record.read_text())
    assert record["config"]["train"]["epochs"] == 7
    assert record["notes"] == []
    assert next(iter(record["nodes"])) == "ExampleGen"
    assert "BaselineResolver" in set(record["nodes"]) - set(record["shown"])
    began = pod.record.read_bytes()
    assert pod.begin(epochs="7") == 0
    assert pod.record.read_bytes() == began, "a second attempt changes nothing"


@pytest.mark.parametrize(
    ("sections", "parameters", "words"),
    [
        ({}, {"epochs": "-1"}, "the parameter epochs is '-1'"),
        (
            {
                "train": {
                    "learning_rate": {"schedule": "cosine", "initial": 0.1, "warmup_epochs": 3}
                }
            },
            {"epochs": "2"},
            "epochs=2: train: learning_rate.warmup_epochs",
        ),
        (
            {"data": {"format": "csv", "path": "none.csv", "label": "y"}},
            {},
            "data.path: found 'none.csv'",
        ),
    ],
)
def test_refused_begin_ends_the_run_as_unusable(
    sections: dict[str, Any],
    parameters: dict[str, str],
    words: str,
    tmp_path: Path,
    capfd: Any,
) -> None:
    pod = Pod(tmp_path, capfd, **sections)
    assert pod.begin(**parameters) == 2
    report = pod.report()
    assert (report.state, report.status) == (State.FAILED, Status.UNUSABLE)
    assert words in report.detail
    assert "  Begin             failed  " in pod.log, "for who reads the log"
    summary = pod.conclude()
    assert summary.status is Status.UNUSABLE
    assert summary.error is not None
    assert words in summary.error.message
    assert len(pod.ends) == 1
    assert "Traceback" not in report.detail + summary.error.message


def test_unreachable_metadata_fails_the_run(tmp_path: Path, capfd: Any) -> None:
    pod = Pod(tmp_path, capfd, metadata="mysql://me@127.1:1/meta")
    assert pod.begin() == 1
    assert pod.report().status is Status.FAILED
    summary = pod.conclude()
    assert summary.status is Status.FAILED
    assert summary.error is not None
    words = "mysql://***@127.1:1/meta: the metadata server cannot be reached"
    assert words in summary.error.message


def test_step_without_a_report_is_named(tmp_path: Path, capfd: Any) -> None:
    pod = Pod(tmp_path, capfd)
    pod.begin()
    summary = pod.conclude()
    assert summary.status is Status.FAILED
    assert summary.error is not None
    assert summary.error.component == "ExampleGen"
    assert summary.error.message.startswith("the step left no report")
    assert pod.conclude() == summary
    assert len(pod.ends) == 1, "a second attempt writes nothing down again"


def test_run_without_a_first_step_is_concluded(tmp_path: Path, capfd: Any) -> None:
    executor_output, html = tmp_path / "output.json", tmp_path / "report.html"
    declared = {
        name: {"artifacts": [{"name": name, "uri": f"minio://bucket/{name}"}]}
        for name in outputs_of(FINALIZE, has_classes=True)
    }
    given = json.dumps({"outputs": {"artifacts": declared, "outputFile": str(executor_output)}})
    pod = Pod(tmp_path, capfd)
    for _ in ("first attempt", "second attempt"):
        html.unlink(missing_ok=True)
        summary = pod.conclude("--executor-input", given, f"--output=report={html}")
        assert summary.status is Status.FAILED
        assert summary.error is not None
        assert summary.error.message.startswith("the step left no report")
        assert summary.error.message in html.read_text()
        shown = json.loads(executor_output.read_text())["artifacts"]
        metadata = {name: output["artifacts"][0]["metadata"] for name, output in shown.items()}
        assert metadata == {
            "metrics": {},
            "classification": {},
            "report": {"run": RUN, "status": "failed"},
        }


def test_retried_run_is_recorded_once(tmp_path: Path, capfd: Any) -> None:
    pod = Pod(tmp_path, capfd)
    pod.begin()
    pod.record.unlink()  # It was killed before it had written that.
    pod.begin()
    pod.conclude()
    assert len(EventLog(pod.layout.event_log).events(EventKind.STARTED)) == 1


@pytest.mark.slow
def test_run_is_concluded_from_reports_without_metadata(tmp_path: Path, capfd: Any) -> None:
    pod = Pod(tmp_path, capfd)
    pod.begin()
    record = json.loads(pod.record.read_text())
    folder = RunFolder(run_root(pod.layout), RUN)
    found = {
        "Trainer": ComponentResult(
            summary={"strategy": "mirrored", "training": {"epochs": 2}}, model="m"
        ),
        "Evaluator": ComponentResult(
            summary={"blessed": False, "reason": "accuracy is 0.5", "metrics": NAN}
        ),
    }
    for node in record["nodes"]:
        shown = node in record["shown"]
        report = StepReport(
            step=node,
            state=State.RAN,
            seconds=1,
            is_shown=shown,
            found=found.get(node, ComponentResult()),
        )
        folder.write_report(report)
    pod.layout.metadata.unlink(missing_ok=True)
    pod.layout.metadata.mkdir()
    summary = pod.conclude()
    assert (summary.status, summary.reason) == (Status.NOT_BLESSED, "accuracy is 0.5")
    assert (summary.strategy, summary.training) == ("mirrored", {"epochs": 2})
    assert math.isnan(summary.metrics["auc"].value)
    assert [component.name for component in summary.components] == record["shown"]
    assert len(pod.ends) == 1
    assert summary.details is None, "the log has none"
    files = pod.layout.run(RUN)
    details = RunSummary.model_validate_json(files.summary.read_text()).details
    assert details is not None
    assert any(note.startswith("the metadata cannot be read") for note in details.notes)
    assert files.report.read_text().startswith("<!doctype html>")
    assert files.lineage_events.exists()
    assert "scopeline_run_exit_code" in pod.layout.run_metrics.read_text()


@pytest.mark.slow
def test_waiting_model_is_recorded_by_the_last_step(tmp_path: Path, capfd: Any) -> None:
    pod = Pod(tmp_path, capfd)
    assert pod.begin() == 0, pod.log
    record, folder = json.loads(pod.record.read_text()), RunFolder(run_root(pod.layout), RUN)
    waiting = {"version": 7, "status": "waits", "reason": "`approve 7` pushes the model"}
    waiting |= {"model": "/m", "model_id": 1, "model_created": 2, "exported": "m/Format-Serving"}
    found = {
        "Evaluator": ComponentResult(summary={"blessed": True, "reason": "good"}),
        "Pusher": ComponentResult(summary={"waiting": waiting}),
    }
    for node in record["nodes"]:
        shown, held = node in record["shown"], node == "Pusher"
        folder.write_report(
            StepReport(
                step=node,
                state=State.SKIPPED if held else State.RAN,
                seconds=1,
                is_shown=shown,
                found=found.get(node, ComponentResult()),
            )
        )
    summary = pod.conclude()
    assert (summary.status, summary.status.exit_code) == (Status.WAITS, 4)
    (waits,) = EventLog(pod.layout.event_log).events(EventKind.WAITS)
    assert (waits.run, waits.details["version"], waits.details["model_id"]) == (RUN, 7, 1)


STOPPED = """
import os, signal, sys, time
from pipeline.kubeflow import step
class Old:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.1)
def work(console):
    Old()
    time.sleep(60)
step.install_handlers()
config = step._read_config("Trainer", sys.argv[1])
step.exit_process(step._execute(config, "Trainer", sys.argv[2], work))
"""


@pytest.mark.slow
def test_stopped_step_reports_a_failure(tmp_path: Path, capfd: Any) -> None:
    """SIGTERM of the kubelet, whose exception a destructor swallows."""
    pod = Pod(tmp_path, capfd)
    command = [sys.executable, "-c", STOPPED, pod.told, RUN]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    report = RunFolder(run_root(pod.layout), RUN).read_report("Trainer")
    assert report is not None, done.stdout + done.stderr
    assert (done.returncode, report.state) == (1, State.FAILED)
    assert report.detail == "the step was stopped by a user or by its time limit"
