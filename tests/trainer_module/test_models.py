"""The zoo, and what is refused."""

from __future__ import annotations

import importlib
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from tests.support.trainer_data import Transformed, strategy_settings
from trainer_module.errors import TrainingError
from trainer_module.families.supervised.tasks.classes import OrdinalTask
from trainer_module.families.supervised.tasks.numbers import RegressionTask
from trainer_module.features.transformed import TransformedFeature
from trainer_module.problem import Problem
from trainer_module.settings import ModelSettings, Task, TrainerSettings
from trainer_module.settings.model import load_builder
from trainer_module.settings.tasks import BaseTask, as_task
from trainer_module.strategies import build_strategy
from trainer_module.training.building import build_model

MIXED = (
    TransformedFeature("fare", "numeric", (1,)),
    TransformedFeature("area", "categorical", (1,), vocabulary_size=5),
    TransformedFeature("photo", "image", (12, 10, 3)),
    TransformedFeature("story", "text", (6,), vocabulary_size=9),
)
DEFAULT = tf.distribute.get_strategy()


def make_problem(task: Task = Task.BINARY, features: tuple = MIXED) -> Problem:
    classes = {"binary": ("no", "yes"), "multiclass": ("a", "b", "c"), "regression": ()}[task]
    return Problem(task, "y", classes, features)


def make_batch(problem: Problem, size: int = 4) -> dict[str, np.ndarray]:
    return {f.name: np.ones((size, *f.shape), f.dtype.as_numpy_dtype) for f in problem.features}


ORDERED = OrdinalTask(kind="ordinal", order=["low", "mid", "high"])
QUANTILES = RegressionTask(kind="regression", quantiles=[0.1, 0.5, 0.9])
WIDTHS: list[tuple[BaseTask, tuple[str, ...], int]] = [
    (as_task("binary"), ("no", "yes"), 1),
    (as_task("multiclass"), ("a", "b", "c"), 3),
    (as_task("regression"), (), 1),
    (QUANTILES, (), 4),
    (as_task("count"), (), 1),
    (ORDERED, ORDERED.names, 3),
]
"""How wide the outputs for each task are."""


@pytest.mark.parametrize("kind", ["mlp", "cnn", "wide_deep"])
def test_models_take_every_feature_and_have_the_outputs_of_the_task(kind: str) -> None:
    # What comes before the output knows nothing of the task: one model has all of them.
    for task, classes, width in WIDTHS if kind == "mlp" else WIDTHS[1:5:2]:
        problem = Problem(task, "y", classes, MIXED, label_mean=5.0, label_deviation=2.0)
        model = load_builder(kind)(problem, ModelSettings(kind=kind, filters=[2]))
        output = model(make_batch(problem)).numpy()
        assert output.shape == (4, width)
        if width == 3:
            np.testing.assert_allclose(output.sum(axis=1), 1, rtol=1e-5)
        if task.kind in ("binary", "multiclass", "count", "ordinal"):
            assert output.min() >= 0


@pytest.mark.parametrize("kind", ["tabular", "wide_deep"])
def test_columns_may_have_the_names_of_layers(kind: str) -> None:
    names = ("deep", "numbers", "output", "tabular", "wide")
    features = tuple(TransformedFeature(name, "numeric", (1,)) for name in names)
    problem = make_problem(features=features)
    model = load_builder(kind)(problem, ModelSettings(kind=kind))
    batch = make_batch(problem)
    # An ensemble has the network as a layer beside its own inputs.
    inputs = problem.make_inputs()
    whole = tf_keras.Model(inputs, model(inputs)) if kind == "tabular" else model
    np.testing.assert_array_equal(whole(batch), model(batch))


def test_default_cnn_has_the_layers_of_the_tutorial() -> None:
    image = TransformedFeature("image", "image", (28, 28, 1))
    classes = tuple("0123456789")
    model = load_builder("cnn")(Problem(Task.MULTICLASS, "y", classes, (image,)), ModelSettings())
    # 3*3*1*32+32 in the convolution, 13*13*32*64+64 and 64*10+10 in the dense layers.
    assert model.count_params() == 320 + 346_176 + 650
    names = [type(layer).__name__ for layer in model.layers]
    assert names == ["InputLayer", "Conv2D", "MaxPooling2D", "Flatten", "Dense", "Dense"]


