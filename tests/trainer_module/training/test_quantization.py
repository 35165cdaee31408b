"""Quantisation-aware training: which layers, under which strategies, and what is exported."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
import tf_keras

from tests.support.trainer_data import Transformed, read_record
from tests.support.warm_data import prepare, using
from trainer_module.errors import TrainingError
from trainer_module.problem import Problem
from trainer_module.settings import ModelSettings
from trainer_module.settings.optimize import WhileTraining
from trainer_module.trainer import run_fn
from trainer_module.training.building import make_network

QAT = WhileTraining(quantize="qat")


def quantized(data: Transformed, kind: str, **model: Any) -> tf_keras.Model:
    """The network as it is trained, but for its compilation."""
    settings = using(data, kind, **model).settings.model_copy(update={"optimize": QAT})
    return make_network(data.problem, settings)


def fake_quantizations(path: str) -> int:
    """How many there are in the graph that serves."""
    function = tf.saved_model.load(path).signatures["serving_default"]
    names = {node.op for node in function.graph.as_graph_def().node}
    library = function.graph.as_graph_def().library.function
    names |= {node.op for part in library for node in part.node_def}
    return sum(name.startswith("FakeQuantWithMinMaxVars") for name in names)


@pytest.mark.slow
def test_quantised_and_pruned_network_learns_and_is_exported(
    shades: Transformed, tmp_path: Path
) -> None:
    train = {"epochs": 5, "loop": "custom", "batch_size": 16}
    fn_args = shades.fn_args(tmp_path, train=train, optimize={"quantize": "qat", "prune": {}})
    run_fn(fn_args)
    record = read_record(fn_args.serving_model_dir)
    history = record["history"]
    assert history["loss"][-1] < history["loss"][0]
    assert max(history["val_accuracy"]) > 0.6
    assert not [note for note in record["notes"] if "optimize" in note]
    assert fake_quantizations(fn_args.serving_model_dir) == 2, "of weights, and of outputs"
    loaded = tf_keras.models.load_model(fn_args.serving_model_dir, compile=False)
    assert loaded({"image": tf.zeros([2, 12, 10, 1])}).shape == (2, 3), "without TFMOT's classes"
    assert record["sparsity"]["overall"] == pytest.approx(0.5, abs=0.01)


@pytest.mark.slow
def test_layers_that_stay_in_floats_are_named(trips: Transformed, tmp_path: Path) -> None:
    data = replace(trips, settings=trips.settings.model_copy(update={"optimize": QAT}))
    (note,) = prepare(data, tmp_path, None).notes
    assert note.startswith("optimize.quantize")
    assert all(name in note for name in ("area_embedding", "company_embedding"))


class Own(tf_keras.Model):
    """A model whose layers only its code knows."""

    def __init__(self) -> None:
        super().__init__(name="own")
        self.dense = tf_keras.layers.Dense(1)

    def call(self, inputs: dict[str, tf.Tensor]) -> tf.Tensor:
        return self.dense(inputs["fare"])


def build_own(problem: Problem, settings: ModelSettings) -> tf_keras.Model:
    """A subclass."""
    return Own()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (
            "tabular",
            "none of the model's layers",
        ),
        (f"{__name__}.build_own", "model 'own'"),
    ],
)
def test_models_that_cannot_be_quantised_are_refused(
    trips: Transformed, kind: str, message: str
) -> None:
    with pytest.raises(TrainingError, match=re.escape(f"optimize.quantize: {message}")):
        quantized(trips, kind)
