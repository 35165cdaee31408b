"""Training that compresses a network: pruning, and quantisation-aware training for 8 bits.

Both use tensorflow-model-optimization (TFMOT). For pruning, the optimizer applies TFMOT's schedules
and TFMOT's selection of weights. TFMOT's own wrappers, `prune_low_magnitude`, are not suitable:

- They support only Keras's own layers.
- They rename layers, whose names warm start, layer-wise rates and fine-tuning use.
- They need a callback before each step, but a call of the graph runs several steps.
- They mask weights only before a step, so a checkpoint would differ from the final model.

Quantisation-aware training clones the model and wraps the layers that TFMOT supports. The layers
keep their names.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import tensorflow as tf
import tf_keras

from trainer_module.compat.keras import (
    AfterUpdates,
    is_graph_network,
    layers_within,
    own_weights,
)
from trainer_module.errors import TrainingError, enumerate_names
from trainer_module.settings.optimize import BlockStructure, PruneSettings

if TYPE_CHECKING:  # The import takes seconds, and training without pruning does not need it.
    import tensorflow_model_optimization as tfmot

MAX_STEPS_BETWEEN_UPDATES = 100
"""The maximum number of steps between two updates of the masks, as in TFMOT.

Each update sorts weights.
"""
MIN_UPDATES = 20
"""The minimum number of updates of the masks, unless training has fewer steps."""

MATRIX = 2
RANKS_OF_2BY4 = (MATRIX, 4)
"""The ranks of weights for which TFMOT supports 2-by-4 sparsity: dense layers and convolutions."""

OWN_METHOD = "get_prunable_weights"
"""The method of custom layers that returns the list of variables to prune, as in TFMOT."""

COMPOSITE_LAYERS = (tf_keras.layers.MultiHeadAttention, tf_keras.layers.RNN)
"""Layers whose weights belong to their sublayers."""

ADDITIONAL_KERNELS: Mapping[type, Sequence[str]] = {tf_keras.layers.EinsumDense: ["kernel"]}
"""The kernels of layers that TFMOT supports only as parts of other layers."""

SMALL_SIZE = 1000
"""The size below which kernels are not pruned if they are also a small part of the network.

