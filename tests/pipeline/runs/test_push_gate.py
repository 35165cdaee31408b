"""Blessed models that are not pushed: held back, or waiting until somebody approves them."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_metadata as mlmd
import pytest

from components.pusher.versions import (
    CARD_JSON,
    CARD_MARKDOWN,
    WAITING_PROPERTY,
    list_versions,
    read_provenance,
    restore_version,
)
from pipeline.config.settings import PipelineConfig
from pipeline.data.files import DataLocation
from pipeline.data.spans import Span
from pipeline.layout import Layout
from pipeline.lock import run_lock
from pipeline.records.event_log import EventKind, EventLog
from pipeline.records.run_events import RunEvents
from pipeline.run_context import RunContext
from pipeline.runs.artifact_results import ArtifactResults
from pipeline.runs.console import RunConsole
from pipeline.runs.observer import RunObserver
from pipeline.runs.push_gate import PushGate
from pipeline.versions.hold import release_hold, set_hold
from pipeline.versions.retention import Retention
from pipeline.versions.rollback import RollbackRequest, roll_back
from pipeline.versions.waiting import ApprovalRequest, approve, still_waiting
from tests.support.evaluation_artifacts import (
    SURE,
    Measured,
    config_of,
    measure,
    write_examples,
    write_model,
)
from tests.support.small_components import play, training
from trainer_module.errors import ConfigError, TryLaterError


@dataclass
class Pipeline:
    """Runs that train nothing, and push a model with a given verdict."""

    folder: Path
    measured: Measured

    def __post_init__(self) -> None:
        self.layout = Layout(self.folder / "output", "measured")
        self.layout.root.mkdir(parents=True)
        self.event_log = EventLog(self.layout.event_log)
        self.runs = 0
        self.screen = ""

    def config(self, approves: str = "auto", **sections: Any) -> PipelineConfig:
        values = self.measured.config.model_dump(by_alias=True, exclude_unset=True)
        return PipelineConfig.model_validate(values | {"push": {"approve": approves}} | sections)

    def run(
        self, model: int, approves: str = "auto", meanwhile: Callable[[], object] | None = None
    ) -> dict[str, Any]:
        """A run that trains a model, or takes it from the cache; gives its summary.

        Args:
          model: which one.
          approves: `push.approve`.
          meanwhile: is done before its Pusher: on Kubeflow no lock keeps two runs apart.
        """
        self.runs += 1
        config = self.config(approves)
        files = self.layout.run(f"run {self.runs}")
        files.root.mkdir(parents=True)
        context = RunContext(config, self.layout, DataLocation("", {}))
        results = ArtifactResults(context.connection, config, self.event_log)
        stream = io.StringIO()
        console = RunConsole(stream)
        data = [Span(-1, None, ())]
        run_events = RunEvents(self.event_log, config, files.root.name, data, "test")
        observer = RunObserver(context, files, console, run_events, results)
        gate = PushGate(context, results, observer.summary)

        @contextmanager
        def late_gate(node: str) -> Iterator[bool]:
            if node == "Pusher" and meanwhile is not None:
                meanwhile()
            with gate(node) as may_run:
                yield may_run

        nodes = training(self.layout, self.measured.uri, True, replicas=model)
        play(config, self.layout, observer, nodes, files.root.name, late_gate)
        observer.conclude(None)
        console.conclude(observer.summary, [])
        self.screen = stream.getvalue()
        return dict(json.loads(files.summary.read_text()))

    def approve(self, number: int, approves: str = "manual", **options: Any) -> list[str]:
        request = ApprovalRequest(number, "looks right", **options)
        return approve(self.config(approves), self.layout, self.event_log, request)

    @property
    def versions(self) -> list[Path]:
        return list_versions(Path(self.layout.serving))

    @property
    def waiting(self) -> list[int]:
        return [waiting.number for waiting in still_waiting(self.event_log)]

    def kinds(self) -> list[EventKind]:
        return [event.kind for event in self.event_log.events()]

    def marks(self) -> list[int]:
        """Of the blessings, oldest first."""
        connection = RunContext(self.config(), self.layout, DataLocation("", {})).connection
        found = mlmd.MetadataStore(connection).get_artifacts_by_type("ModelBlessing")
        return [a.custom_properties[WAITING_PROPERTY].int_value for a in found]


def card_of(version: Path) -> dict[str, Any]:
    """Returns the details of the model in the card of a version."""
    return dict(json.loads((version / CARD_JSON).read_text())["model_details"])


def retention_of(config: PipelineConfig, pipeline: Pipeline) -> Retention:
    kept = config.schedule, config.drift, config.metadata
    return Retention(*kept, pipeline.layout, pipeline.event_log)


@pytest.fixture(scope="session")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    """One evaluation alone: those that other modules share take longer."""
    folder = tmp_path_factory.mktemp("measured")
    config = config_of({"metrics": ["accuracy"]})
    examples, model = write_examples(folder, sure=SURE), write_model(folder, "sure")
    return measure(folder / "first", config, examples, model)


@pytest.fixture
def pipeline(tmp_path: Path, measured: Measured) -> Pipeline:
    return Pipeline(tmp_path, measured)


@pytest.mark.proof
def test_held_run_trains_and_does_not_push(pipeline: Pipeline) -> None:
    set_hold(pipeline.layout, pipeline.event_log, "complaints")
    held = pipeline.run(1)
    assert (held["status"], held["blessed"], held["pushed"]) == ("held", True, None)
    assert pipeline.versions == []
    (number,) = pipeline.waiting
    assert f"not pushed, as version {number}: held back (complaints)" in pipeline.screen
    to_do = (
        "; after `scopeline release --config FILE`, "
        f"`scopeline approve {number} --reason TEXT --config FILE` pushes the model"
    )
    assert held["waiting"]["reason"].endswith(to_do)
    finished = pipeline.event_log.last(EventKind.FINISHED)
    assert finished is not None
    assert (finished.details["status"], finished.details["exit_code"]) == ("held", 4)
    assert pipeline.run(1)["status"] == "held"
    assert pipeline.kinds().count(EventKind.WAITS) == 1, "it is the same model"
    assert pipeline.marks() == [1]

    release_hold(pipeline.layout, pipeline.event_log)
    pushed = pipeline.run(1)
    assert pushed["status"] == "pushed"
    assert [str(version) for version in pipeline.versions] == [pushed["pushed"]]
    assert (pipeline.waiting, pipeline.marks()) == ([], [0])
    set_hold(pipeline.layout, pipeline.event_log, "again")
    assert pipeline.run(1)["status"] == "pushed", "it serves, and that is not changed by a hold"


@pytest.mark.proof
def test_a_model_waits_until_it_is_approved(pipeline: Pipeline) -> None:
    waits = pipeline.run(1, "manual")
    (number,) = pipeline.waiting
    assert waits["status"] == "waits"
    assert waits["waiting"]["reason"] == (
        f"`scopeline approve {number} --reason TEXT --config FILE` pushes the model"
    )
    assert pipeline.versions == []
    # A later run takes the model from the cache. The version is that of the first run.
    assert pipeline.run(1, "manual")["waiting"]["version"] == number

    (shown,) = pipeline.approve(number)

    (version,) = pipeline.versions
    assert str(number) in shown
    assert version.name in shown
    card = json.loads((version / CARD_JSON).read_text())
    assert card["model_details"]["version"]["name"] == "run 1"
    assert {"type": "accuracy", "value": "1"}.items() <= {
        **card["quantitative_analysis"]["performance_metrics"][0]
    }.items()
    provenance = read_provenance(version)
    assert provenance is not None
    assert (provenance.model, provenance.run) == (waits["waiting"]["model"], "run 1")
    assert (version / "saved_model.pb").read_bytes() == b"graph"
    pushed = pipeline.event_log.last(EventKind.PUSHED)
    assert pushed is not None
    assert (pushed.details["path"], pushed.run) == (str(version), "run 1")
    assert pushed.details["metrics"]["accuracy"] == pytest.approx(1.0)
    assert (pipeline.waiting, pipeline.marks()) == ([], [0])
    # What serves is found by a rerun, and nothing waits once more.
    assert pipeline.run(1, "manual")["status"] == "pushed"
    assert pipeline.versions == [version]
    with pytest.raises(ConfigError, match=r"approve \d+: no model waits"):
        pipeline.approve(number)


def test_version_appears_with_its_card_and_copies_keep_it(pipeline: Pipeline) -> None:
    first = Path(pipeline.run(1)["pushed"])
    cards = [(first / name).read_text() for name in (CARD_JSON, CARD_MARKDOWN)]
    assert "run 1" in cards[0]
    assert "- card.owner in the config" in cards[1]
    archives = list(pipeline.layout.pipeline_root.glob(f"Pusher/pushed_model/*/{CARD_MARKDOWN}"))
    assert [archive.read_text() for archive in archives] == [cards[1]]
    shutil.rmtree(first)
    assert restore_version(archives[0].parent, str(first)) == "was missing"
    assert (first / CARD_MARKDOWN).read_text() == cards[1]
    pipeline.run(2)
    roll_back(pipeline.config(), pipeline.layout, pipeline.event_log, RollbackRequest())
    copy = pipeline.versions[-1]
    assert [(copy / name).read_text() for name in (CARD_JSON, CARD_MARKDOWN)] == cards


def test_approvals_that_are_refused(pipeline: Pipeline) -> None:
    for model in (1, 2):
        pipeline.run(model, "manual")
    new, old = pipeline.waiting
    assert new > old
    set_hold(pipeline.layout, pipeline.event_log, "complaints")
    with pytest.raises(ConfigError, match=rf"approve {old}: pushes are held since .*: complaints"):
        pipeline.approve(old)
    release_hold(pipeline.layout, pipeline.event_log)
    with run_lock(pipeline.layout), pytest.raises(TryLaterError, match="is under way"):
        pipeline.approve(old)
    with pytest.raises(
        ConfigError, match=f"approve 7: no model waits under this number; .* are {new}, {old}"
    ):
        pipeline.approve(7)
    assert pipeline.versions == []

    pipeline.approve(new)
    assert pipeline.waiting == []
    with pytest.raises(ConfigError, match="of a model that was trained later; --force"):
        pipeline.approve(old)
    pipeline.approve(old, force=True)
    runs = [card_of(version)["version"]["name"] for version in pipeline.versions]
    assert runs == ["run 2", "run 1"]


def test_older_model_is_not_pushed_over_a_newer_one(pipeline: Pipeline) -> None:
    late = pipeline.run(1, meanwhile=lambda: pipeline.run(2))
    (newer,) = pipeline.versions
    provenance = read_provenance(newer)
    assert provenance is not None
    assert provenance.run == "run 2"
    assert (late["run_id"], late["status"], late["pushed"]) == ("run 1", "superseded", None)
    number = late["waiting"]["version"]
    shown = (
        f"version {newer.name} is in service, and its run began later; "
        f"`scopeline approve {number} --force --reason TEXT --config FILE` pushes this model anyway"
    )
    assert late["waiting"]["reason"] == shown
    assert f"not pushed, as version {number}: version {newer.name} is in service" in pipeline.screen
    finished = pipeline.event_log.last(EventKind.FINISHED)
    assert finished is not None
    assert (finished.run, finished.details["exit_code"]) == ("run 1", 4)
    assert (pipeline.waiting, pipeline.marks()) == ([], [1, 0]), "it is none to beat or to approve"
    with pytest.raises(ConfigError, match="of a model that was trained later; --force"):
        pipeline.approve(number)
    pipeline.approve(number, force=True)
    assert len(pipeline.versions) == 2
    assert pipeline.run(3)["status"] == "pushed", "the next run is newer than both"


def test_killed_approval_is_finished_by_the_next(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline.run(1, "manual")
    (number,) = pipeline.waiting

    def killed(*_: object, **__: object) -> None:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr("pipeline.versions.waiting.mark_blessing", killed)
        with pytest.raises(SystemExit):
            pipeline.approve(number)
    (version,) = pipeline.versions
    assert pipeline.waiting == [number]
    pipeline.approve(number)
    assert pipeline.versions == [version]
    assert (pipeline.waiting, pipeline.marks()) == ([], [0])
    assert pipeline.kinds().count(EventKind.PUSHED) == 1


def test_retention_keeps_the_newest_waiting_models(pipeline: Pipeline) -> None:
    pipeline.run(1, "manual")
    pipeline.run(2, "manual")
    pipeline.run(3, "manual")
    config = pipeline.config("manual", schedule={"cron": "0 3 * * *", "keep": {"runs": 1}})
    retention = retention_of(config, pipeline)
    retention.apply()
    newest, middle, oldest = pipeline.waiting
    pipeline.approve(middle)
    retention.apply()
    with pytest.raises(ConfigError, match="no longer exists: retention keeps at most"):
        pipeline.approve(oldest, force=True)
    pipeline.approve(newest)
    assert len(pipeline.versions) == 2
