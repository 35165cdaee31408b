"""Training that makes a network smaller: pruning, and layers that compute as if they had 8 bits.

Both use tensorflow-model-optimization. Its pruning wrappers, `prune_low_magnitude`, would put a
layer around each layer of a clone of the model. That takes Keras's own layers alone, gives layers
other names than a warm start, layer-wise rates and fine-tuning go by, needs a callback before each
step, which several steps in one graph do not have, and masks weights before a step alone, so that
a backup differs from what is kept. So its schedules and its choice of weights are used, and the
optimizer applies them. Quantisation-aware training wraps the layers that TFMOT knows in a clone of
the model; they keep their names.
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

if TYPE_CHECKING:  # Its import takes seconds, which trainings that do not prune do without.
    import tensorflow_model_optimization as tfmot

LONGEST_PAUSE = 100
"""Steps between two looks at which weights are the smallest, as in TFMOT; to sort them takes time.
"""
FEWEST_LOOKS = 20
"""In a training that is short."""

MATRIX = 2
RANKS_OF_2BY4 = (MATRIX, 4)
"""Dimensions of the weights that TFMOT knows the pattern for: dense layers, and convolutions."""

OWN_METHOD = "get_prunable_weights"
"""What TFMOT asks layers for that are not Keras's: a list of variables, which may be empty."""

PARTS = (tf_keras.layers.MultiHeadAttention, tf_keras.layers.RNN)
"""Layers whose weights belong to the layers in them."""

BEYOND_TFMOT: Mapping[type, Sequence[str]] = {tf_keras.layers.EinsumDense: ["kernel"]}
"""Layers that TFMOT knows as parts of others alone."""

FEW = 1000
"""Fewer numbers than that, if they are hardly a part of the network, stay whole: it misses those of
its first and last layer most, and they save nothing."""

HARDLY_A_PART = 0.01
"""Of all weights that can be pruned."""

MOST_NAMED = 5
"""Weights that a note names; of more it says how many there are."""


@dataclass(frozen=True)
class PruningSteps:
    """Numbers of steps that are done when the masks are made anew; none are made at 0.

    Before the first steps all weights are random, and it means nothing which are the smallest.
    """

    begin: int
    end: int
    """When all of the sparsity is reached."""
    every: int
    """Steps from one look to the next; `end` is one of them."""

    def first_whole_epoch(self, steps_per_epoch: int) -> int:
        """Returns the first epoch, counted from 0, at whose end all of the sparsity is reached."""
        return (self.end - 1) // steps_per_epoch


@dataclass(frozen=True, eq=False)
class PrunableWeight:
    """A weight, and where it is."""

    layer: str
    """Its name, after that of the layer it is a part of: `attention/query`."""
    variable: tf.Variable

    @property
    def name(self) -> str:
        """For people: `dense/kernel`."""
        return f"{self.layer}/{_path(self.variable)[1]}"

    @property
    def size(self) -> int:
        """How many numbers it has."""
        return math.prod(self.variable.shape)


@dataclass(frozen=True)
class PruningPlan:
    """Which weights are pruned, when, and to what."""

    weights: Sequence[PrunableWeight]
    steps: PruningSteps
    schedule: tfmot.sparsity.keras.PruningSchedule
    make_mask: Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
    """From a weight and the steps that are done to 1 where it stays and 0 where it goes."""
    notes: Sequence[str]
    """For people."""

    def is_due(self, step: tf.Tensor) -> tf.Tensor:
        """Returns whether the masks are made anew when so many steps are done."""
        return self.schedule(step)[0]

    @property
    def sparsity(self) -> dict[str, Any]:
        """The share of the pruned weights that are zero, in 4 digits: `overall`, and by layer."""
        zeros: Counter[str] = Counter()
        sizes: Counter[str] = Counter()
        for weight in self.weights:
            values = weight.variable.numpy()
            zeros[weight.layer] += int((values == 0).sum())
            sizes[weight.layer] += values.size
        layers = {layer: round(zeros[layer] / size, 4) for layer, size in sizes.items()}
        return {"overall": round(zeros.total() / sizes.total(), 4), "layers": layers}


