"""What a run would do and why: for a dozen rows that were checked, with real metadata."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tfx.dsl.compiler import compiler
from tfx.orchestration.portable import data_types
from tfx.proto.orchestration import execution_result_pb2

from pipeline.config import user_code
from pipeline.graph.create import create_pipeline
from pipeline.layout import Layout
from pipeline.own_modules import PACKAGES, ROOT
from pipeline.records.summary import State
from pipeline.run_context import resolve_run
from pipeline.runs.local import ReplacingOperator, compiled_nodes, launch
from pipeline.runs.plan import PlannedComponent, make_plan
from tests.support.tiny_data import ROWS, Checked, TinyPipeline
from trainer_module.errors import DataError

CHECKS = ["ExampleGen", "StatisticsGen", "SchemaGen", "ExampleValidator"]
COMPONENTS = [*CHECKS, "Transform", "Trainer", "Evaluator", "InfraValidator", "Pusher"]
UNCHANGED = "its inputs and settings have not changed"


class Nothing(ReplacingOperator):
    """Does nothing, and well: TFX's launcher records an execution that is as good as done."""

    def run_executor(
        self, execution_info: data_types.ExecutionInfo
    ) -> execution_result_pb2.ExecutorOutput:
        del execution_info
        return execution_result_pb2.ExecutorOutput()


@dataclass
class Plans:
    """A pipeline whose components are in the metadata, and what was planned before some were."""

    pipeline: TinyPipeline
    before_training: dict[str, PlannedComponent]

    def __call__(self, **changes: Any) -> dict[str, PlannedComponent]:
        """The plan with some sections of the config changed."""
        return plan(self.pipeline, **changes)


def plan(pipeline: TinyPipeline, **changes: Any) -> dict[str, PlannedComponent]:
    config = pipeline.config(**changes)
    planned = make_plan(config, Layout.of(config.name, config.push, pipeline.layout.output))
    return {component.name: component for component in planned}


def train_without_training(pipeline: TinyPipeline) -> None:
    """Everything is recorded as by a run that trained."""
    whole = compiler.Compiler().compile(
        create_pipeline(resolve_run(pipeline.config(), pipeline.layout))
    )
    for node in compiled_nodes(whole, "run 2"):
        if node.id in CHECKS:
            state, _ = launch(node)
            assert state is State.CACHED
        else:
            launch(node, Nothing)


@pytest.fixture(scope="session")
def plans(tiny: TinyPipeline, checked: Checked) -> Plans:
    assert checked.code == 0
    before = plan(tiny)
    train_without_training(tiny)
    return Plans(tiny, before)


@pytest.fixture
def other_rows(plans: Plans) -> Iterator[None]:
    """The data changes, and is put back as it was."""
    plans.pipeline.write(ROWS + "8.5,north,1\n")
    yield
    plans.pipeline.write()


@pytest.mark.usefixtures("followed_imports")
def test_a_pipeline_that_never_ran_begins_at_its_beginning(tmp_path: Path) -> None:
    pipeline = TinyPipeline(tmp_path)
    pipeline.write()
    planned = plan(pipeline)
    assert list(planned) == COMPONENTS
    assert all(component.runs for component in planned.values())
    assert planned["ExampleGen"].reason == "it has not run yet"
    assert planned["StatisticsGen"].reason == "after ExampleGen"
    assert planned["Pusher"].reason == "after Evaluator, InfraValidator, Trainer"
    assert list(pipeline.layout.root.iterdir()) == []


def test_checked_data_is_not_checked_again(plans: Plans) -> None:
    planned = plans.before_training
    assert [name for name, component in planned.items() if not component.runs] == CHECKS
    assert planned["ExampleValidator"].reason == UNCHANGED
    assert planned["Transform"].reason == "it has not run yet"
    assert planned["Trainer"].reason == "after Transform"


def test_nothing_is_planned_where_nothing_changed(plans: Plans) -> None:
    assert plans() == {name: PlannedComponent(name, False, UNCHANGED) for name in COMPONENTS}


