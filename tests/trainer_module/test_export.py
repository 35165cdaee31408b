"""Models of a user's own that are hard to export: exported, or refused before training."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from tensorflow.core.protobuf import saved_model_pb2

from tests.support import SUPPORT
from tests.support.trainer_data import Transformed, run_script, to_example
from trainer_module.errors import TrainingError
from trainer_module.problem import Problem
from trainer_module.settings import ModelSettings
from trainer_module.trainer import run_fn

pytestmark = pytest.mark.slow


class Augmented(tf_keras.Model):
    """Turns pictures over while it trains; its weights are made when it is called."""

    def __init__(self, problem: Problem) -> None:
        super().__init__()
        self.flip = tf_keras.layers.RandomFlip("horizontal")
        self.average = tf_keras.layers.GlobalAveragePooling2D()
        self.answer = problem.make_output_layer()

    def call(self, inputs: dict[str, tf.Tensor]) -> tf.Tensor:
        return self.answer(self.average(self.flip(inputs["image"])))


def build_augmented(problem: Problem, settings: ModelSettings) -> tf_keras.Model:
    return Augmented(problem)


def build_with_loose_table(problem: Problem, settings: ModelSettings) -> tf_keras.Model:
    """A table that no layer holds cannot be saved with the model."""
    pairs = tf.lookup.KeyValueTensorInitializer(tf.constant([0, 1]), tf.constant([0.0, 1.0]))
    table = tf.lookup.StaticHashTable(pairs, 0.0)
    inputs = problem.make_inputs()
    pixel = tf.cast(inputs["image"][:, 0, 0, :1], tf.int32)
    looked_up = tf_keras.layers.Lambda(lambda keys: table.lookup(keys))(pixel)
    return tf_keras.Model(inputs, problem.make_output_layer()(looked_up))


def using(data: Transformed, builder: str) -> Transformed:
    model = ModelSettings(kind=f"{__name__}.{builder}")
    return replace(data, settings=data.settings.model_copy(update={"model": model}))


def test_model_trained_on_replicas_serves_without_its_augmentation(
    shades: Transformed, tmp_path: Path
) -> None:
    options = {"strategy": "mirrored", "epochs": 1}
    fn_args = using(shades, "build_augmented").fn_args(tmp_path, train=options)
    run_fn(fn_args)
    model = tf.saved_model.load(fn_args.serving_model_dir)
    examples = tf.constant([to_example(row) for row in shades.evaluation])
    first, second = (model.signatures["eval"](examples)["predictions"] for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_an_exported_model_has_its_network_once(shades_model: str) -> None:
    """All signatures call one function."""
    saved = saved_model_pb2.SavedModel.FromString(Path(shades_model, "saved_model.pb").read_bytes())
    graph = saved.meta_graphs[0].graph_def
    functions = [function.node_def for function in graph.library.function]
    operations = [node.op for nodes in [graph.node, *functions] for node in nodes]
    assert operations.count("Conv2D") == 1


def test_model_that_cannot_be_exported_is_not_trained(shades: Transformed, tmp_path: Path) -> None:
    fn_args = using(shades, "build_with_loose_table").fn_args(tmp_path)
    with pytest.raises(TrainingError, match=r"cannot be exported"):
        run_fn(fn_args)
    assert not (tmp_path / "model_run" / "checkpoints").exists()


def test_export_check_writes_nothing_on_the_host_of_the_variables(trips: Transformed) -> None:
    """As that of a remote TPU, which has not got this machine's temporary folder."""
    script = SUPPORT / "export_from_afar.py"
    run_script(script, str(trips.root), trips.settings.model_dump_json(), timeout=60)
