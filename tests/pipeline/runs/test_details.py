"""What a run's details have at its end, whatever is left of its artifacts."""

from __future__ import annotations

import errno
import json
import logging
import resource
import signal
from pathlib import Path

import pytest

from components.evaluator.explanation.record import EXAMPLES_FILE, EXPLANATION_FILE
from pipeline.config.settings import PipelineConfig
from pipeline.records.details import StepCost
from pipeline.records.run_folders import StoredRun
from pipeline.records.summary import RunSummary
from pipeline.report.page import rewrite_report
from pipeline.runs import provenance
from pipeline.runs.logs import redirected_output
from pipeline.runs.provenance import config_without_secrets
from tests.support.evaluation_artifacts import Evaluations, config_of
from tests.support.recording import Recording
from tests.support.small_components import checks, play
from trainer_module.errors import DataError

EFFECT = {"values": [1], "answers": [0.5], "low": [0.4], "high": [0.6], "rows": [3]}
EXPLANATION = {
    "rows": 3,
    "of": 9,
    "task": "binary",
    "output": "probability of yes",
    "loss": "log_loss",
    "loss_value": 0.5,
    "effects": [{"column": column, "is_numeric": True, **EFFECT} for column in ("side", "income")],
}


@pytest.fixture
def ended(tmp_path: Path, evaluations: Evaluations) -> Recording:
    """A run with components of every kind, and an explanation beside its metrics."""
    config = evaluations.kept.config
    private = config.report.model_copy(update={"private": ["income"], "price_per_hour": 7200.0})
    recording = Recording(tmp_path, config.model_copy(update={"report": private}))
    play(config, recording.layout, recording.observer, checks(config))
    recording.train(evaluations.kept)
    (evaluation,) = recording.layout.pipeline_root.glob("Evaluator/evaluation/*")
    (evaluation / EXPLANATION_FILE).write_text(json.dumps(EXPLANATION))
    (evaluation / EXAMPLES_FILE).write_text("{}")
    return recording


@pytest.mark.proof
def test_details_of_a_run_are_complete(ended: Recording) -> None:
    cost = StepCost(cpu_seconds=1.5, peak_bytes=2, written_bytes=3)
    ended.observer.conclude(None)
    seconds = {c.name: c.seconds for c in ended.observer.summary.components}
    line = ended.observer.report({"Trainer": cost, "Nobody": cost})
    assert line.startswith("report: ")
    details = RunSummary.model_validate_json(ended.files.summary.read_text()).details
    assert details is not None
    assert details.notes == []
    assert {c.name: c.type for c in details.columns} == {"label": "label", "side": "categorical"}
    assert details.columns[0].splits.keys() == {"train", "eval"}
    assert details.explanation is not None
    assert [effect.column for effect in details.explanation.effects] == ["side"]
    assert Path(details.worst_examples).name == EXAMPLES_FILE
    assert "plan=gold" in json.dumps(list(details.slice_intervals)) or not details.slice_intervals
    assert details.costs.keys() == {"Trainer"}
    price = details.costs["Trainer"].price
    assert price == pytest.approx(2 * seconds["Trainer"])
    lineage = details.lineage
    assert lineage is not None
    artifacts = {artifact.type: artifact for artifact in lineage.artifacts}
    assert artifacts["Model"].producer == "Trainer"
    assert artifacts["Model"].consumers == ["Evaluator", "Pusher"]
    assert artifacts["Model"].bytes == len(b"graph")
    assert ("Trainer", "Evaluator") in lineage.edges
    assert lineage.versions["tfx"].startswith("1.21")
    assert lineage.config == ended.config.fingerprint
    assert len(lineage.code) >= 23
    assert int(lineage.machine["cores"]) >= 1
    assert details.model == {"bytes": len(b"graph")}


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (
            OSError(errno.ENOSPC, "No space left on device", "report.html"),
            "(the disk is full); `scopeline report --config FILE` writes it",
        ),
    ],
)
def test_unwritable_report_does_not_fail_the_run(
    error: Exception,
    reason: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    page = pytest.importorskip("pipeline.report.page")

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(page, "write_report", fail)
    recording = Recording(tmp_path, config_of({}))
    recording.observer.conclude(KeyboardInterrupt())
    assert recording.observer.report() == f"report: not written {reason}"
    assert "The report could not be written" in caplog.text
    assert recording.summary["details"]["lineage"]["machine"], "the details are kept"


def test_full_disk_does_not_fail_the_run(ended: Recording) -> None:
    ended.observer.conclude(None)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, limits[1]))
    try:
        line = ended.observer.report()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert line == "report: not written (OSError: [Errno 27] File too large)"
    notes = "".join(ended.observer.summary.notes)
    assert "openlineage.json could not be written" in notes
    assert "summary.json cannot be written (File too large) and is out of date" in notes
    assert ended.summary["status"] == "pushed", "it was written before"
    left = {path.name for path in ended.files.root.iterdir()}
    assert left == {"summary.json"}, "no half file takes up space"
    rewrite_report(StoredRun(ended.config.name, ended.files))
    assert "</html>" in ended.files.report.read_text()


def test_credentials_in_uris_are_hidden_everywhere(tmp_path: Path) -> None:
    uri = "https://me:pass-word@host/a?.csv?sv=2&sig=se%2Fcret#token=to-ken"
    data = config_of({}).data.model_copy(update={"path": uri})
    recording = Recording(tmp_path, config_of({}).model_copy(update={"data": data}))
    recording.observer.note([f"'{uri}' is empty"])
    recording.observer.conclude(
        DataError(f"{uri}: no such file, see s3://b/c?X-Signature=se%2Fcret")
    )
    recording.observer.report()
    names = {path.name for path in recording.files.root.iterdir()}
    assert {"summary.json", "report.html", "openlineage.json"} <= names
    for path in (*recording.files.root.iterdir(), recording.layout.event_log):
        written = path.read_bytes()
        assert not [s for s in (b"pass-word", b"cret", b"to-ken") if s in written], path
    hidden = "https://***@host/a?.csv?sv=***&sig=***#token=***"
    assert recording.summary["details"]["config"]["data"]["path"] == hidden
    assert recording.summary["notes"] == [f"'{hidden}' is empty"]
    assert recording.summary["error"]["message"].startswith(f"{hidden}: no such file")


def test_credentials_are_hidden_in_the_log(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    with redirected_output(log, False):
        logging.getLogger("tfx").info("reads %s", "https://me:pass-word@host/a.csv?sig=se%2Fcret")
        try:
            raise OSError("gs://b/a.csv?token=to-ken")
        except OSError:
            logging.getLogger("tfx").exception("cannot read")
    lines = log.read_text().splitlines()
    assert lines[0].endswith(" INFO tfx: reads https://***@host/a.csv?sig=***")
    assert lines[-1] == "OSError: gs://b/a.csv?token=***"


def test_config_has_no_secrets() -> None:
    config = PipelineConfig.model_validate(
        {
            "name": "quiet",
            "data": {
                "format": "csv",
                "path": "https://me:p@ss-word@host/data.csv",
                "label": "label",
            },
            "task": "binary",
            "metadata": "mysql://user@host/database",
            "notify": {"webhook": {"url": "https://host/token-1234"}, "occasions": ["failed"]},
        }
    )
    values = config_without_secrets(config)
    text = json.dumps(values)
    for secret in ("ss-word", "user@host", "token-1234"):
        assert secret not in text
    assert values["name"] == "quiet"
    assert "https://***@host/data.csv" in text
    assert values["notify"] == {
        "webhook": {"url": provenance.NOT_SHOWN},
        "occasions": ["failed"],
    }