Pruning small kernels saves little memory, and harms the first and the last layer most.
"""

SMALL_SHARE = 0.01
"""The share of all prunable weights below which a kernel is a small part of the network."""

MAX_NAMES = 5
"""The maximum number of weights that a note names; the note counts the others."""


@dataclass(frozen=True)
class PruningSteps:
    """The numbers of completed steps at which the masks are updated; there is no update at step 0.

    Before the first step all weights are random, so their magnitudes have no meaning.
    """

    begin: int
    end: int
    """The step at which the final sparsity is reached."""
    every: int
    """The number of steps between two updates; there is an update at the step `end`."""

    def first_pruned_epoch(self, steps_per_epoch: int) -> int:
        """Returns the first epoch, counted from 0, at whose end the final sparsity is reached."""
        return (self.end - 1) // steps_per_epoch


@dataclass(frozen=True, eq=False)
class PrunableWeight:
    """A weight with the name of its layer."""

    layer: str
    """The names of the outer layers and of the layer: `attention/query`."""
    variable: tf.Variable

    @property
    def name(self) -> str:
        """The name of the weight in messages: `dense/kernel`."""
        return f"{self.layer}/{_path(self.variable)[1]}"

    @property
    def size(self) -> int:
        """The number of values in the weight."""
        return math.prod(self.variable.shape)


@dataclass(frozen=True)
class PruningPlan:
    """The weights to prune, with the schedule and the target sparsity."""

    weights: Sequence[PrunableWeight]
    steps: PruningSteps
    schedule: tfmot.sparsity.keras.PruningSchedule
    make_mask: Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
    """A function of a weight and the number of completed steps that returns the mask of the weight.

    The mask is 1 for kept values and 0 for pruned values.
    """
    notes: Sequence[str]
    """Notes for the summary of the run."""

    def is_due(self, step: tf.Tensor) -> tf.Tensor:
        """Returns whether the masks are updated after a number of completed steps."""
        return self.schedule(step)[0]

    @property
    def sparsity(self) -> dict[str, Any]:
        """The share of zeros in the pruned weights, with 4 digits: `overall`, and `layers` by
        name.
        """
        zeros: Counter[str] = Counter()
        sizes: Counter[str] = Counter()
        for weight in self.weights:
            values = weight.variable.numpy()
            zeros[weight.layer] += int((values == 0).sum())
            sizes[weight.layer] += values.size
        layers = {layer: round(zeros[layer] / size, 4) for layer, size in sizes.items()}
        return {"overall": round(zeros.total() / sizes.total(), 4), "layers": layers}


def plan_pruning(model: tf_keras.Model, prune: PruneSettings, steps: int) -> PruningPlan:
    """Returns the plan for pruning a model.

    Args:
      model: a built model.
      prune: the sparsity, schedule and structure.
      steps: the planned number of training steps.

    Raises:
      TrainingError: no weight can be pruned with this structure, or a layer's prunable weights are
        unknown.
    """
    from trainer_module.compat.model_optimization import mask_maker

    pruning_steps = plan_steps(prune, steps)
    schedule = _schedule(prune, pruning_steps)
    found, small = find_weights(model)
    supported = [weight for weight in found if _supports_structure(weight, prune)]
    unpruned = [weight.name for weight in found if weight not in supported]
    if not supported:
        raise TrainingError(_no_weights_message(prune, unpruned))
    block = prune.structure.block if isinstance(prune.structure, BlockStructure) else (1, 1)
    notes = [f"optimize.prune: {_structure_reason(prune, unpruned)}"] if unpruned else []
    notes += [*_describe_small(small), *_describe_late_keys(prune, steps)]
    make_mask = mask_maker(schedule, block, prune.is_2by4)
    return PruningPlan(supported, pruning_steps, schedule, make_mask, notes)


def _schedule(prune: PruneSettings, steps: PruningSteps) -> tfmot.sparsity.keras.PruningSchedule:
    import tensorflow_model_optimization as tfmot

    schedules = tfmot.sparsity.keras
    if prune.is_constant:
        return schedules.ConstantSparsity(prune.sparsity, steps.begin, frequency=steps.every)
    return schedules.PolynomialDecay(
        0.0, prune.sparsity, steps.begin, steps.end, frequency=steps.every
    )


def _supports_structure(weight: PrunableWeight, prune: PruneSettings) -> bool:
    """Returns whether TFMOT supports the structure for a weight."""
    shape = weight.variable.shape
    if isinstance(prune.structure, BlockStructure):
        if shape.rank != MATRIX:
            return False
        # TFMOT drops a dimension that has a single block.
        return all(size > block for size, block in zip(shape, prune.structure.block, strict=True))
    return not prune.is_2by4 or shape.rank in RANKS_OF_2BY4


def _no_weights_message(prune: PruneSettings, unpruned: Sequence[str]) -> str:
    if not unpruned:
        return (
            "optimize.prune: the model has no weights that can be pruned, such as the kernel of a "
            "dense layer; remove optimize.prune."
        )
    return (
        f"optimize.prune.structure: {_structure_reason(prune, unpruned)}, and the model has no "
        "other weights; remove the structure."
    )


def _structure_reason(prune: PruneSettings, unpruned: Sequence[str]) -> str:
    if prune.is_2by4:
        reason = "2by4 supports the weights of dense layers and of convolutions of pictures"
    else:
        reason = "blocks support weights of two dimensions with several blocks in each dimension"
    return f"{reason}: {_describe_unpruned(unpruned)}"


def _describe_unpruned(names: Sequence[str]) -> str:
    """Returns a clause such as `dense/kernel and output/kernel are not pruned`.

    The clause has at most `MAX_NAMES` names.
    """
    named, others = names[:MAX_NAMES], len(names) - MAX_NAMES
    if others > 0:
        named = [*named, f"{others} more"]
    return f"{enumerate_names(named, 'and')} {'are' if len(names) > 1 else 'is'} not pruned"


def _describe_small(small: Sequence[PrunableWeight]) -> list[str]:
    """Returns a note on the kernels that are too small to be pruned."""
    if not small:
        return []
    names = [f"{weight.name} ({weight.size:,})" for weight in small]
    return [
        f"optimize.prune: {_describe_unpruned(names)}: kernels with fewer than {SMALL_SIZE:,} "
        f"numbers and less than {SMALL_SHARE:.0%} of the network keep all numbers"
    ]


def _describe_late_keys(prune: PruneSettings, steps: int) -> list[str]:
    """Returns notes on the keys whose step is later than the last step of training."""
    keys = ("begin",) if prune.is_constant else ("begin", "end")
    return [
        f"optimize.prune.{key}: found {getattr(prune, key):,.0f} steps, but training has only "
        f"{steps:,} steps, so pruning ends with the last step; write {key} as a share of the "
        "steps, or train for more epochs"
        for key in keys
        if getattr(prune, key) > max(1, steps - (key == "begin"))
    ]


def plan_steps(prune: PruneSettings, steps: int) -> PruningSteps:
    """Returns the steps at which training updates the masks.

    Args:
      prune: the schedule, in shares of training or in steps.
      steps: the planned number of steps. Training may end earlier, but not before `end`.
    """
    begin = min(_to_steps(prune.begin, steps), steps - 1)
    end = min(_to_steps(prune.end, steps), steps)
    last = steps if prune.is_constant else max(begin + 1, end)
    every = max(1, min(MAX_STEPS_BETWEEN_UPDATES, (last - begin) // MIN_UPDATES))
    if prune.is_constant:
        return PruningSteps(begin, begin or every, every)
    return PruningSteps(last - every * ((last - begin) // every), last, every)


def _to_steps(amount: float, steps: int) -> int:
    return round(amount * steps if amount <= 1 else amount)


def find_weights(
    model: tf_keras.Model,
) -> tuple[list[PrunableWeight], list[PrunableWeight]]:
    """Returns the prunable kernels of all layers of a network, without biases.

    Args:
      model: a built model.

    Returns:
      The kernels to prune, and the kernels that are too small.

    Raises:
      TrainingError: the prunable weights of a custom layer are unknown.
    """
    from trainer_module.compat import model_optimization

    kernels = {**model_optimization.kernels_by_layer(), **ADDITIONAL_KERNELS}
    layers = layers_within(model)
    wrappers = [layer for layer in layers if model_optimization.is_wrapper(layer)]
    weights = {id(wrapper): model_optimization.wrapped_weights(wrapper) for wrapper in wrappers}
    # A wrapped layer computes with a transformed weight of its wrapper.
    weights |= {id(wrapper.layer): [] for wrapper in wrappers}
    found: dict[int, PrunableWeight] = {}
    for layer in layers:
        for variable in weights.get(id(layer), _weights_of(layer, kernels)):
            name = _path(variable)[0] or layer.name
            found.setdefault(id(variable), PrunableWeight(name, variable))
    supported = [weight for weight in found.values() if weight.variable.trainable]
    total = sum(weight.size for weight in supported)
    smallest = min(SMALL_SIZE, SMALL_SHARE * total)
    small = [weight for weight in supported if weight.size < smallest]
    return [weight for weight in supported if weight.size >= smallest], small


def _path(variable: tf.Variable) -> tuple[str, str]:
    """Returns the path of a variable's name before its last part, and the last part."""
    begin, _, last = variable.name.partition(":")[0].rpartition("/")
    return begin, last