def plan_pruning(model: tf_keras.Model, prune: PruneSettings, steps: int) -> PruningPlan:
    """What is pruned of a model.

    Args:
      model: that is built.
      prune: how much of it, when, and in which structure.
      steps: of the training, as it is planned.

    Raises:
      TrainingError: none of its weights can be pruned so, or it is not known of a layer.
    """
    from trainer_module.compat.model_optimization import mask_maker

    planned = plan_steps(prune, steps)
    schedule = _schedule(prune, planned)
    found, small = find_weights(model)
    able = [weight for weight in found if _fits(weight, prune)]
    whole = [weight.name for weight in found if weight not in able]
    if not able:
        raise TrainingError(_why_none(prune, whole))
    block = prune.structure.block if isinstance(prune.structure, BlockStructure) else (1, 1)
    notes = [f"optimize.prune: {_sentence(prune, whole)}"] if whole else []
    notes += [*_describe_small(small), *_describe_late(prune, steps)]
    make_mask = mask_maker(schedule, block, prune.is_2by4)
    return PruningPlan(able, planned, schedule, make_mask, notes)


def _schedule(prune: PruneSettings, steps: PruningSteps) -> tfmot.sparsity.keras.PruningSchedule:
    import tensorflow_model_optimization as tfmot

    schedules = tfmot.sparsity.keras
    if prune.is_constant:
        return schedules.ConstantSparsity(prune.sparsity, steps.begin, frequency=steps.every)
    return schedules.PolynomialDecay(
        0.0, prune.sparsity, steps.begin, steps.end, frequency=steps.every
    )


def _fits(weight: PrunableWeight, prune: PruneSettings) -> bool:
    """Returns whether TFMOT can give a weight the structure."""
    shape = weight.variable.shape
    if isinstance(prune.structure, BlockStructure):
        if shape.rank != MATRIX:
            return False
        # TFMOT loses a dimension in which there is one block alone.
        return all(size > block for size, block in zip(shape, prune.structure.block, strict=True))
    return not prune.is_2by4 or shape.rank in RANKS_OF_2BY4


def _why_none(prune: PruneSettings, whole: Sequence[str]) -> str:
    if not whole:
        return (
            "optimize.prune: the model has no weights that can be pruned, such as a dense layer's; "
            "leave it out."
        )
    return (
        f"optimize.prune.structure: {_sentence(prune, whole)}, and there are no others; leave the "
        "structure out."
    )


def _sentence(prune: PruneSettings, whole: Sequence[str]) -> str:
    if prune.is_2by4:
        reason = "2by4 is for weights of dense layers and convolutions of pictures"
    else:
        reason = "blocks are for weights of two dimensions, each of several blocks"
    return f"{reason}: {_stay_whole(whole)}"


def _stay_whole(names: Sequence[str]) -> str:
    """`dense/kernel and output/kernel stay whole`; of many the first ones."""
    named, others = names[:MOST_NAMED], len(names) - MOST_NAMED
    if others > 0:
        named = [*named, f"{others} more"]
    return f"{enumerate_names(named, 'and')} {'stay' if len(names) > 1 else 'stays'} whole"


def _describe_small(small: Sequence[PrunableWeight]) -> list[str]:
    """Says which kernels are too small to be pruned."""
    if not small:
        return []
    names = [f"{weight.name} ({weight.size:,})" for weight in small]
    return [
        f"optimize.prune: {_stay_whole(names)}: kernels of fewer than {FEW:,} numbers and of less "
        f"than {HARDLY_A_PART:.0%} of the network are not pruned"
    ]


def _describe_late(prune: PruneSettings, steps: int) -> list[str]:
    """Says that the training has fewer steps than the config takes it to have."""
    keys = ("begin",) if prune.is_constant else ("begin", "end")
    return [
        f"optimize.prune.{key}: found {getattr(prune, key):,.0f} steps, but training takes "
        f"{steps:,}, with the last of which it is pruned; give {key} as a share of them, or more "
        "epochs"
        for key in keys
        if getattr(prune, key) > max(1, steps - (key == "begin"))
    ]