def test_configured_layers_are_those_of_the_cnn() -> None:
    given = [{"conv": 4}, {"conv": 5, "size": 2, "stride": 2, "padding": "same"}]
    given += ["batch_norm", {"pool": 2}, {"dropout": 0.25}]
    settings = ModelSettings(kind="cnn", layers=given, hidden_units=[6, 3])
    assert ModelSettings.model_validate(settings.model_dump(mode="json")) == settings
    image = TransformedFeature("image", "image", (13, 10, 1))
    model = load_builder("cnn")(Problem(Task.MULTICLASS, "y", tuple("0123"), (image,)), settings)
    names = ["Conv2D", "Conv2D", "BatchNormalization", "MaxPooling2D", "Dropout"]
    names = ["InputLayer", *names, "Flatten", "Dense", "Dense", "Dense"]
    assert [type(layer).__name__ for layer in model.layers] == names
    # 13x10 pixels, 11x8 after the first layer, 6x4 after the second, 3x2 after the pooling: as
    # `output_side` counts them, by which what leaves nothing is refused.
    assert model.get_layer(index=5).output_shape == (None, 3, 2, 5)
    for layer, built in zip(settings.layers or [], model.layers[1:], strict=False):
        before, after = built.input_shape[1:3], built.output_shape[1:3]
        assert tuple(map(layer.output_side, before)) == after
    wide = ModelSettings(kind="cnn", layers=["batch_norm", {"pool": 20}])
    with pytest.raises(TrainingError, match=r"'photo': layer 2, {pool: 20}, gets 12x10 pixels and"):
        load_builder("cnn")(make_problem(), wide)


def test_wide_part_is_linear_in_the_one_hot_category() -> None:
    problem = make_problem(Task.REGRESSION, (MIXED[1],))
    model = load_builder("wide_deep")(problem, ModelSettings(kind="wide_deep"))
    area = np.array([[3]])
    before = model({"area": area}).numpy()
    weights = model.get_layer("area_wide").embeddings
    weights.assign(tf.one_hot([0, 1, 2, 3, 4], 5) @ [[0.0], [0.0], [0.0], [7.0], [0.0]])
    np.testing.assert_allclose(model({"area": area}).numpy() - before, 7, rtol=1e-5)


def test_cnn_needs_an_image() -> None:
    message = r"'cnn' needs an image feature"
    with pytest.raises(TrainingError, match=message):
        load_builder("cnn")(make_problem(features=MIXED[:2]), ModelSettings(kind="cnn"))


@pytest.mark.parametrize(
    ("kind", "message"),
    [("cn", "'cn'.*'cnn'"), ("os.path.build", "module 'os.path' has no function 'build'")],
)
def test_missing_builder_is_named(kind: str, message: str) -> None:
    with pytest.raises(TrainingError, match=message):
        load_builder(kind)


@pytest.fixture
def own_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_models.py").write_text(
        "import tf_keras\n"
        "def build_text(problem, settings):\n"
        "    return 'not a model'\n"
        "def build_compiled(problem, settings):\n"
        "    inputs = problem.make_inputs()\n"
        "    hidden = tf_keras.layers.Dense(settings.options['units'])(inputs['fare'])\n"
        "    model = tf_keras.Model(inputs, problem.make_output_layer()(hidden))\n"
        "    model.compile(tf_keras.optimizers.SGD(0.5), 'mse')\n"
        "    return model\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "own_models", raising=False)


@pytest.mark.usefixtures("own_models")
def test_builder_that_returns_no_model_is_refused() -> None:
    settings = TrainerSettings(
        label="y", task=Task.BINARY, model=ModelSettings(kind="own_models.build_text")
    )
    with pytest.raises(TrainingError, match=r"must return a tf_keras.Model, but it returned .*str"):
        build_model(make_problem(), settings, DEFAULT, steps_per_epoch=5)


@pytest.mark.usefixtures("own_models")
def test_builder_may_compile_its_model() -> None:
    own = ModelSettings(kind="own_models.build_compiled", options={"units": 3})
    model = build_model(
        make_problem(features=MIXED[:1]),
        TrainerSettings(label="y", task=Task.BINARY, model=own),
        DEFAULT,
        steps_per_epoch=5,
    )
    assert isinstance(model.optimizer, tf_keras.optimizers.SGD)
    assert model.loss == "mse"
    assert model.layers[1].units == 3


