"""What is used of tensorflow-model-optimization, beside a copy of it and its own wrappers."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_model_optimization as tfmot
import tf_keras

from trainer_module.compat import model_optimization
from trainer_module.compat.insides import Known

LAYERS, SCHEDULES = tf_keras.layers, tfmot.sparsity.keras


def copy_of(name: str) -> ModuleType:
    """A module of TFMOT's pruning that nothing in this process has changed."""
    spec = importlib.util.find_spec(f"{model_optimization._SPARSITY}.{name}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


STOCK_MASKS, STOCK_KERNELS = copy_of("pruning_impl"), copy_of("prune_registry")


@pytest.mark.parametrize(
    ("shape", "block", "is_2by4"),
    [((3, 3, 4, 8), (1, 1), False), ((8, 12), (1, 4), False), ((8, 12), (1, 1), True)],
)
def test_masks_are_those_of_tfmot(
    shape: tuple[int, ...], block: tuple[int, int], is_2by4: bool
) -> None:
    schedule = SCHEDULES.PolynomialDecay(0.0, 0.75, 0, 4, frequency=1)
    make_mask = model_optimization.mask_maker(schedule, block, is_2by4)
    weight = tf.Variable(np.random.default_rng(1).normal(size=shape), dtype=tf.float32)
    mask, threshold = tf.Variable(tf.ones(shape)), tf.Variable(0.0)
    for step in (1, 4):
        pruning = STOCK_MASKS.Pruning(
            lambda step=step: tf.constant(1 if is_2by4 else step),
            [(weight, mask, threshold)],
            schedule,
            block,
            "AVG",
            (2, 4) if is_2by4 else None,
        )
        pruning.conditional_mask_update()
        np.testing.assert_array_equal(make_mask(weight, tf.constant(step)), mask)
    assert float(tf.reduce_mean(mask)) == pytest.approx(0.5 if is_2by4 else 0.25, abs=0.02)


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (LAYERS.Conv2D(3, 2), (None, 4, 4, 2)),
        (LAYERS.Embedding(5, 2), (None, 1)),
        (LAYERS.BatchNormalization(), (None, 4)),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, LAYERS.Layer) else "",
)
def test_kernels_are_those_of_tfmot(layer: Any, shape: tuple[int | None, ...]) -> None:
    layer.build(shape)
    names = model_optimization.kernels_by_layer()[type(layer)]
    found = [getattr(layer, name) for name in names]
    expected = STOCK_KERNELS.PruneRegistry.make_prunable(layer).get_prunable_weights()
    assert [id(weight) for weight in found] == [id(weight) for weight in expected]


def test_cells_have_kernels() -> None:
    names = model_optimization.kernels_by_layer()
    assert names[LAYERS.LSTMCell] == names[LAYERS.GRUCell] == ["kernel", "recurrent_kernel"]


@pytest.mark.slow
def test_wrapped_weights_stay_variables() -> None:
    model = tf_keras.Sequential([LAYERS.Dense(3, input_shape=(4,))])
    kernel = model.weights[0]
    quantised = tfmot.quantization.keras.quantize_model(model)
    (wrapper,) = (layer for layer in quantised.layers if layer.trainable_weights)
    assert model_optimization.is_wrapper(wrapper)
    assert not model_optimization.is_wrapper(wrapper.layer)
    quantised(tf.ones([1, 4]), training=True)
    (weight,) = model_optimization.wrapped_weights(wrapper)
    assert any(weight is variable for variable in quantised.trainable_variables)
    np.testing.assert_array_equal(weight, kernel)
    ((public, _),) = wrapper.quantize_config.get_weights_and_quantizers(wrapper.layer)
    assert not isinstance(public, tf.Variable), "so that the public way is none"


@pytest.mark.parametrize(
    ("known", "use"),
    [
        (model_optimization._MASKS, lambda: model_optimization.mask_maker(None, (1, 1), False)),
        (model_optimization._KERNELS, model_optimization.kernels_by_layer),
        (model_optimization._WRAPPERS, lambda: model_optimization.wrapped_weights(None)),
    ],
    ids=["masks", "kernels", "wrappers"],
)
def test_another_tfmot_is_refused(
    known: Known, use: Callable[[], Any], refuses_others: Callable[[Known, Callable], None]
) -> None:
    refuses_others(known, use)