def _weights_of(
    layer: tf_keras.layers.Layer, kernels: Mapping[type, Sequence[str]]
) -> Iterator[tf.Variable]:
    """Yields the kernels of a layer, without the kernels of its sublayers."""
    if hasattr(layer, OWN_METHOD):
        yield from layer.get_prunable_weights()
        return
    if isinstance(layer, (*COMPOSITE_LAYERS, tf_keras.Model)):
        return
    # The method resolution order has the layer's class first, then its base classes.
    names = next((kernels[base] for base in type(layer).__mro__ if base in kernels), None)
    if names is not None:
        yield from (getattr(layer, name) for name in names)
        return
    # Scalars and vectors, such as a bias or a scale, are never pruned.
    matrices = [
        variable
        for variable in own_weights(layer)
        if variable.shape.rank is None or variable.shape.rank > 1
    ]
    if matrices:
        kind = f"{type(layer).__module__}.{type(layer).__qualname__}"
        raise TrainingError(
            f"optimize.prune: layer {layer.name!r} is a {kind}, whose prunable weights are "
            f"unknown; add a method {OWN_METHOD}(self) to the class, which returns a list of the "
            "weights to prune or [], or remove optimize.prune."
        )


class PruningOptimizer(AfterUpdates):
    """An optimizer that multiplies weights by masks after each step; checkpoints contain
    the masks.
    """

    updates_used_for = "optimize.prune"
    _plan: PruningPlan | None = None
    _masks: Sequence[tf.Variable] = ()

    def prune(self, plan: PruningPlan) -> None:
        """Stores the pruning plan; call the method before `build`."""
        self._plan = plan

    def build(self, var_list: Sequence[tf.Variable]) -> None:
        """Creates the optimizer's variables and the masks, which are ones."""
        super().build(var_list)  # type: ignore[misc]
        if self._plan is None or self._masks:
            return
        self._masks = [_make_mask(weight) for weight in self._plan.weights]

    def strip(self) -> None:
        """Removes the masks at the end of training, because the pruned weights are already zero."""
        if self._plan is not None:
            self._plan = None
            del self._masks
            self.forget_saved("_masks")

    def after_updates(self, distribution: tf.distribute.Strategy, step: tf.Tensor) -> None:
        """Updates the masks if an update is due, and applies the masks."""
        if self._plan is None:
            return
        is_due = self._plan.is_due(step)
        for weight, mask in zip(self._plan.weights, self._masks, strict=True):
            distribution.extended.update(
                weight.variable, self._apply_mask, args=(mask, step, is_due), group=False
            )

    def _apply_mask(
        self, weight: tf.Variable, mask: tf.Variable, step: tf.Tensor, is_due: tf.Tensor
    ) -> None:
        """Masks a weight on a replica; all replicas compute the same masks and weights."""
        plan = self._plan
        assert plan is not None  # noqa: S101 - `after_updates` checks it
        values = tf.convert_to_tensor(weight)
        tf.cond(
            is_due,
            lambda: tf.group(mask.assign(plan.make_mask(values, step))),
            lambda: tf.no_op(),
        )
        weight.assign(values * mask)


