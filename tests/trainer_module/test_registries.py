"""A new model, feature type or strategy is a module and one line in its registry.

Each test registers one that nothing else knows of, and takes it down the road of a real one.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
import tensorflow as tf
import tf_keras

from pipeline.config.loading import load_config
from pipeline.config.sections.model import model_supports_task_and_features
from pipeline.config.settings import PipelineConfig
from tests.support.trainer_data import Transformed
from trainer_module.errors import ConfigError
from trainer_module.families.supervised.tasks.numbers import RegressionTask
from trainer_module.features import FEATURES
from trainer_module.features.base import BaseFeature
from trainer_module.problem import Problem
from trainer_module.runtime import choose_strategy
from trainer_module.settings import ModelSettings, TrainSettings
from trainer_module.settings.model import ZOO, ModelSpec
from trainer_module.strategies import STRATEGIES, build_strategy
from trainer_module.strategies.base import BaseStrategy
from trainer_module.trainer import run_fn

ROOT = Path(__file__).parents[2]
TAXI = ROOT / "configs" / "taxi.yaml"


def load(*overrides: str) -> PipelineConfig:
    return load_config(TAXI, overrides)


def build_linear(problem: Problem, settings: ModelSettings) -> tf_keras.Model:
    """A linear model of the numbers, which reads the key `filters` for whatever reason."""
    inputs = problem.make_inputs()
    numbers = [inputs[feature.name] for feature in problem.of_kind("numeric")]
    hidden = tf_keras.layers.Concatenate()(numbers)
    for filters in settings.filters:
        hidden = tf_keras.layers.Dense(filters, name=f"filters_{filters}")(hidden)
    return tf_keras.Model(inputs, problem.make_output_layer()(hidden), name="linear")


@pytest.fixture
def linear(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = ModelSpec(f"{__name__}.build_linear", needs="numeric", reads=("filters",))
    monkeypatch.setitem(ZOO, "linear", spec)


@pytest.mark.usefixtures("linear")
def test_config_takes_a_model() -> None:
    feature = "features={trip_miles: {type: numeric}}"
    assert load("model.kind=linear", feature).model.kind == "linear"
    with pytest.raises(ConfigError, match=r"found 'liner'; did you mean `linear`\?"):
        load("model.kind=liner")
    with pytest.raises(ConfigError, match="'linear', but no feature is a numeric"):
        load("model.kind=linear", "features={}")


@pytest.mark.slow
@pytest.mark.usefixtures("linear")
def test_a_model_is_built_trained_and_exported(trips: Transformed, tmp_path: Path) -> None:
    model: dict[str, Any] = {"kind": "linear", "filters": [3]}
    fn_args = trips.fn_args(tmp_path, model=model, train={"epochs": 1})
    run_fn(fn_args)
    record = json.loads((tmp_path / "model_run" / "training.json").read_text())
    assert record["model"] == "linear"
    assert record["steps"] > 0
    served = tf_keras.models.load_model(fn_args.serving_model_dir)
    assert served.get_layer("filters_3").units == 3


class BoundedTask(RegressionTask):
    """A number with bounds."""

    bounds: list[float] = []


def test_a_task_with_options_that_trees_do_not_know_is_refused() -> None:
    config = load("model.kind=trees", "train={}")
    task = BoundedTask(kind="regression", bounds=[0.1, 0.9])
    changed = config.model_copy(update={"target": task})
    (issue,) = changed.find_issues([model_supports_task_and_features])
    assert issue.path == "task"
    assert "`model: trees`" in issue.message


class PlacedStrategy(BaseStrategy):
    """On the CPU of a number."""

    kind: Literal["placed"]
    cpu: int = 0
    """Which one."""

    def check(self) -> None:
        """Refuses more CPUs than there are."""
        if self.cpu > 1:
            raise ConfigError(f"there is no CPU {self.cpu}")

    def build(self) -> tf.distribute.Strategy:
        """On that CPU."""
        return tf.distribute.OneDeviceStrategy(f"/cpu:{self.cpu}")


@pytest.fixture
def placed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STRATEGIES, "placed", f"{__name__}.PlacedStrategy")


@pytest.mark.usefixtures("placed")
def test_config_takes_a_strategy_by_name_or_with_options() -> None:
    assert load("train.strategy=placed").train.strategy == PlacedStrategy(kind="placed")
    config = load("train.strategy={kind: placed, cpu: 1}")
    assert config.train.strategy == PlacedStrategy(kind="placed", cpu=1)
    carried = config.trainer_settings.to_custom_config()["scopeline"]["train"]["strategy"]
    assert carried == {"kind": "placed", "cpu": 1}
    with pytest.raises(ConfigError, match=r"found 'plaed'; expected .*did you mean `placed`\?"):
        load("train.strategy=plaed")
    with pytest.raises(ConfigError, match=r"strategy.cpus: unknown key; did you mean `cpu`\?"):
        load("train.strategy={kind: placed, cpus: 1}")
    with pytest.raises(ConfigError, match="placed"):
        load("train.strategy=placed", "train.cluster={workers: 2}")


@pytest.mark.slow
@pytest.mark.usefixtures("placed")
def test_a_strategy_is_checked_built_and_trained_under(trips: Transformed, tmp_path: Path) -> None:
    settings = TrainSettings.model_validate({"strategy": {"kind": "placed", "cpu": 1}})
    strategy = choose_strategy(settings, None).strategy
    strategy.check()
    with pytest.raises(ConfigError, match="there is no CPU 2"):
        PlacedStrategy(kind="placed", cpu=2).check()
    built = build_strategy(strategy)
    assert built.extended.worker_devices[0].endswith("CPU:1")
    assert build_strategy(strategy) is built
    chosen = {"epochs": 1, "strategy": {"kind": "placed", "cpu": 1}}
    run_fn(trips.fn_args(tmp_path, train=chosen))
    record = json.loads((tmp_path / "model_run" / "training.json").read_text())
    assert record["strategy"] == "placed"


class LettersFeature(BaseFeature):
    """Text: how often some letters are in it."""

    type: Literal["letters"]
    may_mix: ClassVar[bool] = True
    letters: str = "ab"
    """Those that are counted."""


@pytest.fixture
def letters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FEATURES, "letters", f"{__name__}.LettersFeature")


@pytest.mark.usefixtures("letters")
def test_config_takes_a_feature_type() -> None:
    config = load("features={company: {type: letters, letters: xyz}}")
    assert config.features["company"] == LettersFeature(type="letters", letters="xyz")
    carried = config.trainer_settings.to_custom_config()["scopeline"]["features"]
    assert carried["company"] == {"type": "letters", "letters": "xyz"}
    with pytest.raises(ConfigError, match=r"expected .*, letters; did you mean `letters`\?"):
        load("features={company: {type: leters}}")
    with pytest.raises(ConfigError, match=r"company.leters: unknown key; did you mean `letters`"):
        load("features={company: {type: letters, leters: xyz}}")


@pytest.mark.slow
def test_no_registered_section_imports_tensorflow() -> None:
    script = """
import sys
from pipeline.config.json_schema import config_schema
from trainer_module.features import FEATURES, feature_class
from trainer_module.strategies import STRATEGIES, strategy_class
from trainer_module.settings.tasks import TASKS, task_class
for name in TASKS: task_class(name)
for name in STRATEGIES: strategy_class(name)
for name in FEATURES: feature_class(name)
config_schema()
print({"tensorflow", "tfx", "apache_beam"} & set(sys.modules))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "set()"
