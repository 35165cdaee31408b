"""A run that would only repeat the last one: what it says, and every change that makes it run."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.config.loading import load_config
from pipeline.layout import Layout
from pipeline.records.event_log import EventKind, EventLog
from pipeline.records.summary import RunSummary, Status
from pipeline.run_context import RunContext, RunRequest, resolve_run
from pipeline.runs.reruns import Reruns
from tests.support.project import RUNNER, Project, snapshot, write_span

pytestmark = pytest.mark.slow

NAME = "spans"
CONFIG = """
name: spans
data: {format: csv, path: "days/{SPAN}/*.csv"}
task: binary
model: {kind: own_model.build_model}
train: {epochs: 1}
evaluate: {metrics: [accuracy], thresholds: {accuracy: {min: 0.01}}, ties: newest}
schedule: {on_new_data: true, window: {last: 2}, warm_start: true}
drift: {columns: {price plan: {infinity_norm: 0.9}}}
certificate: {enabled: false}
"""
BUILDER = """
from trainer_module.families.supervised.models.tables import build_mlp as build_model
"""
RUN = ("run", "--config", "spans.yaml")
SHOW_IMPORTS = """
import sys
sys.path.insert(0, {root!r})
import local_runner
try:
    local_runner.main()
except SystemExit as end:
    heavy = {{"tensorflow", "tf_keras", "tfx", "apache_beam", "tensorflow_model_analysis"}}
    print(end.code, heavy & set(sys.modules))
"""

Change = Callable[["Pipeline"], object]


class Pipeline:
    """A pipeline that has run on two spans, and whatever is changed of it."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.layout = Layout(project.output, NAME)
        self.overrides: list[str] = []

    @property
    def event_log(self) -> EventLog:
        return EventLog(self.layout.event_log)

    @property
    def context(self) -> RunContext:
        """As a run would resolve it now."""
        config = load_config(self.project.folder / "spans.yaml", self.overrides)
        return resolve_run(config, self.layout)

    @property
    def summary(self) -> RunSummary:
        """Of the newest run."""
        return RunSummary.model_validate(self.project.summary(NAME))

    def newest(self, pattern: str) -> Path:
        """The newest path below the pipeline's folder that matches a glob."""
        return max(self.layout.root.glob(pattern))

    def is_repeated(self) -> bool:
        """Whether a run that looks at everything anew would only repeat the last one."""
        return Reruns(self.context).repeated() is not None


@pytest.fixture(scope="module")
def first(project: Project) -> subprocess.CompletedProcess[str]:
    for number in (1, 2):
        write_span(project.folder, number)
    (project.folder / "own_model.py").write_text(BUILDER)
    (project.folder / "spans.yaml").write_text(CONFIG)
    return project.scopeline(*RUN)


@pytest.fixture
def pipeline(
    project: Project, first: subprocess.CompletedProcess[str], monkeypatch: pytest.MonkeyPatch
) -> Pipeline:
    """The same for this process, whose environment is another one than the command's."""
    assert first.returncode == 0, first.stdout + first.stderr
    monkeypatch.chdir(project.folder)
    monkeypatch.syspath_prepend(project.folder)
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    pipeline = Pipeline(project)
    Reruns(pipeline.context).keep(pipeline.summary, lambda: False)
    assert pipeline.is_repeated()
    return pipeline