@pytest.mark.parametrize(
    ("changes", "component", "why"),
    [
        ({"on_anomaly": "warn"}, "ExampleValidator", "on_anomaly fail -> warn"),
        (
            {"features": {"both": {"type": "cross", "of": ["size", "side"], "hash_buckets": 5}}},
            "ExampleValidator",
            "named.features.both (side) none -> side; named.features.both (size) none -> size",
        ),
        (
            {"train": {"seed": 3}, "model": {"dropout": 0.5}},
            "Trainer",
            "model.dropout default -> 0.5; train.seed 42 -> 3",
        ),
        ({"evaluate": {"thresholds": {"auc": {"min": 0.8}}}}, "Evaluator", "evaluate"),
        (
            {"certificate": {"tolerance": 0.01}},
            "InfraValidator",
            "certificate.tolerance 0.001 -> 0.01",
        ),
        (
            {"push": {"directory": "/elsewhere"}},
            "Pusher",
            "push_destination.filesystem.base_directory ",
        ),
    ],
    ids=[
        "anomaly",
        "feature",
        "two keys",
        "in words",
        "certificate",
        "push",
    ],
)
def test_a_change_is_named_as_in_the_config(
    plans: Plans, changes: dict[str, Any], component: str, why: str
) -> None:
    planned = plans(**changes)
    first = next(found for found in planned.values() if found.runs)
    assert first.name == component
    assert first.reason.startswith(f"changed: {why}")
    if component != "Pusher":
        assert first.reason == f"changed: {why}"
    after = COMPONENTS[COMPONENTS.index(component) + 1 :]
    if "on_anomaly" in changes:
        # The others only wait for its verdict.
        assert all(planned[name].reason == UNCHANGED for name in after)
    else:
        assert all(planned[name].reason.startswith(("after ", "changed: ")) for name in after)


def test_slices_change_checks_and_evaluation(plans: Plans) -> None:
    planned = plans(evaluate={"slices": ["side"]})
    assert [name for name in COMPONENTS if planned[name].runs] == [
        *("ExampleValidator", "Evaluator", "InfraValidator", "Pusher")
    ]
    assert planned["Evaluator"].reason == "changed: evaluate"


def test_a_column_that_is_not_there_is_refused(plans: Plans) -> None:
    with pytest.raises(DataError, match=r"evaluate.slices.0: the schema has no column `sid`"):
        plans(evaluate={"slices": ["sid"]})


def test_new_rows_are_the_data(plans: Plans, other_rows: None) -> None:
    del other_rows
    planned = plans()
    assert planned["ExampleGen"].reason == "changed: the data"
    assert all(component.runs for component in planned.values())


@pytest.fixture(scope="session")
def copied_code(plans: Plans, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A copy of the code, which gives the same plan before and after the edits."""
    copy = tmp_path_factory.mktemp("code")
    for package in PACKAGES:
        shutil.copytree(ROOT / package, copy / package)

    def assert_same() -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(user_code, "ROOT", copy)
            assert not any(planned.runs for planned in plans().values())

    assert_same()
    yield copy
    assert_same()


@pytest.mark.parametrize(
    ("file", "component"),
    [
        ("components/example_gen/sources/base.py", "ExampleGen"),
        ("components/example_validator/drift.py", "ExampleValidator"),
        ("trainer_module/preprocessing.py", "Transform"),
        ("trainer_module/families/supervised/models/tables.py", "Trainer"),
        ("trainer_module/export/loading.py", "Evaluator"),
        ("trainer_module/tuning/trial.py", None),
    ],
)
def test_an_edit_of_our_code_runs_the_components_that_import_it(
    plans: Plans,
    copied_code: Path,
    monkeypatch: pytest.MonkeyPatch,
    file: str,
    component: str | None,
) -> None:
    monkeypatch.setattr(user_code, "ROOT", copied_code)
    source = copied_code / file
    original = source.read_bytes()
    source.write_bytes(original + b"# An edit.\n")
    try:
        planned = plans()
    finally:
        source.write_bytes(original)
    assert next((name for name in COMPONENTS if planned[name].runs), None) == component
    if component is not None:
        assert planned[component].reason == "changed: the code that it runs"


def test_how_beam_runs_changes_nothing(plans: Plans) -> None:
    planned = plans(beam={"args": ["--runner=DirectRunner", "--direct_num_workers=2"]})
    assert not any(component.runs for component in planned.values())


def test_files_that_are_gone_are_made_again(plans: Plans) -> None:
    artifacts = plans.pipeline.layout.pipeline_root / "Transform"
    aside = artifacts.rename(artifacts.with_name("aside"))
    try:
        why = plans()["Transform"].reason
    finally:
        aside.rename(artifacts)
    assert why == "the last run with these inputs did not finish, or its files are gone"


def test_planning_changes_nothing(plans: Plans) -> None:
    root = plans.pipeline.layout.root

    def files() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in root.rglob("*") if path.is_file()}

    before = files()
    plans(train={"epochs": 3})
    assert before
    assert files() == before
