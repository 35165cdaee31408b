"""Each model and each task: trained for two steps, exported, loaded, and given raw rows.

The strategies of one process and the loops are dealt out among the cases.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.support.trainer_data import SMALLEST_BERT, Transformed, to_example
from tests.support.training_data import (  # noqa: F401 - fixtures
    digits,
    houses,
    opinions,
    trips,
)
from tests.support.trainings import train_whole
from tests.support.warm_data import given, using
from trainer_module import ensemble_trainer, trees_trainer
from trainer_module.export.saving import describe_features, export_model
from trainer_module.settings.model import NETWORKS as PRETRAINED
from trainer_module.settings.model import TRAINER, ZOO, trainer_of
from trainer_module.settings.tasks import SUPERVISED_TASKS, supervised_class
from trainer_module.training.plan import TrainingInputs, TrainingResult

pytestmark = pytest.mark.proof

TWO_STEPS = {"epochs": 1, "steps_per_epoch": 2}


@dataclass(frozen=True)
class Case:
    """What is trained, on the data of which fixture."""

    kind: str
    data: str
    strategy: str = "default"
    loop: str = "fit"
    task: dict[str, Any] | None = None
    """In the place of that of the data; both read the label in the same way."""
    model: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.kind}-{self.task['kind'] if self.task else self.data}-{self.strategy}"


DIGITS_IN_ORDER = {"kind": "ordinal", "order": [*range(10)]}
INTERVALS = {"kind": "regression", "quantiles": [0.1, 0.9]}
BERT = {"size": SMALLEST_BERT, "dropout": 0.0}
TEXT_CNN = {"filters": [3], "widths": [2, 3], "embedding_size": 4, "dropout": 0.0}
CASES = [
    Case("mlp", "trips"),
    Case("wide_deep", "houses", "one_device", "custom"),
    Case("tabular", "houses", "mirrored", task=INTERVALS, model={"members": 3, "dropout": 0.0}),
    Case("mlp", "houses", "central_storage", "custom", task={"kind": "count"}),
    Case("convnet", "digits", "mirrored", "custom", DIGITS_IN_ORDER, {"filters": [2, 3]}),
    Case("bag", "opinions", "one_device"),
    Case("text_cnn", "opinions", "central_storage", model=TEXT_CNN),
    Case("bert", "opinions", loop="custom", model=BERT),
    Case("trees", "trips", model={"trees": 5}),
    Case("ensemble", "trips", model={"members": ["tabular", "extra", "linear"], "trees": 5}),
]


def test_the_cases_have_every_model_and_every_task() -> None:
    """`cnn` trains under each strategy in test_strategies.py; pretrained networks are slow."""
    assert {case.kind for case in CASES} == {*ZOO} - {*PRETRAINED} - {"cnn"}
    tasks = {case.task["kind"] for case in CASES if case.task}
    assert tasks | {"binary", "multiclass"} == {*SUPERVISED_TASKS}


def train(inputs: TrainingInputs) -> TrainingResult:
    """By the trainer of the model's kind."""
    match inputs.settings.model.kind:
        case "trees":
            return trees_trainer.train(inputs)
        case "ensemble":
            return ensemble_trainer.train(inputs)
    return train_whole(inputs)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_exported_model_answers_raw_rows_as_the_trained_one_does_transformed_ones(
    request: pytest.FixtureRequest, tmp_path: Path, case: Case
) -> None:
    data: Transformed = using(request.getfixturevalue(case.data), case.kind, **case.model)
    if case.task:
        target = supervised_class(case.task["kind"]).model_validate(case.task)
        data = replace(data, settings=data.settings.model_copy(update={"target": target}))
    options = {"strategy": case.strategy, "loop": case.loop, **TWO_STEPS}
    inputs = given(data, tmp_path, None, **(options if trainer_of(case.kind) == TRAINER else {}))
    trained = train(inputs)
    path = str(tmp_path / "exported")
    export_model(trained.model, inputs.tft_output, inputs.data.problem, inputs.settings, path)
    check_answers(data, trained.model, path)


def check_answers(data: Transformed, model: Any, path: str) -> None:
    """With gaps everywhere, values never seen, one row alone, and columns in another order."""
    problem = data.problem
    label, output = problem.label, "scores" if problem.classes else "value"
    exported = tf.saved_model.load(path)
    served = exported.signatures["serving_default"]
    rows = [{k: v for k, v in row.items() if k != label} for row in data.evaluation[:6]]
    images = {k: v for k, v in rows[0].items() if isinstance(v, bytes)}
    never_seen = {str: "Never seen", float: -1e9, int: 7777}
    rows += [images, {k: never_seen.get(type(v), v) for k, v in rows[1].items()}]

    def answers(rows: list[dict[str, Any]]) -> np.ndarray:
        return np.asarray(served(tf.constant([to_example(row) for row in rows]))[output])

    together = answers(rows)
    assert np.isfinite(together).all()
    alone = [answers([dict(reversed(row.items()))])[0] for row in rows[::7]]
    np.testing.assert_allclose(alone, together[::7], rtol=1e-5, atol=1e-6)
    features = data.transform([{**row, label: data.evaluation[0][label]} for row in rows])
    names = {feature.name for feature in problem.features}
    found = np.asarray(model({k: v for k, v in features.items() if k in names}))
    if problem.classes:
        expected = together[:, 1:] if problem.task == "binary" else together
    else:
        found, expected = found[:, 0], together
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    transformed = {f.request: tf.constant(features[f.name]) for f in describe_features(problem)}
    again = exported.signatures["from_transformed"](**transformed)[output]
    np.testing.assert_allclose(again, together, rtol=1e-5, atol=1e-6)
