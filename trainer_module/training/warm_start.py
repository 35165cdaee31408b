"""A warm start: training that starts from the weights of an earlier model.

The data may have changed since the earlier model: vocabularies are ordered by frequency, classes by
name, and columns may be new or removed. Therefore rows and columns of the old weights are matched
by their meaning, not by their index.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import tensorflow_transform as tft
import tf_keras

from trainer_module.base_model import (
    Axis,
    BaseModel,
    Description,
    Feature,
    Weight,
    describe_model,
    read_base_model,
    shared_names,
    weights_of,
)
from trainer_module.problem import Problem

Pair = tuple[list[int], list[int]]
"""Indices along an axis of the new weight, and the indices of the old weight to copy from."""


class _MisfitError(Exception):
    """The reason why a weight cannot be copied, as the predicate of a sentence about its layer."""


@dataclass
class _CopyCounts:
    """Counts of the copied weights."""

    has_unique_names: bool
    """Whether all weights have unique names."""
    values: int = 0
    """The number of copied values."""
    total: int = 0
    """The number of values in all weights of the new model."""
    vocabularies: set[str] = field(default_factory=set)
    """The names of the features whose embedding rows were copied."""


def warm_start(
    model: tf_keras.Model, problem: Problem, tft_output: tft.TFTransformOutput, base_model: str
) -> list[str]:
    """Copies the weights of the base model into a new model; unmatched weights keep their values.

    Call the function in the scope of the strategy, before training.

    Args:
      model: a built model.
      problem: the problem that the model was built for.
      tft_output: the source of the vocabularies.
      base_model: the path of a SavedModel.

    Returns:
      Notes for the summary, on the copied weights and on the weights that keep their initial
      values.

    Raises:
      TrainingError: the base model cannot be read.
    """
    base = read_base_model(base_model)
    if base.description is None:
        return [
            f"warm start: {base.path} has no description of its weights, so Scopeline did not "
            "export the model; all weights are initialised anew"
        ]
    new = describe_model(model, problem, tft_output, kind="")
    shared = shared_names(model)
    copied = _CopyCounts(has_unique_names=not shared)
    misfits = [f"several weights have the name {name} and are initialised anew" for name in shared]
    for layer, weights in _by_layer(weights_of(model)).items():
        copied.total += sum(math.prod(weight.shape) for weight in weights)
        try:
            plans = [_plan(weight, new, base, base.description) for weight in weights]
        except _MisfitError as misfit:
            misfits.append(f"layer {layer} {misfit} and is initialised anew")
            continue
        for weight, pairs in zip(weights, plans, strict=True):
            described = new.weights[weight.name]
            copied.values += _copy(weight, base.values[described.name], pairs)
            copied.vocabularies |= {a.feature for a in described.axes if a.kind == "vocabulary"}
    headline = _headline(base, base.description, copied)
    notes = [headline, *_changes(new, base.description, copied), *misfits]
    return [f"warm start: {note}" for note in notes]


def _by_layer(weights: Sequence[Weight]) -> dict[str, list[Weight]]:
    """Groups weights by layer, because all weights of a layer are copied or none of them."""
    layers: dict[str, list[Weight]] = {}
    for weight in weights:
        if weight.is_learnt:
            layers.setdefault(weight.name.rpartition("/")[0] or weight.name, []).append(weight)
    return layers


def _plan(weight: Weight, new: Description, base: BaseModel, old: Description) -> list[Pair]:
    """Returns the matching indices of the new and the old weight for each axis.

    Raises:
      _MisfitError: an axis has no matching indices.
    """
    name, axes = new.weights[weight.name].name, new.weights[weight.name].axes
    if name not in base.values:
        raise _MisfitError("is new")
    shape = base.values[name].shape
    if len(shape) != len(weight.shape):
        old_shape, new_shape = ("x".join(map(str, s)) for s in (shape, weight.shape))
        raise _MisfitError(f"has another shape ({old_shape} -> {new_shape})")
    sizes = zip(axes, base.axes[name], shape, weight.shape, strict=True)
    return [
        _match_axis(
            new.keys(axis, size), old.keys(old_axis, old_size), axis, old_axis, old_size, size
        )
        for axis, old_axis, old_size, size in sizes
    ]


_MISFIT_REASONS = {
    "unsure": "may depend on values or classes that have changed",
    "classes": "has other classes",
    "vocabulary": "has no value in common with the old vocabulary",
}
"""The message for a weight without matching indices, by the kind of its axis."""


def _match_axis(
    new: list | None, old: list | None, axis: Axis, old_axis: Axis, old_size: int, size: int
) -> Pair:
    """Returns the matching indices along an axis.

    Args:
      new: the keys of the new axis, or None.
      old: the keys of the old axis, or None.
      axis: the new axis.
      old_axis: the old axis.
      old_size: the size of the old axis.
      size: the size of the new axis.

    Raises:
      _MisfitError: no key of the new axis is a key of the old axis.
    """
    is_same = (axis.kind, axis.feature) == (old_axis.kind, old_axis.feature)
    if new is None or old is None or not is_same:
        raise _MisfitError("has rows of unknown meaning")
    if new == old:
        return list(range(size)), list(range(size))
    old_indices = {key: index for index, key in enumerate(old)}
    pairs = [(index, old_indices[key]) for index, key in enumerate(new) if key in old_indices]
    if not pairs:
        reason = (
            "has other inputs" if size == old_size else f"has another shape ({old_size} -> {size})"
        )
        raise _MisfitError(_MISFIT_REASONS.get(axis.kind, reason))
    return [new_index for new_index, _ in pairs], [old_index for _, old_index in pairs]


def _copy(weight: Weight, old: np.ndarray, pairs: Sequence[Pair]) -> int:
    """Copies the values at matching indices, and returns their number."""
    value = np.array(weight.read())
    copied = old[np.ix_(*(old_indices for _, old_indices in pairs))]
    value[np.ix_(*(new_indices for new_indices, _ in pairs))] = copied
    weight.assign(value)
    return copied.size


def _headline(base: BaseModel, old: Description, copied: _CopyCounts) -> str:
    if not copied.values:
        return (
            f"no weight of {base.path}, a model of kind {old.model}, fits the new model; all "
            "weights are initialised anew"
        )
    if copied.has_unique_names and copied.values == copied.total:
        return f"from {base.path}, all weights"
    percent = min(99, max(1, 100 * copied.values // copied.total))
    return f"from {base.path}, {percent}% of the weights"


def _changes(new: Description, old: Description, copied: _CopyCounts) -> Iterator[str]:
    yield from _class_changes(new, old)
    old_features = {feature.name: feature for feature in old.features}
    for feature in new.features:
        old_feature = old_features.get(feature.name)
        if old_feature is None:
            yield f"column `{feature.name}` is new and is initialised anew"
        elif feature.name in copied.vocabularies:
            # For text of another length, the shape differs, but words keep their vectors.
            yield from _value_changes(feature, old_feature)
        elif (feature.kind, feature.shape) != (old_feature.kind, old_feature.shape):
            yield f"column `{feature.name}` has another type or shape and is initialised anew"
    for name in old_features:
        if new.feature(name) is None:
            yield f"column `{name}` has been removed"


def _class_changes(new: Description, old: Description) -> Iterator[str]:
    if new.task != old.task:
        yield f"the task was {old.task} and is {new.task}; the output is initialised anew"
    elif new.classes != old.classes and not set(new.outputs) & set(old.outputs):
        old_names, new_names = (" and ".join(f"`{n}`" for n in d.classes) for d in (old, new))
        yield f"the classes were {old_names} and are {new_names}; the output is initialised anew"
    else:
        kind = "class " if new.classes else ""
        for name in new.outputs:
            if name not in old.outputs:
                yield f"the output: {kind}`{name}` is new and is initialised anew"
        for name in old.outputs:
            if name not in new.outputs:
                yield f"the output: {kind}`{name}` has been removed"


def _value_changes(feature: Feature, old_feature: Feature) -> Iterator[str]:
    values, old_values = feature.vocabulary or (), set(old_feature.vocabulary or ())
    new = sum(value not in old_values for value in values)
    if new:
        kept = len(values) - new
        yield (
            f"embedding of `{feature.name}`: {kept:,} of {len(values):,} values keep their "
            f"vectors, {new} {'is' if new == 1 else 'are'} initialised anew"
        )
    buckets = feature.indices - len(values)
    old_buckets = old_feature.indices - len(old_values)
    if buckets != old_buckets:
        yield (
            f"embedding of `{feature.name}`: {buckets} out-of-vocabulary buckets instead of "
            f"{old_buckets}; the buckets are initialised anew"
        )
