"""The internals of tensorflow-model-optimization 0.8.1 that pruning and quantization use.

Importing tensorflow-model-optimization (TFMOT) takes seconds, so this module is imported only to
prune or quantise weights.
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
        # These two are tables, so only their existence can be checked.
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
    """Returns a function that computes pruning masks as TFMOT's layers do.

    Calls `Pruning._maybe_update_block_mask`. The public `prune_low_magnitude` would wrap each layer
    of a clone of the model: see `training/compression.py`. Raises an error if TFMOT has changed,
    because other weights would become zero.

    Args:
      schedule: the function from the step to the sparsity.
      block: the height and width of blocks that become zero together.
      is_2by4: whether two of every four neighbours become zero, independent of the schedule.

    Returns:
      A function from a weight and the number of finished steps to the mask, which is 1 for each
      element to keep and 0 for each element to remove.

    Raises:
      InternalError: this version of TFMOT computes masks differently.
    """
    require_known(_MASKS, _PURPOSE)

    def make_mask(weight: tf.Tensor, step: tf.Tensor) -> tf.Tensor:
        pruning = Pruning(lambda: step, [], schedule, block, "AVG", (2, 4) if is_2by4 else None)
        return pruning._maybe_update_block_mask(weight)[1]

    return make_mask


def kernels_by_layer() -> Mapping[type, Sequence[str]]:
    """Returns the attributes of Keras's layers that are kernels, by the layer's class.

    Reads the two tables of `PruneRegistry`. The public `prune_low_magnitude` looks up a layer's
    exact class, not its base classes. Raises an error if the tables are missing.

    Raises:
      InternalError: this version of TFMOT stores the tables differently.
    """
    require_known(_KERNELS, _PURPOSE)
    return {**PruneRegistry._RNN_CELLS_WEIGHTS_MAP, **PruneRegistry._LAYERS_WEIGHTS_MAP}


def is_wrapper(layer: tf_keras.layers.Layer) -> bool:
    """Returns whether a layer is TFMOT's wrapper for quantization-aware training."""
    return isinstance(layer, tfmot.quantization.keras.QuantizeWrapper)


def wrapped_weights(wrapper: tfmot.quantization.keras.QuantizeWrapper) -> list[tf.Variable]:
    """Returns the weights that a wrapper quantises, as float variables.

    Reads `QuantizeWrapper._weight_vars`. The public `quantize_config` returns the quantised tensors
    instead of variables after the first call of the wrapper. Raises an error if TFMOT has changed.

    Raises:
      InternalError: this version of TFMOT stores the weights differently.
    """
    require_known(_WRAPPERS, _PURPOSE)
    return [weight for weight, *_ in wrapper._weight_vars]
