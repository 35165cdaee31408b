"""What each task makes of labels and outputs; a new one is a module and one line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from sklearn import metrics as sk

from pipeline.config.loading import load_config
from pipeline.config.settings import PipelineConfig
from pipeline.graph.evaluation import make_eval_config
from trainer_module.base_model import Axis, Description
from trainer_module.errors import ConfigError
from trainer_module.families.supervised.losses import make_loss
from trainer_module.families.supervised.tasks.classes import OrdinalTask
from trainer_module.families.supervised.tasks.numbers import RegressionTask
from trainer_module.features.raw_columns import dense_strings
from trainer_module.problem import Problem
from trainer_module.settings import LossSettings
from trainer_module.settings.tasks import TASKS, Metric, Task

TAXI = Path(__file__).parents[2] / "configs" / "taxi.yaml"


def load(*overrides: str) -> PipelineConfig:
    return load_config(TAXI, overrides)


class ShareTask(RegressionTask):
    """A number from 0 to 1."""

    kind: Literal["share"]
    steep: float = 1.0
    """How fast the output goes from 0 to 1."""

    def metrics(self) -> Mapping[str, Metric]:
        """One."""
        return {"mae": Metric("MeanAbsoluteError", higher_is_better=False)}

    def usual_metrics(self) -> tuple[str, ...]:
        """The same."""
        return ("mae",)


@pytest.fixture
def share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TASKS, "share", f"{__name__}.ShareTask")


@pytest.mark.usefixtures("share")
def test_config_takes_a_task_by_name_or_with_options() -> None:
    assert load("task=share", "evaluate={}").target == ShareTask(kind="share")
    config = load("task={kind: share, steep: 2}", "evaluate={}")
    assert config.task is Task.REGRESSION
    carried = config.trainer_settings.to_custom_config()["scopeline"]["task"]
    assert carried == {"kind": "share", "steep": 2, "quantiles": []}
    with pytest.raises(ConfigError, match=r"task: found 'shre'; .*did you mean `share`\?"):
        load("task=shre")
    with pytest.raises(ConfigError, match=r"task.step: unknown key; did you mean `steep`\?"):
        load("task={kind: share, step: 2}", "evaluate={}")
    words = r"'mse'.*`mae`"
    with pytest.raises(ConfigError, match=words):
        load("task=share", "evaluate={metrics: [mse]}")
    assert [
        metric.class_name for metric in make_eval_config(config.criteria).metrics_specs[0].metrics
    ] == [
        "ExampleCount",
        "MeanAbsoluteError",
    ]


LEVELS = [0.1, 0.5, 0.9]


def number_problem(task: Any, mean: float = 50.0, deviation: float = 4.0) -> Problem:
    return Problem(task, "y", (), (), label_mean=mean, label_deviation=deviation)


def with_quantiles(levels: list[float] = LEVELS) -> RegressionTask:
    return RegressionTask(kind="regression", quantiles=levels)


def test_quantiles_ascend_in_the_units_of_the_label() -> None:
    problem = number_problem(with_quantiles())
    assert problem.output_units == 4
    output = problem.make_activation()(tf.constant([[0.0] * 4, [1.0, 3.0, 0.0, -3.0]])).numpy()
    deviations = 4 * 1.2816
    np.testing.assert_allclose(output[0], [50, 50 - deviations, 50, 50 + deviations], atol=0.01)
    assert output[1, 0] == 54
    np.testing.assert_allclose(np.sort(output[1, 1:]), output[1, 1:])
    half = problem.make_activation()(tf.constant([[1.0, 2.0, 3.0, 4.0]], tf.float16))
    assert half.dtype == tf.float32
    served = problem.target.served(tf.constant(output), problem)
    np.testing.assert_array_equal(served["value"], output[:, 0])
    np.testing.assert_array_equal(served["quantiles"], output[:, 1:])


def test_the_loss_of_quantiles_is_their_pinball_loss_beside_that_of_the_number() -> None:
    problem = number_problem(with_quantiles())
    random = np.random.default_rng(1)
    truth, output = random.normal(50, 4, (20, 1)), random.normal(50, 4, (20, 4))
    given = tf.constant(truth, tf.float32), tf.constant(output, tf.float32)
    pinball = np.mean(
        [
            sk.mean_pinball_loss(truth[:, 0], output[:, i + 1], alpha=level)
            for i, level in enumerate(LEVELS)
        ]
    )
    for kind, number in [
        ("mse", sk.mean_squared_error(truth, output[:, :1]) / 16),
        ("mae", sk.mean_absolute_error(truth, output[:, :1]) / 4),
    ]:
        loss = make_loss(problem, LossSettings(kind=kind))
        assert float(loss(*given)) == pytest.approx(number + pinball / 4, rel=1e-5)
        again = tf_keras.losses.deserialize(tf_keras.losses.serialize(loss))
        assert float(again(*given)) == pytest.approx(float(loss(*given)))
    huber = make_loss(problem, LossSettings(kind="huber", delta=2))
    alone = tf_keras.losses.Huber(2.0)(given[0], given[1][:, :1])
    assert float(huber(*given)) == pytest.approx(float(alone) / 16 + pinball / 4, rel=1e-5)
    mae, rmse = problem.make_metrics()
    mae.update_state(*given)
    rmse.update_state(*given)
    assert float(mae.result()) == pytest.approx(sk.mean_absolute_error(truth, output[:, 0]))
    assert float(rmse.result()) == pytest.approx(
        sk.mean_squared_error(truth, output[:, 0]) ** 0.5, rel=1e-5
    )


@pytest.mark.slow
def test_learnt_quantiles_cover_their_share() -> None:
    """Of a label whose spread grows with the one number that there is."""
    tf_keras.utils.set_random_seed(1)
    random = np.random.default_rng(1)
    size = random.uniform(0, 1, 4000).astype(np.float32)[:, np.newaxis]
    label = (1000 + 100 * size * random.normal(size=size.shape)).astype(np.float32)
    task = with_quantiles([0.1, 0.9])
    problem = number_problem(task, float(label.mean()), float(label.std()))
    hidden = tf_keras.layers.Dense(16, activation="relu")
    model = tf_keras.Sequential([hidden, problem.make_output_layer()])
    model.compile(tf_keras.optimizers.Adam(0.02), make_loss(problem, None))
    model.fit(size, label, batch_size=200, epochs=12, verbose=0)
    low, high = model.predict(size, verbose=0)[:, 1:].T
    assert np.mean((low <= label[:, 0]) & (label[:, 0] <= high)) == pytest.approx(0.8, abs=0.05)
    wide = size[:, 0] > 0.8
    assert np.mean((high - low)[wide]) > 3 * np.mean((high - low)[size[:, 0] < 0.2])


def test_counts_are_never_negative_and_begin_near_their_mean() -> None:
    problem = number_problem("count", mean=5.0)
    activation = problem.make_activation()
    output = activation(tf.constant([[0.0], [-50.0], [1.0]])).numpy().ravel()
    np.testing.assert_allclose(output, [5, 0, 5 * np.e], rtol=1e-5, atol=1e-12)
    assert np.isfinite(activation(tf.constant([[1e9], [np.inf]]))).all(), "one row far away"
    truth, predicted = [[0.0], [3.0], [7.0]], [[0.5], [2.0], [9.0]]
    loss = float(make_loss(problem, None)(tf.constant(truth), tf.constant(predicted)))
    assert loss == pytest.approx(np.mean(np.array(predicted) - truth * np.log(predicted)), rel=1e-4)
    assert float(make_loss(problem, LossSettings(kind="mse"))([[2.0]], [[4.0]])) == 4


def test_common_quantiles_are_kept_in_a_warm_start() -> None:
    old, new = (
        Description("mlp", "regression", (), with_quantiles(levels).outputs(()), (), {})
        for levels in ([0.05, 0.95], [0.05, 0.5, 0.95])
    )
    keys = new.keys(Axis("classes"), 4), old.keys(Axis("classes"), 3)
    assert keys[1] == ["regression", "quantile 0.05", "quantile 0.95"]
    kept = set(keys[0]) & set(keys[1])
    assert set(keys[0]) - kept == {"quantile 0.5"}


def test_classes_in_order_lie_between_thresholds() -> None:
    task = OrdinalTask(kind="ordinal", order=["low", "mid", "high", "top"])
    problem = Problem(task, "y", task.names, ())
    layer = problem.make_activation()
    output = layer(tf.constant([[-30.0], [-0.5], [0.5], [30.0]])).numpy()
    assert output.shape == (4, 4)
    ranks = output @ np.arange(4)
    assert list(ranks) == sorted(ranks)
    np.testing.assert_allclose(ranks[[0, 3]], [0, 3], atol=1e-5)
    np.testing.assert_allclose(output.sum(1), 1, rtol=1e-6)
    likeliest = layer(tf.range(-9.0, 9.0, 0.5)[:, tf.newaxis]).numpy().argmax(1)
    assert set(likeliest) == {0, 1, 2, 3}, "before anything is learnt"
    again = tf_keras.layers.deserialize(tf_keras.layers.serialize(layer))
    assert again.classes == 4
    loss = make_loss(problem, None)(tf.constant([[0], [3], [2], [3]]), tf.constant(output))
    expected = -np.log(np.clip(output[range(4), [0, 3, 2, 3]], 1e-7, 1))
    assert float(loss) == pytest.approx(expected.mean(), rel=1e-4)


@pytest.mark.parametrize(
    ("order", "labels"),
    [
        ([100_000, 1_000_000, 10_000_000], np.array([100_000, 1_000_000, 10_000_000])),
        (["0.5", "1", "1e-07"], np.array([0.5, 1, 1e-7], np.float32)),
        (["0.3", "1.5", "2"], np.array([b"0.3", b"1.5", b"2"])),
    ],
)
def test_order_accepts_its_own_classes(order: list, labels: np.ndarray) -> None:
    task = OrdinalTask(kind="ordinal", order=order)
    assert task.valid_labels(labels).all()
    texts = dense_strings(tf.constant(labels[:, np.newaxis])).numpy().ravel()
    assert [text.decode() for text in texts] == list(task.names)


@pytest.mark.parametrize(
    ("order", "message"),
    [
        (
            "[no, yes, 2]",
            "the class False",
        ),
        ("[1, '1', 2]", "the class 1"),
    ],
)
def test_order_of_values_that_are_no_classes_is_refused(order: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(f"task={{kind: ordinal, order: {order}}}", "evaluate={}")
    assert f"]; {message}" in str(caught.value)
    assert str(caught.value).count("task.order: found [") == 1
