"""The warm start and the baseline of a run, from a real metadata store."""

from __future__ import annotations

from pathlib import Path

import ml_metadata as mlmd
import pytest
from ml_metadata.proto import metadata_store_pb2 as pb
from tfx.types import Artifact, artifact_utils, standard_artifacts

from components.pusher.versions import WITHDRAWN_PROPERTY
from components.resolvers import LatestOtherBlessedModelStrategy, WarmStartModelStrategy
from pipeline.versions.waiting import Candidate, mark_blessing


class History:
    """Executions as TFX records them: Examples -> Transform -> Trainer -> Model."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.connection = pb.ConnectionConfig(
            sqlite=pb.SqliteMetadataSourceConfig(
                filename_uri=str(path),
                connection_mode=pb.SqliteMetadataSourceConfig.READWRITE_OPENCREATE,
            )
        )
        self.store = mlmd.MetadataStore(self.connection)
        kinds = (
            standard_artifacts.Examples,
            standard_artifacts.Model,
            standard_artifacts.ModelBlessing,
        )
        self._types = {k: self.store.put_artifact_type(k().artifact_type) for k in kinds}
        self._executions = {
            name: self.store.put_execution_type(pb.ExecutionType(name=name))
            for name in ("Transform", "Trainer", "Evaluator")
        }

    def read(self) -> int:
        """Examples of a span, made by nobody here."""
        kind = self._types[standard_artifacts.Examples]
        return int(self.store.put_artifacts([pb.Artifact(type_id=kind, uri="examples")])[0])

    def train(self, *examples: int, blessed: bool = True, cached: bool = False) -> int:
        """A run that trains a model on Examples; with `cached`, a second run that takes it all."""
        transformed = self._execute("Transform", list(examples), standard_artifacts.Examples)
        model = self._execute("Trainer", [transformed], standard_artifacts.Model)
        blessing = {"current_model_id": model, "blessed": int(blessed)}
        self._execute("Evaluator", [model], standard_artifacts.ModelBlessing, blessing)
        if cached:
            self._link("Transform", list(examples), transformed)
            self._link("Trainer", [transformed], model)
        return model

    def withdraw(self, model: int) -> None:
        (artifact,) = self.store.get_artifacts_by_id([model])
        artifact.custom_properties[WITHDRAWN_PROPERTY].int_value = 1
        self.store.put_artifacts([artifact])

    def hold_back(self, model: int, waits: bool) -> None:
        """As a run does whose model is not pushed, and whoever has it pushed later."""
        (artifact,) = self.store.get_artifacts_by_id([model])
        created = artifact.create_time_since_epoch
        mark_blessing(self.connection, Candidate(artifact.uri, model, created, ""), waits)

    def all(self, kind: type[Artifact]) -> list[Artifact]:
        (of_kind,) = self.store.get_artifact_types_by_id([self._types[kind]])
        found = self.store.get_artifacts_by_type(kind.TYPE_NAME)
        return [artifact_utils.deserialize_artifact(of_kind, artifact) for artifact in found]

    def _execute(
        self,
        name: str,
        inputs: list[int],
        kind: type[Artifact],
        properties: dict[str, int] | None = None,
    ) -> int:
        uri = f"{name}/{len(self.store.get_artifacts())}"
        artifact = pb.Artifact(type_id=self._types[kind], uri=uri, state=pb.Artifact.LIVE)
        for key, value in (properties or {}).items():
            artifact.custom_properties[key].int_value = value
        (output,) = self.store.put_artifacts([artifact])
        self._link(name, inputs, output)
        return int(output)

    def _link(self, name: str, inputs: list[int], output: int) -> None:
        execution = pb.Execution(type_id=self._executions[name])
        (number,) = self.store.put_executions([execution])
        path = pb.Event.Path(steps=[pb.Event.Path.Step(key="examples")])
        given = [pb.Event(artifact_id=i, type=pb.Event.INPUT, path=path) for i in inputs]
        for event in (*given, pb.Event(artifact_id=output, type=pb.Event.OUTPUT)):
            event.execution_id = number
            self.store.put_events([event])


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(tmp_path / "metadata.db")


def warm_start(history: History, *examples: int) -> list[int]:
    given = [e for e in history.all(standard_artifacts.Examples) if e.id in examples]
    resolved = WarmStartModelStrategy().resolve_artifacts(
        history.store,
        {
            "examples": given,
            "model": history.all(standard_artifacts.Model),
            "model_blessing": history.all(standard_artifacts.ModelBlessing),
        },
    )
    models = [model.id for model in resolved["model"]]
    blessings = resolved["model_blessing"]
    assert [b.get_int_custom_property("current_model_id") for b in blessings] == models
    return models


def baseline_of(history: History, candidate: int) -> list[int]:
    return [model.id for model in compared_with(history, candidate)["model"]]


def compared_with(history: History, candidate: int) -> dict[str, list[Artifact]]:
    models = history.all(standard_artifacts.Model)
    return LatestOtherBlessedModelStrategy().resolve_artifacts(
        history.store,
        {
            "candidate": [model for model in models if model.id == candidate],
            "model": models,
            "model_blessing": history.all(standard_artifacts.ModelBlessing),
            "baseline_examples": history.all(standard_artifacts.Examples),
        },
    )


def test_first_run_starts_from_nothing(history: History) -> None:
    assert warm_start(history, history.read()) == []


def test_next_window_starts_from_the_latest_blessed_model(history: History) -> None:
    first, second, third = (history.read() for _ in range(3))
    old = history.train(first)
    new = history.train(first, second)
    history.train(second, blessed=False)
    assert warm_start(history, second, third) == [new]
    assert old < new


def test_rerun_on_the_same_window_has_the_same_warm_start(history: History) -> None:
    first, second = history.read(), history.read()
    assert warm_start(history, first) == []
    base = history.train(first)
    assert warm_start(history, first) == []

    assert warm_start(history, second, first) == [base]
    history.train(first, second)
    assert warm_start(history, second, first) == [base]
    # A run on the same window with other settings changes nothing for the next one either.
    history.train(first, second, cached=True)
    assert warm_start(history, first, second) == [base]


def test_withdrawn_model_is_neither_warm_start_nor_baseline(history: History) -> None:
    good, bad = history.read(), history.read()
    older = history.train(good)
    newer = history.train(bad)
    candidate = history.train(good, bad)
    assert warm_start(history, good, bad) == [newer]
    assert baseline_of(history, candidate) == [newer]

    history.withdraw(newer)

    assert warm_start(history, good, bad) == [older]
    assert baseline_of(history, candidate) == [older]
    history.withdraw(older)
    assert warm_start(history, good, bad) == []
    assert baseline_of(history, candidate) == []


def test_baseline_is_the_latest_other_blessed_model(history: History) -> None:
    first = history.train(history.read())
    assert baseline_of(history, first) == []
    unblessed = history.train(history.read(), blessed=False)
    second = history.train(history.read())
    assert baseline_of(history, unblessed) == [second]
    assert baseline_of(history, second) == [first]


def test_baseline_comes_with_its_training_examples(history: History) -> None:
    first, second, third = (history.read() for _ in range(3))
    history.train(first, second)
    candidate = history.train(second, third)
    found = compared_with(history, candidate)["baseline_examples"]
    assert {examples.id for examples in found} == {first, second}
    assert not compared_with(History(Path(f"{history.path}.new")), 0)["baseline_examples"]


def test_waiting_model_is_neither_warm_start_nor_baseline(history: History) -> None:
    one, two, three = history.read(), history.read(), history.read()
    serves, waits, candidate = (history.train(examples) for examples in (one, two, three))
    assert (baseline_of(history, candidate), warm_start(history, three)) == ([waits], [waits])
    history.hold_back(waits, True)
    assert (baseline_of(history, candidate), warm_start(history, three)) == ([serves], [serves])
    history.hold_back(waits, False)
    assert (baseline_of(history, candidate), warm_start(history, three)) == ([waits], [waits])
