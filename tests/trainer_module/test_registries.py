"""A new model, feature type or strategy is a module and one line in its registry.

Each test registers one that nothing else knows of, and takes it down the road of a real one.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tf_keras
from trainer_data import Transformed

from pipeline.config.loading import load_config
from pipeline.config.reference import config_reference, config_schema
from pipeline.config.settings import PipelineConfig
from trainer_module.errors import ConfigError
from trainer_module.models import ZOO, ModelSpec
from trainer_module.problem import Problem
from trainer_module.settings import ModelSettings
from trainer_module.trainer import run_fn

TAXI = Path(__file__).parents[2] / "configs" / "taxi.yaml"


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
    words = "found 'linear', but no feature is a numeric; mlp and wide_deep need none"
    with pytest.raises(ConfigError, match=words):
        load("model.kind=linear", "features={}")


@pytest.mark.usefixtures("linear")
def test_the_reference_names_a_model_and_what_it_reads() -> None:
    keys = json.loads(config_schema())["$defs"]["ModelSettings"]["properties"]
    assert keys["kind"]["description"].startswith("`cnn`, `mlp`, `wide_deep`, `linear`, or the")
    assert "| cnn, linear: filters of each" in config_reference()


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


def test_a_model_that_is_not_registered_is_refused() -> None:
    with pytest.raises(ConfigError, match="found 'linear'; known: cnn, mlp, wide_deep"):
        load("model.kind=linear")