def run_cold(project: Project, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs a command, which says at its end what it has imported of what takes seconds."""
    script = SHOW_IMPORTS.format(root=str(RUNNER.parent))
    command = [sys.executable, "-c", script, *arguments, "--output", str(project.output)]
    return subprocess.run(command, cwd=project.folder, capture_output=True, text=True, timeout=60)


def test_a_run_that_changes_nothing_says_so_and_imports_nothing(
    project: Project, first: subprocess.CompletedProcess[str]
) -> None:
    assert first.returncode == 0, first.stdout + first.stderr
    pushed = first.stdout.partition("pushed to ")[2].splitlines()[0]
    (run,) = (project.output / NAME / "runs").iterdir()
    files = snapshot(project.output)

    done = run_cold(project, *RUN)

    assert (done.stderr, done.returncode) == ("", 0)
    output, imports = done.stdout.splitlines()
    assert imports == "0 set()"
    assert output.startswith(f"spans: nothing has changed since run {run.name} ended on 20")
    again = r"`[^`]+ run --force --config spans\.yaml[^`]*` runs anyway"
    assert re.search(f"; its model is {re.escape(pushed)}; {again}$", output)
    changed = {name for name, time in snapshot(project.output).items() if files.get(name) != time}
    assert changed <= {f"{NAME}/.lock"}, "neither the history nor a run's folder is written to"


@pytest.mark.parametrize(
    "run_request",
    [
        RunRequest(force=True),
        RunRequest(reason="cron fired"),
        RunRequest(through="2"),
        RunRequest(validate_only=True),
        RunRequest(search_only=True),
    ],
    ids=repr,
)
def test_a_request_with_a_purpose_is_not_skipped(run_request: RunRequest) -> None:
    assert not run_request.may_be_skipped
    assert RunRequest().may_be_skipped


def touch(path: Path) -> None:
    """Changes the time of a file alone."""
    state = path.stat()
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns + 1_000_000_000))


def edit(path: Path) -> None:
    """Changes a byte of a file, and not its size."""
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


def note(kind: EventKind) -> Change:
    """The change that an event of a kind is."""
    return lambda p: p.event_log.record(kind, "by hand", run="another", version=1)


def override(*values: str) -> Change:
    """The change that keys of the config are."""
    return lambda p: p.overrides.extend(values)


def write_metadata(pipeline: Pipeline) -> None:
    """As another run does, or a model's mark."""
    with closing(sqlite3.connect(pipeline.layout.metadata)) as connection, connection:
        connection.execute("UPDATE Artifact SET name = name")
        connection.execute("INSERT INTO Type (name, type_kind) VALUES ('another', 1)")


CHANGES: dict[str, Change] = {
    "a file of the data is written again": lambda p: touch(
        p.project.folder / "days/1/customers.csv"
    ),
    "a file of the data is edited": lambda p: edit(p.project.folder / "days/2/customers.csv"),
    "a span has come": lambda p: write_span(p.project.folder, 3),
    "a span is gone": lambda p: shutil.rmtree(p.project.folder / "days" / "1"),
    "the window": override("schedule.window={last: 1}"),
    "an epoch more": override("train.epochs=2"),
    "a threshold": override("evaluate.thresholds={accuracy: {min: 0.02}}"),
    "a default is written out": override("train.batch_size=64"),
    "folds": override("evaluate.folds=2"),
    "a search": override("tune=auto"),
    "variants": override("optimize.variants=[int8]"),
    "no warm start": override("schedule.warm_start=false"),
    "approval": override("push.approve=manual"),
    "another serving folder": lambda p: p.overrides.append(
        f"push.directory={p.project.folder / 'elsewhere'}"
    ),
    "a server for the metadata": override("metadata=grpc://localhost:8080"),
    "the user's code": lambda p: (p.project.folder / "own_model.py").write_text(BUILDER + "# \n"),
    "what serves is deleted": lambda p: shutil.rmtree(p.newest("serving/spans/*")),
    "what serves is edited": lambda p: edit(p.newest("serving/spans/*/saved_model.pb")),
    "another version": lambda p: (p.layout.root / "serving/spans/9999999999").mkdir(),
    "the metadata": write_metadata,
    "the metadata is gone": lambda p: p.layout.metadata.unlink(),
    "an unfinished transaction": lambda p: (p.layout.root / "metadata.db-journal").touch(),
    "the schema is edited": lambda p: edit(p.layout.schema),
    "the history is gone": lambda p: p.layout.event_log.unlink(),
    "the summary is gone": lambda p: p.newest("runs/*/summary.json").unlink(),
    "another run began": note(EventKind.STARTED),
    "another run ended": note(EventKind.FINISHED),
    "a run is due": note(EventKind.DUE),
    "a version is withdrawn": note(EventKind.WITHDRAWN),
    "a version is rolled back": note(EventKind.ROLLED_BACK),
    "a model is approved": note(EventKind.APPROVED),
    "pushes are held": note(EventKind.HELD),
    "a span is accepted": note(EventKind.SPAN_ACCEPTED),
    "the record is of another format": lambda p: p.layout.last_run.write_text(
        p.layout.last_run.read_text().replace('"format": 1', '"format": 2')
    ),
    "the record is of another Scopeline": lambda p: p.layout.last_run.write_text(
        p.layout.last_run.read_text().replace('"the metadata"', '"its metadata"')
    ),
    "the record is cut off": lambda p: p.layout.last_run.write_text("{"),
}


@pytest.fixture
def restored(pipeline: Pipeline, tmp_path: Path) -> Iterator[Pipeline]:
    """Everything but the artifacts, which are many, is put back as it was."""
    folder, artifacts = pipeline.project.folder, pipeline.layout.pipeline_root
    shutil.copytree(folder, tmp_path / "before", ignore=shutil.ignore_patterns(artifacts.name))
    yield pipeline
    artifacts.rename(tmp_path / artifacts.name)
    shutil.rmtree(folder)
    (tmp_path / "before").rename(folder)
    (tmp_path / artifacts.name).rename(artifacts)


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_makes_it_run(restored: Pipeline, change: str) -> None:
    CHANGES[change](restored)
    assert not restored.is_repeated()


def test_an_artifact_that_is_edited_or_deleted_makes_it_run(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    examples = pipeline.newest("pipeline_root/ExampleGen/examples/*")
    examples.rename(tmp_path / "aside")
    assert not pipeline.is_repeated()
    (tmp_path / "aside").rename(examples)
    assert pipeline.is_repeated()
    touch(pipeline.newest("pipeline_root/Trainer/model/*/**/saved_model.pb"))
    assert not pipeline.is_repeated()


@pytest.mark.parametrize("kind", [EventKind.SKIPPED, EventKind.SKEW, EventKind.STALE])
def test_what_a_schedule_only_tells_changes_nothing(restored: Pipeline, kind: EventKind) -> None:
    note(kind)(restored)
    assert restored.is_repeated()


def test_the_environment_that_components_read_counts(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
    assert not pipeline.is_repeated()
    monkeypatch.delenv("XLA_FLAGS")
    monkeypatch.setenv("EDITOR", "ed")
    assert pipeline.is_repeated()


def test_installed_packages_count(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    assert pipeline.is_repeated()
    (tmp_path / "tensorflow-2.22.0.dist-info").mkdir()
    assert not pipeline.is_repeated()


def test_a_copy_elsewhere_is_another_pipeline(pipeline: Pipeline, tmp_path: Path) -> None:
    shutil.copytree(pipeline.project.folder / "output", tmp_path / "output")
    context = replace(pipeline.context, layout=Layout(tmp_path / "output", NAME))
    assert Reruns(context).repeated() is None


@pytest.mark.parametrize(
    "status", [status for status in Status if status not in (Status.PUSHED, Status.NOT_BLESSED)]
)
def test_only_a_final_outcome_is_kept(restored: Pipeline, status: Status) -> None:
    reruns = Reruns(restored.context)
    reruns.forget()
    reruns.keep(restored.summary.model_copy(update={"status": status}), lambda: False)
    assert not restored.is_repeated()


def test_nothing_is_kept_where_a_rerun_has_something_to_do(restored: Pipeline) -> None:
    reruns = Reruns(restored.context)
    reruns.forget()
    reruns.keep(restored.summary, lambda: True)
    assert not restored.is_repeated()


def test_what_changes_while_a_run_goes_on_is_new_to_the_next(restored: Pipeline) -> None:
    reruns = Reruns(restored.context)
    (restored.project.folder / "own_model.py").write_text(BUILDER + "UNITS = 8\n")
    reruns.keep(restored.summary, lambda: False)
    assert not restored.is_repeated()


def test_force_runs_and_what_it_leaves_is_repeated_again(
    project: Project, first: subprocess.CompletedProcess[str]
) -> None:
    done = project.scopeline(*RUN, "--force")
    assert done.returncode == 0, done.stdout + done.stderr
    assert set(project.states(NAME).values()) == {"cached"}
    assert len(list((project.output / NAME / "runs").iterdir())) == 2
    again = project.scopeline(*RUN)
    assert "nothing has changed since run" in again.stdout
    assert len(list((project.output / NAME / "runs").iterdir())) == 2


def test_a_run_that_pushed_nothing_is_repeated_with_its_code_and_reason(
    project: Project, first: subprocess.CompletedProcess[str]
) -> None:
    arguments = (*RUN, "--set", "evaluate.thresholds={accuracy: {min: 1.0}}")
    done = project.scopeline(*arguments)
    assert done.returncode == 3, done.stdout + done.stderr
    again = project.scopeline(*arguments)
    assert again.returncode == 3
    assert "it pushed nothing: accuracy is" in again.stdout
    assert again.stdout.count("\n") == 1


def test_a_schedule_sees_nothing_of_a_repetition(
    project: Project, first: subprocess.CompletedProcess[str]
) -> None:
    """What it started, or finds, is in its history as ever."""
    assert project.scopeline(*RUN).returncode == 0
    event_log = EventLog(Layout(project.output, NAME).event_log)
    before = event_log.last(EventKind.FINISHED)
    assert "nothing has changed since run" in project.scopeline(*RUN).stdout
    looked = project.scopeline("schedule", "--config", "spans.yaml", "--once")
    assert looked.returncode == 0, looked.stdout + looked.stderr
    assert "nothing new" in looked.stdout
    assert "nothing has changed since run" in project.scopeline(*RUN).stdout
    assert event_log.last(EventKind.FINISHED) == before
