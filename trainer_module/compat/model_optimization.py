"""The insides of tensorflow-model-optimization 0.8.1 that pruning uses.

Its import takes seconds: import this module where weights are pruned, and not before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf
import tensorflow_model_optimization as tfmot
import tf_keras
from tensorflow_model_optimization.python.core.sparsity.keras.prune_registry import PruneRegistry
from tensorflow_model_optimization.python.core.sparsity.keras.pruning_impl import Pruning

from trainer_module.compat.insides import Known, require_known

_SPARSITY = "tensorflow_model_optimization.python.core.sparsity.keras"
_QUANTIZATION = "tensorflow_model_optimization.python.core.quantization.keras"
_PURPOSE = "optimize.prune"

_MASKS: Known = {
    f"{_SPARSITY}.pruning_impl": {
        "Pruning.__init__": "2294701694c6",
        "Pruning._update_mask": "f4b58cbd1b91",
        "Pruning._update_mask_sparsity_m_by_n": "f2e931da956d",
        "Pruning._maybe_update_block_mask": "00f4745cd352",
    }
}
_KERNELS: Known = {
    f"{_SPARSITY}.prune_registry": {
        "PruneRegistry.supports": "a96a3d90b2df",
        "PruneRegistry.make_prunable": "a81dd4094cba",
        # Not functions: that they are there is all that can be told.
        "PruneRegistry._LAYERS_WEIGHTS_MAP": "",
        "PruneRegistry._RNN_CELLS_WEIGHTS_MAP": "",
    }
}
_WRAPPERS: Known = {
    f"{_QUANTIZATION}.quantize_wrapper": {
        "QuantizeWrapper.build": "ec7cebfbcb27",
        "QuantizeWrapper.call": "6bfff9ff54ed",
    }
}


def mask_maker(
    schedule: tfmot.sparsity.keras.PruningSchedule, block: tuple[int, int], is_2by4: bool
) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
    """Returns the function that makes a mask, as TFMOT's layers make theirs.

    Calls `Pruning._maybe_update_block_mask`. The public way, `prune_low_magnitude`, would put a
    layer around each layer of a clone of the model: see `training/compression.py`. Refuses where
    TFMOT is another one, as other weights would become zero.

    Args:
      schedule: the sparsity by the step.
      block: height and width of what becomes zero together.
      is_2by4: whether two of every four neighbours become zero, whatever the schedule says.

    Returns:
      A function from a weight and the steps that are done to 1 where it stays and 0 where it goes.

    Raises:
      InternalError: TFMOT makes masks in another way.
    """
    require_known(_MASKS, _PURPOSE)

    def make_mask(weight: tf.Tensor, step: tf.Tensor) -> tf.Tensor:
        pruning = Pruning(lambda: step, [], schedule, block, "AVG", (2, 4) if is_2by4 else None)
        return pruning._maybe_update_block_mask(weight)[1]

    return make_mask


def kernels_by_layer() -> Mapping[type, Sequence[str]]:
    """Returns the attributes of Keras's layers that are kernels, by the layer's class.

    Reads the two tables of `PruneRegistry`. The public way, `prune_low_magnitude`, looks them up
    for a layer's very class, not for what is derived from it. Refuses where they are not there.

    Raises:
      InternalError: TFMOT keeps them in another way.
    """
    require_known(_KERNELS, _PURPOSE)
    return {**PruneRegistry._RNN_CELLS_WEIGHTS_MAP, **PruneRegistry._LAYERS_WEIGHTS_MAP}


def is_wrapper(layer: tf_keras.layers.Layer) -> bool:
    """Returns whether a layer is TFMOT's around one that is trained for 8 bits."""
    return isinstance(layer, tfmot.quantization.keras.QuantizeWrapper)


def wrapped_weights(wrapper: tfmot.quantization.keras.QuantizeWrapper) -> list[tf.Variable]:
    """Returns the weights that a wrapper quantises: the variables, in floats.

    Reads `QuantizeWrapper._weight_vars`. By the public `quantize_config` they are no variables any
    more once the wrapper was called, but what it has made of them. Refuses where TFMOT is another
    one.

    Raises:
      InternalError: TFMOT keeps them in another way.
    """
    require_known(_WRAPPERS, _PURPOSE)
    return [weight for weight, *_ in wrapper._weight_vars]
