"""What each model of the zoo has to pass: trained under every strategy, by both loops, and served.

A case trains a model twice, the second time under another strategy and by the other loop, to the
same losses. The strategies of one process, the tasks and the precisions are dealt out among the
cases. Clusters are in test_clusters.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from tests.support.trainer_data import SMALLEST_BERT, Transformed, to_example
from tests.support.trainings import train_whole
from tests.support.warm_data import given, load, using
from trainer_module import trees_trainer
from trainer_module.data.augmentation import make_augmentation
from trainer_module.data.examples import Content, Reader
from trainer_module.data.input_pipeline import Split
from trainer_module.data.loading import TrainingData, measure_quartiles
from trainer_module.export.saving import describe_features, export_model
from trainer_module.features.transformed import TransformedFeature
from trainer_module.problem import Problem
from trainer_module.runtime import WorkerContext
from trainer_module.settings import ModelSettings, TrainerSettings
from trainer_module.settings.model import NETWORKS as PRETRAINED
from trainer_module.settings.model import TRAINER, ZOO, load_builder, trainer_of
from trainer_module.settings.tasks import SUPERVISED_TASKS
from trainer_module.trainer import open_strategy
from trainer_module.training.plan import TrainingInputs

pytestmark = pytest.mark.slow

ORDER = ["low", "mid", "high"]
TASK_OPTIONS: dict[str, Any] = {
    "quantiles": {"kind": "regression", "quantiles": [0.1, 0.9]},
    "ordinal": {"kind": "ordinal", "order": ORDER},
}
CLASSES = {"binary": ("no", "yes"), "multiclass": ("a", "b", "c"), "ordinal": tuple(ORDER)}
FEATURES = {
    "numbers": (
        TransformedFeature("amount", "numeric", (1,)),
        TransformedFeature("spot", "numeric", (2,)),
    ),
    "a number": (TransformedFeature("amount", "numeric", (1,)),),
    "categories": (
        TransformedFeature("area", "categorical", (1,), vocabulary_size=6),
        TransformedFeature("tags", "categorical", (2,), vocabulary_size=6, many=True),
    ),
    "a category": (TransformedFeature("area", "categorical", (1,), vocabulary_size=6),),
    "tokens": (TransformedFeature("review", "text", (5,), vocabulary_size=6),),
    "terms": (TransformedFeature("review", "text", (5, 2), vocabulary_size=6),),
    "an image": (TransformedFeature("photo", "image", (8, 8, 1)),),
}
ROWS = 48
SIZES: dict[str, dict[str, Any]] = {
    "bert": {"size": SMALLEST_BERT, "dropout": 0.0},
    "cnn": {"filters": [2]},
    "convnet": {"filters": [2, 3]},
    "text_cnn": {"filters": [3], "widths": [2, 3], "embedding_size": 4, "dropout": 0.0},
    "tabular": {"members": 3, "hidden_units": [8], "dropout": 0.0},
    "trees": {"trees": 5},
}
SMALL = [kind for kind in ZOO if kind not in PRETRAINED]
"""The others have tests of their own, in fine_tuning/ and e2e/trainer/: minutes in all."""
NETWORKS = [kind for kind in SMALL if trainer_of(kind) == TRAINER]
REPLICAS = {"one_device": 1, "mirrored": 2, "central_storage": 2}


@dataclass(frozen=True)
class Case:
    """What is trained, and on what."""

    kind: str
    task: str
    features: tuple[str, ...]
    precision: str
    strategies: tuple[str, str]
    """By `fit`, and by the loop of ours."""
    augment: tuple[tuple[str, Any], ...] = ()
    """Changes of pictures, by name."""

    def __str__(self) -> str:
        return f"{self.kind}-{self.task}-{self.precision}"


ONE, MIRRORED, CENTRAL = REPLICAS
AUGMENT = (("flip", "horizontal"), ("shift", 0.1), ("mixup", 0.2))
CASES = [
    Case("mlp", "count", ("numbers",), "float32", (ONE, CENTRAL)),
    Case("wide_deep", "ordinal", ("numbers", "categories"), "float32", (MIRRORED, ONE)),
    Case("wide_deep", "regression", ("categories",), "mixed_bfloat16", (CENTRAL, MIRRORED)),
    Case("cnn", "binary", ("an image", "numbers"), "float32", (ONE, CENTRAL), AUGMENT),
    Case("convnet", "ordinal", ("an image", "numbers"), "float32", (MIRRORED, ONE)),
    Case("convnet", "multiclass", ("an image",), "mixed_float16", (ONE, MIRRORED), AUGMENT),
    Case("bag", "multiclass", ("terms", "numbers"), "float32", (ONE, CENTRAL)),
    Case("text_cnn", "binary", ("tokens", "numbers"), "float32", (MIRRORED, ONE)),
    Case("bert", "multiclass", ("tokens", "numbers"), "float32", (ONE, MIRRORED)),
    Case("tabular", "regression", ("categories",), "float32", (CENTRAL, MIRRORED)),
    Case("tabular", "quantiles", ("numbers",), "mixed_float16", (MIRRORED, ONE)),
]


@pytest.fixture(autouse=True)
def _plain_precision() -> Iterator[None]:
    yield
    tf_keras.mixed_precision.set_global_policy("float32")


def make_tensors(features: tuple[TransformedFeature, ...], seed: int) -> dict[str, tf.Tensor]:
    """Of each category the last two values are never seen with seed 1; 0 of several is padding."""
    random, tensors = np.random.default_rng(seed), {}
    for feature in features:
        shape = (ROWS, *feature.shape)
        if feature.vocabulary_size:
            values = random.integers(0, 4 if seed == 1 else 6, shape)
            if feature.many or feature.kind == "text":
                values[:, 0] = np.maximum(values[:, 0], 1)
            if feature.is_bag:
                values = values.astype(np.float32)
                values[..., 1] = random.uniform(size=shape[:-1]) * (values[..., 0] > 0)
        else:
            values = random.normal(size=shape).astype(np.float32)
        tensors[feature.name] = tf.constant(values)
    return tensors


def make_label(task: str, tensors: dict[str, tf.Tensor]) -> tf.Tensor:
    """[rows, 1], which follows from the first feature."""
    first = next(iter(tensors.values())).numpy().reshape(ROWS, -1)[:, :1].astype(np.float32)
    if task not in CLASSES:
        return tf.constant(np.round(np.exp(first - first.mean())))
    bounds = np.quantile(first, np.arange(1, len(CLASSES[task])) / len(CLASSES[task]))
    return tf.constant(np.digitize(first, bounds))


def prepare(case: Case, directory: Path, strategy: str, loop: str) -> TrainingInputs:
    """What a training is given, of examples that no Transform has made."""
    settings = TrainerSettings.model_validate(
        {
            "label": "y",
            "task": TASK_OPTIONS.get(case.task, case.task),
            "model": {"kind": case.kind, "hidden_units": [8], **SIZES.get(case.kind, {})},
            "train": {
                "strategy": strategy,
                "loop": loop,
                "precision": case.precision,
                "epochs": 2,
                "learning_rate": 0.01,
                "augment": dict(case.augment) or None,
            },
        }
    )
    features = tuple(feature for name in case.features for feature in FEATURES[name])
    tensors = make_tensors(features, 1)
    label = make_label(case.task, tensors)
    replicas = REPLICAS[strategy]
    content = Content(np.ones(ROWS, bool), {**tensors, "y": label})
    content.add_labels(label.numpy().ravel(), np.ones(ROWS))
    problem = Problem(
        settings.target,
        "y",
        CLASSES.get(case.task, ()),
        features,
        label_mean=content.label_mean,
        label_deviation=content.label_deviation,
    )
    reader = Reader([], {}, problem)
    problem = Problem(**{**vars(problem), "quartiles": measure_quartiles(reader, content)})
    augmentation = make_augmentation(settings.train.augment, problem, 1)
    batch = 16 // replicas
    train = Split(reader, content, batch, replicas, shuffle_seed=1, augmentation=augmentation)
    data = TrainingData(problem, train, Split(reader, content, ROWS, replicas))
    built = open_strategy(settings)
    assert built.num_replicas_in_sync == replicas
    return TrainingInputs(settings, WorkerContext(), built, str(directory), None, data)


def check_rows_are_alone(case: Case, model: Any, tolerance: float) -> None:
    """With values never seen, each row on its own, and columns in another order."""
    features = tuple(feature for name in case.features for feature in FEATURES[name])
    unseen = make_tensors(features, 2)
    together = np.asarray(model(unseen))
    assert together.dtype == np.float32
    assert np.isfinite(together).all()
    for place in (0, 7):
        row = {name: values[place : place + 1] for name, values in reversed(unseen.items())}
        np.testing.assert_allclose(model(row)[0], together[place], rtol=tolerance, atol=tolerance)


# By every pair of a strategy and a precision only in the long tests: test_loops.py and
# test_pruning.py train in half precision, and below each model computes in it.
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=[pytest.mark.slow] if case.precision != "float32" else [])
        for case in CASES
    ],
    ids=str,
)
def test_it_learns_the_same_under_every_strategy_by_both_loops(case: Case, tmp_path: Path) -> None:
    is_exact = case.precision == "float32"
    losses = []
    for strategy, loop in zip(case.strategies, ("fit", "custom"), strict=True):
        trained = train_whole(prepare(case, tmp_path / loop, strategy, loop))
        losses.append(trained.history["loss"])
        check_rows_are_alone(case, trained.model, 1e-5 if is_exact else 0.02)
    assert losses[0][1] < losses[0][0]
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-4 if is_exact else 0.05)


def test_the_cases_have_all_there_is() -> None:
    assert {case.kind for case in CASES if case.precision == "float32"} == set(NETWORKS)
    assert {case.task for case in CASES} == {*SUPERVISED_TASKS, "quantiles"}
    for place in (0, 1):
        assert {case.strategies[place] for case in CASES} == set(REPLICAS)


@pytest.mark.parametrize("kind", NETWORKS)
def test_half_precision_ends_in_whole_numbers(kind: str) -> None:
    """What a model computes in float16 it answers in float32."""
    features = next(case.features for case in CASES if case.kind == kind)
    flat = tuple(feature for name in features for feature in FEATURES[name])
    problem = Problem("binary", "y", CLASSES["binary"], flat)
    settings = ModelSettings(kind=kind, **{"hidden_units": [8], **SIZES.get(kind, {})})
    tf_keras.mixed_precision.set_global_policy("mixed_float16")
    found = np.asarray(load_builder(kind)(problem, settings)(make_tensors(flat, 1)))
    assert (found.shape, found.dtype) == ((ROWS, 1), np.float32)
    assert np.isfinite(found).all()


@pytest.mark.parametrize("features", ["numbers", "a number", "categories", "a category"])
def test_trees_take_what_networks_do(features: str, tmp_path: Path) -> None:
    case = Case("trees", "binary", (features,), "float32", ("one_device", ""))
    trained = trees_trainer.train(prepare(case, tmp_path, "one_device", "fit"))
    check_rows_are_alone(case, trained.model, 1e-6)


EXPORTED = {
    "bert": "opinions_model",
    "mlp": "trips_model",
    "cnn": "shades_model",
    "wide_deep": "houses_model",
}
"""Models that other tests want too."""
DATA = {
    "bert": "opinions",
    "cnn": "shades",
    "convnet": "shades",
    "wide_deep": "houses",
    "bag": "reviews",
    "text_cnn": "reviews",
}


@pytest.mark.parametrize("kind", SMALL)
def test_what_is_exported_is_what_was_trained(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    """With gaps everywhere, values never seen, one row alone, and columns in another order."""
    data: Transformed = request.getfixturevalue(DATA.get(kind, "trips"))
    if kind in EXPORTED:
        path = request.getfixturevalue(EXPORTED[kind])
        model = load(path)
    else:
        data, path = using(data, kind, **SIZES.get(kind, {})), str(tmp_path / "exported")
        inputs = given(data, tmp_path, None, epochs=1)
        trained = trees_trainer.train(inputs) if kind == "trees" else train_whole(inputs)
        model = trained.model
        export_model(model, data.tft_output, data.problem, data.settings, path)
    exported = tf.saved_model.load(path)
    served, label = exported.signatures["serving_default"], data.problem.label
    rows = [{k: v for k, v in row.items() if k != label} for row in data.evaluation[:6]]
    images = {k: v for k, v in rows[0].items() if isinstance(v, bytes)}
    never_seen = {str: "Never seen", float: -1e9, int: 7777}
    rows += [images, {k: never_seen.get(type(v), v) for k, v in rows[1].items()}]

    def ask(rows: list[dict[str, Any]]) -> np.ndarray:
        answer = served(tf.constant([to_example(row) for row in rows]))
        return np.asarray(answer["scores" if data.problem.classes else "value"])

    together = ask(rows)
    assert np.isfinite(together).all()
    alone = [ask([dict(reversed(row.items()))])[0] for row in rows]
    np.testing.assert_allclose(alone, together, atol=1e-6)
    features = data.transform([{**row, label: data.evaluation[0][label]} for row in rows])
    names = {feature.name for feature in data.problem.features}
    answered = np.asarray(model({k: v for k, v in features.items() if k in names}))
    expected = together[:, 1:] if data.problem.task == "binary" else together
    np.testing.assert_allclose(answered.reshape(expected.shape), expected, atol=1e-6)
    asked = {f.request: tf.constant(features[f.name]) for f in describe_features(data.problem)}
    numbers = exported.signatures["from_transformed"](**asked)
    assert all(value.dtype == tf.float32 for value in numbers.values())
    found = numbers["scores" if data.problem.classes else "value"]
    np.testing.assert_allclose(found, together, atol=1e-6)