def _make_mask(weight: PrunableWeight) -> tf.Variable:
    with tf.distribute.get_strategy().extended.colocate_vars_with(weight.variable):
        ones = tf.ones(weight.variable.shape)
        return tf.Variable(ones, trainable=False, name=f"mask/{weight.name}")


def pruning_of(model: tf_keras.Model) -> PruningPlan | None:
    """Returns the pruning plan of a compiled model, or None."""
    optimizer = _inner_optimizer(model)
    return optimizer._plan if isinstance(optimizer, PruningOptimizer) else None


def strip_pruning(model: tf_keras.Model) -> None:
    """Removes the pruning masks from a model's optimizer."""
    _inner_optimizer(model).strip()


def _inner_optimizer(model: tf_keras.Model) -> tf_keras.optimizers.Optimizer:
    # Loss scaling wraps the optimizer without forwarding unknown attributes.
    return getattr(model.optimizer, "inner_optimizer", model.optimizer)


def with_pruning(
    optimizer: type[tf_keras.optimizers.Optimizer],
) -> type[tf_keras.optimizers.Optimizer]:
    """Returns a subclass of an optimizer with `prune`.

    The subclass keeps the optimizer's name, because Keras loads a saved optimizer by its name.
    """
    return type(optimizer.__name__, (PruningOptimizer, optimizer), {})