def plan_steps(prune: PruneSettings, steps: int) -> PruningSteps:
    """When a training prunes.

    Args:
      prune: the schedule, in shares of the training or in steps.
      steps: that are planned in all; training may end earlier, but not before `end`.
    """
    begin = min(_in_steps(prune.begin, steps), steps - 1)
    end = min(_in_steps(prune.end, steps), steps)
    last = steps if prune.is_constant else max(begin + 1, end)
    every = max(1, min(LONGEST_PAUSE, (last - begin) // FEWEST_LOOKS))
    if prune.is_constant:
        return PruningSteps(begin, begin or every, every)
    return PruningSteps(last - every * ((last - begin) // every), last, every)


def _in_steps(amount: float, steps: int) -> int:
    return round(amount * steps if amount <= 1 else amount)


def find_weights(
    model: tf_keras.Model,
) -> tuple[list[PrunableWeight], list[PrunableWeight]]:
    """Returns the kernels of a network's layers, wherever they sit; biases stay whole.

    Args:
      model: that is built.

    Returns:
      Those that are pruned, and those that are too small for it.

    Raises:
      TrainingError: for a layer with weights of its own, it is not known which can be pruned.
    """
    from trainer_module.compat import model_optimization

    kernels = {**model_optimization.kernels_by_layer(), **BEYOND_TFMOT}
    layers = layers_within(model)
    wrappers = [layer for layer in layers if model_optimization.is_wrapper(layer)]
    weights = {id(wrapper): model_optimization.wrapped_weights(wrapper) for wrapper in wrappers}
    # A layer in a wrapper computes with what the wrapper makes of the weight.
    weights |= {id(wrapper.layer): [] for wrapper in wrappers}
    found: dict[int, PrunableWeight] = {}
    for layer in layers:
        for variable in weights.get(id(layer), _weights_of(layer, kernels)):
            name = _path(variable)[0] or layer.name
            found.setdefault(id(variable), PrunableWeight(name, variable))
    able = [weight for weight in found.values() if weight.variable.trainable]
    total = sum(weight.size for weight in able)
    least = min(FEW, HARDLY_A_PART * total)
    small = [weight for weight in able if weight.size < least]
    return [weight for weight in able if weight.size >= least], small


def _path(variable: tf.Variable) -> tuple[str, str]:
    """What a variable's name begins with, and its last part."""
    begin, _, last = variable.name.partition(":")[0].rpartition("/")
    return begin, last


def _weights_of(
    layer: tf_keras.layers.Layer, kernels: Mapping[type, Sequence[str]]
) -> Iterator[tf.Variable]:
    """Yields the kernels of a layer, without those of the layers in it."""
    if hasattr(layer, OWN_METHOD):
        yield from layer.get_prunable_weights()
        return
    if isinstance(layer, (*PARTS, tf_keras.Model)):
        return
    # Those of its class, or of the one that it is derived from.
    names = next((kernels[base] for base in type(layer).__mro__ if base in kernels), None)
    if names is not None:
        yield from (getattr(layer, name) for name in names)
        return
    # What is a number, or a vector, such as a bias or a scale, is never pruned.
    unknown = [
        variable
        for variable in own_weights(layer)
        if variable.shape.rank is None or variable.shape.rank > 1
    ]
    if unknown:
        kind = f"{type(layer).__module__}.{type(layer).__qualname__}"
        raise TrainingError(
            f"optimize.prune: layer {layer.name!r} is a {kind}, of which it is not known which "
            f"weights can be pruned; give it a method {OWN_METHOD}(self) that returns them, "
            "[] for none, or leave optimize.prune out."
        )


class PruningOptimizer(AfterUpdates):
    """Multiplies weights by masks after each step; the masks are part of what is backed up."""

    updates_used_for = "optimize.prune"
    _plan: PruningPlan | None = None
    _masks: Sequence[tf.Variable] = ()

    def prune(self, plan: PruningPlan) -> None:
        """Takes what is to be pruned, before it is built."""
        self._plan = plan

    def build(self, var_list: Sequence[tf.Variable]) -> None:
        """Makes the masks, of ones."""
        super().build(var_list)  # type: ignore[misc]
        if self._plan is None or self._masks:
            return
        self._masks = [_make_mask(weight) for weight in self._plan.weights]

    def strip(self) -> None:
        """Forgets the masks, when training is over: the weights are zero by themselves."""
        if self._plan is not None:
            self._plan = None
            del self._masks
            self.forget_saved("_masks")

    def after_updates(self, distribution: tf.distribute.Strategy, step: tf.Tensor) -> None:
        """Applies the masks, which are made anew where they are due."""
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
        """On one replica; all of them come to the same, as their weights are the same."""
        plan = self._plan
        assert plan is not None  # noqa: S101 - else nobody calls it
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
    """What training makes zero in a compiled model; None if nothing."""
    optimizer = _inner_optimizer(model)
    return optimizer._plan if isinstance(optimizer, PruningOptimizer) else None


def strip_pruning(model: tf_keras.Model) -> None:
    """Has the optimizer of a model that was pruned forget its masks."""
    _inner_optimizer(model).strip()


def _inner_optimizer(model: tf_keras.Model) -> tf_keras.optimizers.Optimizer:
    # Loss scaling wraps the optimizer, and does not hand on what it does not know.
    return getattr(model.optimizer, "inner_optimizer", model.optimizer)


def with_pruning(
    optimizer: type[tf_keras.optimizers.Optimizer],
) -> type[tf_keras.optimizers.Optimizer]:
    """Returns the same optimizer with `prune`; it keeps its name, by which Keras knows a saved
    one.
    """
    return type(optimizer.__name__, (PruningOptimizer, optimizer), {})


BEFORE_NORM = (tf_keras.layers.Conv2D, tf_keras.layers.DepthwiseConv2D, tf_keras.layers.Dense)
"""Layers that batch normalisation becomes a part of, which TFMOT does not know by itself."""


def _quantization() -> Any:
    """TFMOT's quantisation for Keras, whose import takes seconds."""
    import tensorflow_model_optimization as tfmot

    return tfmot.quantization.keras


def quantize(model: tf_keras.Model) -> tf_keras.Model:
    """Returns the same model, with the layers that can be trained for 8 bits wrapped; others stay.

    Args:
      model: functional or Sequential, built and not compiled. Call it in the scope of the strategy.

    Raises:
      TrainingError: the model is of another kind, or has no such layer with weights.
    """
    if model.optimizer is not None:
        raise TrainingError(
            f"optimize.quantize: the builder of model {model.name!r} has compiled it, and it has "
            "to be changed before that; leave the builder's compile out, or optimize.quantize."
        )
    if not is_graph_network(model):
        raise TrainingError(
            f"optimize.quantize: model {model.name!r} is a {type(model).__qualname__}, whose "
            "layers cannot be told; build it as tf_keras.Model(inputs, outputs), or leave it out."
        )
    keras = _quantization()
    known = keras.default_8bit.Default8BitQuantizeRegistry()
    able = [layer for layer in model.layers if known.supports(layer) or _is_folded(layer)]
    if not any(layer.trainable_weights for layer in able):
        names = enumerate_names(_kinds(_weighed(model)), "and")
        raise TrainingError(
            f"optimize.quantize: none of the model's layers can be trained for 8 bits: {names}; "
            "leave it out: the variant int8 needs no such training, and asks the train split."
        )
    wrapped = {id(layer) for layer in able}

    def annotate(layer: tf_keras.layers.Layer) -> tf_keras.layers.Layer:
        return keras.quantize_annotate_layer(layer) if id(layer) in wrapped else layer

    annotated = tf_keras.models.clone_model(model, clone_function=annotate)
    with keras.quantize_scope():
        return keras.quantize_apply(annotated, quantized_layer_name_prefix="")


def describe_quantized(model: tf_keras.Model) -> list[str]:
    """What people should know of a model that `quantize` gave: which layers stay as they were."""
    left = _kinds(_weighed(model))
    if not left:
        return []
    return [
        f"optimize.quantize: the layers {enumerate_names(left, 'and')} are trained in floats, as "
        "tensorflow-model-optimization does not know them with 8 bits"
    ]


def _is_folded(layer: tf_keras.layers.Layer) -> bool:
    if not isinstance(layer, tf_keras.layers.BatchNormalization):
        return False
    before = layer.inbound_nodes[0].inbound_layers
    return isinstance(before, BEFORE_NORM)


def _weighed(model: tf_keras.Model) -> Iterator[tf_keras.layers.Layer]:
    """Yields the layers that learn, but for those that are wrapped."""
    wrapper = _quantization().QuantizeWrapper
    for layer in model.layers:
        if layer.trainable_weights and not isinstance(layer, wrapper):
            yield layer


def _kinds(layers: Iterator[tf_keras.layers.Layer]) -> list[str]:
    """For people: `c_embedding (Embedding)`."""
    return [f"{layer.name} ({type(layer).__name__})" for layer in layers]
