"""The weights that are read without their model are those that it is loaded with."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from trainer_module.compat.keras import read_values


@pytest.mark.slow
def test_values_equal_those_of_the_loaded_model(tmp_path: Path) -> None:
    """Without the optimizer's, and by the names that the variables had."""
    layers = [
        tf_keras.layers.Dense(3, name="first", input_shape=(2,)),
        tf_keras.layers.BatchNormalization(name="second"),
    ]
    model = tf_keras.Sequential(layers)
    model.compile("adam", "mse")
    model.train_on_batch(np.ones([4, 2]), np.ones([4, 3]))
    model.save(tmp_path)
    loaded = tf.saved_model.load(str(tmp_path))
    expected = {variable.name.partition(":")[0]: variable.numpy() for variable in loaded.variables}
    found = read_values(str(tmp_path))
    assert found.keys() == {weight.name.partition(":")[0] for weight in model.weights}
    for name, value in found.items():
        np.testing.assert_array_equal(value, expected[name])


def test_checkpoint_without_object_graph_is_refused(tmp_path: Path) -> None:
    (tmp_path / "variables").mkdir()
    tf.raw_ops.SaveV2(
        prefix=str(tmp_path / "variables" / "variables"),
        tensor_names=["kernel"],
        shape_and_slices=[""],
        tensors=[tf.ones(2)],
    )
    with pytest.raises((tf.errors.OpError, ValueError), match="_CHECKPOINTABLE_OBJECT_GRAPH"):
        read_values(str(tmp_path))
