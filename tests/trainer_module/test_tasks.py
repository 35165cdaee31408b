"""What each task makes of labels and outputs; a new one is a module and one line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
import tensorflow as tf
import tf_keras
from trainer_data import Transformed

from pipeline.config.loading import load_config
from pipeline.config.reference import config_reference
from pipeline.config.settings import PipelineConfig
from pipeline.evaluation import make_eval_config
from trainer_module.errors import ConfigError
from trainer_module.problem import Problem
from trainer_module.tasks import TASKS
from trainer_module.tasks.base import Metric, Task
from trainer_module.tasks.regression import RegressionTask
from trainer_module.trainer import run_fn

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

    def make_activation(self, problem: Problem) -> tf_keras.layers.Layer:
        """From 0 to 1."""
        return tf_keras.layers.Activation("sigmoid")

    def served(self, output: tf.Tensor, problem: Problem) -> dict[str, tf.Tensor]:
        """`share` [batch]."""
        return {"share": tf.reshape(output, [-1])}


@pytest.fixture
def share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TASKS, "share", f"{__name__}.ShareTask")


@pytest.mark.usefixtures("share")
def test_config_takes_a_task_by_name_or_with_options() -> None:
    assert load("task=share", "evaluate={}").target == ShareTask(kind="share")
    config = load("task={kind: share, steep: 2}", "evaluate={}")
    assert config.task is Task.REGRESSION
    carried = config.trainer_settings.to_custom_config()["scopeline"]["task"]
    assert carried == {"kind": "share", "steep": 2}
    with pytest.raises(ConfigError, match=r"task: found 'shre'; .*did you mean `share`\?"):
        load("task=shre")
    with pytest.raises(ConfigError, match=r"task.step: unknown key; did you mean `steep`\?"):
        load("task={kind: share, step: 2}", "evaluate={}")
    with pytest.raises(ConfigError, match="'mse' is no metric for share; known: mae"):
        load("task=share", "evaluate={metrics: [mse]}")
    assert [metric.class_name for metric in make_eval_config(config).metrics_specs[0].metrics] == [
        "ExampleCount",
        "MeanAbsoluteError",
    ]
    assert "| share | `mae` | `mae` |" in config_reference()


@pytest.mark.usefixtures("share")
def test_a_task_is_trained_and_served(houses: Transformed, tmp_path: Path) -> None:
    settings = houses.settings.model_copy(update={"target": ShareTask(kind="share")})
    fn_args = replace(houses, settings=settings).fn_args(tmp_path, train={"epochs": 1})
    run_fn(fn_args)
    serve = tf.saved_model.load(fn_args.serving_model_dir).signatures["serving_raw"]
    served = serve(side=tf.constant([["north"]]), size=tf.constant([[2.0]]))
    assert 0 <= served["share"].numpy()[0] <= 1