def test_problem_is_read_from_transform(trips: Transformed) -> None:
    problem = trips.problem
    kinds = {feature.name: feature.kind for feature in problem.features}
    assert kinds == {
        "area": "categorical",
        "company": "categorical",
        "constant": "numeric",
        "fare": "numeric",
        "miles": "numeric",
        "miles_missing": "numeric",
    }
    sizes = {f.name: f.vocabulary_size for f in problem.of_kind("categorical")}
    assert sizes == {"area": 3 + 1, "company": 3 + 1}, "out-of-vocabulary buckets included"


@pytest.mark.slow
def test_task_that_does_not_fit_the_classes_is_refused(shades: Transformed) -> None:
    message = "binary needs 2 classes.*'shade' has 3"
    with pytest.raises(TrainingError, match=message):
        Problem.from_transform(shades.tft_output, Task.BINARY, "shade")


def test_variables_created_outside_the_scope_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = """
        import tf_keras

        MODEL = tf_keras.Sequential([tf_keras.layers.Dense(1, name="early", input_shape=(1,))])

        def build_model(problem, settings):
            return MODEL
    """
    (tmp_path / "early_model.py").write_text(textwrap.dedent(source))
    monkeypatch.syspath_prepend(tmp_path)
    settings = TrainerSettings(
        label="y", task="binary", model=ModelSettings(kind="early_model.build_model")
    )
    message = r"'early_model\.build_model': .*'early/kernel:0'"
    strategy = build_strategy(strategy_settings("mirrored"))
    importlib.import_module("early_model")
    with pytest.raises(TrainingError, match=message):
        build_model(make_problem(), settings, strategy, steps_per_epoch=5)


def own_output(layer: str, own_compile: bool = False) -> str:
    """A builder of a user's whose model ends in a layer."""
    compiled = "    model.compile('adam', 'mse')\n" if own_compile else ""
    return (
        "import tf_keras\n"
        "def build_model(problem, settings):\n"
        "    inputs = problem.make_inputs()\n"
        "    hidden = tf_keras.layers.Concatenate()(list(inputs.values())*2)\n"
        f"    model = tf_keras.Model(inputs, {layer})\n{compiled}"
        "    return model\n"
    )


INTERVALS = {"kind": "regression", "quantiles": [0.05, 0.95]}
DENSE = "tf_keras.layers.Dense({})(hidden)"


@pytest.mark.parametrize(
    ("task", "layer", "found", "right"),
    [
        (
            INTERVALS,
            DENSE.format(1),
            "[batch, 1]",
            "[batch, 3]",
        ),
        (
            "multiclass",
            DENSE.format("1, 'sigmoid'"),
            "[batch, 1]",
            "[batch, 3]",
        ),
        (
            "multiclass",
            DENSE.format(3),
            "[batch, 3] of unrestricted numbers",
            "[batch, 3]",
        ),
    ],
)
def test_own_model_with_an_unusable_output_is_refused(
    task: Any, layer: str, found: str, right: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(TrainingError) as caught:
        build_own(own_output(layer), task, tmp_path, monkeypatch)
    message = str(caught.value)
    assert message.startswith(f"model '{tmp_path.name}_own.build_model': its output is {found}")
    assert f"needs {right}" in message
    assert "problem.make_output_layer()" in message


def build_own(source: str, task: Any, folder: Path, patch: pytest.MonkeyPatch) -> tf_keras.Model:
    """The compiled model of a builder."""
    (folder / f"{folder.name}_own.py").write_text(source)
    patch.syspath_prepend(folder)
    settings = TrainerSettings(
        label="y", task=task, model=ModelSettings(kind=f"{folder.name}_own.build_model")
    )
    is_class = settings.task.is_classification
    classes = ("a", "b", "c")[: 2 if task == "binary" else 3] if is_class else ()
    features = (TransformedFeature("x", "numeric", (1,)),)
    problem = Problem(settings.label_task, "y", classes, features)
    return build_model(problem, settings, tf.distribute.get_strategy(), steps_per_epoch=5)