FOLDING_LAYERS = (tf_keras.layers.Conv2D, tf_keras.layers.DepthwiseConv2D, tf_keras.layers.Dense)
"""The layers into which TFMOT folds a following batch normalisation."""


def _quantization() -> Any:
    """Returns TFMOT's quantisation module for Keras, whose import takes seconds."""
    import tensorflow_model_optimization as tfmot

    return tfmot.quantization.keras


def quantize(model: tf_keras.Model) -> tf_keras.Model:
    """Returns a clone of a model in which the layers that support 8-bit training are wrapped.

    Call the function in the scope of the strategy.

    Args:
      model: a functional or Sequential model that is built but not compiled.

    Raises:
      TrainingError: the model is subclassed or compiled, or TFMOT supports none of its layers with
        weights.
    """
    if model.optimizer is not None:
        raise TrainingError(
            f"optimize.quantize: the builder of model {model.name!r} has compiled the model, but "
            "layers can be wrapped only before compiling; remove the call of compile in the "
            "builder, or remove optimize.quantize."
        )
    if not is_graph_network(model):
        raise TrainingError(
            f"optimize.quantize: model {model.name!r} is a {type(model).__qualname__}, whose "
            "layers are unknown; build it as tf_keras.Model(inputs, outputs), or remove "
            "optimize.quantize."
        )
    keras = _quantization()
    registry = keras.default_8bit.Default8BitQuantizeRegistry()
    supported = [layer for layer in model.layers if registry.supports(layer) or _is_folded(layer)]
    if not any(layer.trainable_weights for layer in supported):
        names = enumerate_names(_layer_names(_unwrapped_layers(model)), "and")
        raise TrainingError(
            f"optimize.quantize: none of the model's layers can be trained for 8 bits: {names}; "
            "remove optimize.quantize. The variant int8 does not need it, and is then calibrated "
            "on the train split."
        )
    wrapped = {id(layer) for layer in supported}

    def annotate(layer: tf_keras.layers.Layer) -> tf_keras.layers.Layer:
        return keras.quantize_annotate_layer(layer) if id(layer) in wrapped else layer

    annotated = tf_keras.models.clone_model(model, clone_function=annotate)
    with keras.quantize_scope():
        return keras.quantize_apply(annotated, quantized_layer_name_prefix="")


def describe_quantized(model: tf_keras.Model) -> list[str]:
    """Returns a note on the layers that `quantize` did not wrap, or an empty list."""
    float_layers = _layer_names(_unwrapped_layers(model))
    if not float_layers:
        return []
    return [
        f"optimize.quantize: the layers {enumerate_names(float_layers, 'and')} are trained in "
        "floats, because tensorflow-model-optimization does not support them with 8 bits"
    ]


def _is_folded(layer: tf_keras.layers.Layer) -> bool:
    if not isinstance(layer, tf_keras.layers.BatchNormalization):
        return False
    previous_layer = layer.inbound_nodes[0].inbound_layers
    return isinstance(previous_layer, FOLDING_LAYERS)


def _unwrapped_layers(model: tf_keras.Model) -> Iterator[tf_keras.layers.Layer]:
    """Yields the layers with trainable weights that are not wrapped."""
    wrapper = _quantization().QuantizeWrapper
    for layer in model.layers:
        if layer.trainable_weights and not isinstance(layer, wrapper):
            yield layer


def _layer_names(layers: Iterator[tf_keras.layers.Layer]) -> list[str]:
    """Returns the names of layers with their classes for messages: `c_embedding (Embedding)`."""
    return [f"{layer.name} ({type(layer).__name__})" for layer in layers]
