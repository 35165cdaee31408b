"""A warm start: training that starts from the weights of an earlier model, on changed data.

Vocabularies are ordered by frequency, classes by name, and columns come and go. Therefore rows and
columns of the old weights are matched by their meaning, not by their index.
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
    """The reason why a weight cannot be copied, as the end of a sentence on its layer."""


@dataclass
class _CopyCounts:
    """Counts of the copied weights."""

    has_unique_names: bool
    """Whether all weights have unique names."""
    values: int = 0
    total: int = 0
    vocabularies: set[str] = field(default_factory=set)
    """Features for whose values rows were copied."""


def warm_start(
    model: tf_keras.Model, problem: Problem, tft_output: tft.TFTransformOutput, base_model: str
) -> list[str]:
    """Copies the weights of the base model into a new model; unmatched weights keep their values.

    Call the function in the scope of the strategy, before training.

    Args:
      model: a compiled model whose weights exist.
      problem: the problem that the model was built for.
      tft_output: the source of the vocabularies.
      base_model: the path of a SavedModel.

    Returns:
      Notes for the summary: the source of the weights, and the weights that are initialised anew.

    Raises:
      TrainingError: the base model cannot be read.
    """
    base = read_base_model(base_model)
    if base.description is None:
        return [
            f"warm start: {base.path} has no description of its weights, which models that "
            "Scopeline exports have; all weights are initialised anew"
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
    """Returns the weights by layer; a layer's weights are copied together or not at all."""
    layers: dict[str, list[Weight]] = {}
    for weight in weights:
        if weight.is_learnt:
            layers.setdefault(weight.name.rpartition("/")[0] or weight.name, []).append(weight)
    return layers


def _plan(weight: Weight, new: Description, base: BaseModel, old: Description) -> list[Pair]:
    """Returns the matching indices of the new and the old weight for each axis.

    Raises:
      _MisfitError: no index of the old weight has a meaning in the new weight.
    """
    name, axes = new.weights[weight.name].name, new.weights[weight.name].axes
    if name not in base.values:
        raise _MisfitError("is new")
    shape = base.values[name].shape
    if len(shape) != len(weight.shape):
        was, now = ("x".join(map(str, one)) for one in (shape, weight.shape))
        raise _MisfitError(f"has another shape ({was} -> {now})")
    sizes = zip(axes, base.axes[name], shape, weight.shape, strict=True)
    return [
        _match_axis(new.keys(axis, size), old.keys(was, old_size), axis, was, old_size, size)
        for axis, was, old_size, size in sizes
    ]


_MISFIT_REASONS = {
    "unsure": "may depend on values or classes, which have changed,",
    "classes": "has other classes",
    "vocabulary": "has no value in common with the old vocabulary",
}
"""The message for a weight without matching indices, by the kind of its axis."""


def _match_axis(
    new: list | None, old: list | None, axis: Axis, was: Axis, old_size: int, size: int
) -> Pair:
    if new is None or old is None or (axis.kind, axis.feature) != (was.kind, was.feature):
        raise _MisfitError("has rows of unknown meaning")
    if new == old:  # Equal keys match by position.
        return list(range(size)), list(range(size))
    places = {key: index for index, key in enumerate(old)}
    kept = [(index, places[key]) for index, key in enumerate(new) if key in places]
    if not kept:
        of_size = (
            "has other inputs" if size == old_size else f"has another shape ({old_size} -> {size})"
        )
        raise _MisfitError(_MISFIT_REASONS.get(axis.kind, of_size))
    return [index for index, _ in kept], [place for _, place in kept]


def _copy(weight: Weight, old: np.ndarray, pairs: Sequence[Pair]) -> int:
    """Copies the values at matching indices, and returns their number."""
    value = np.array(weight.read())
    copied = old[np.ix_(*(of for _, of in pairs))]
    value[np.ix_(*(to for to, _ in pairs))] = copied
    weight.assign(value)
    return copied.size


def _headline(base: BaseModel, old: Description, copied: _CopyCounts) -> str:
    if not copied.values:
        return (
            f"no weight of {base.path}, a model of kind {old.model}, fits; all weights are "
            "initialised anew"
        )
    if copied.has_unique_names and copied.values == copied.total:
        return f"from {base.path}, all weights"
    percent = min(99, max(1, 100 * copied.values // copied.total))
    return f"from {base.path}, {percent}% of the weights"


def _changes(new: Description, old: Description, copied: _CopyCounts) -> Iterator[str]:
    yield from _class_changes(new, old)
    was = {feature.name: feature for feature in old.features}
    for feature in new.features:
        if feature.name not in was:
            yield f"column `{feature.name}` is new and is initialised anew"
        elif feature.name in copied.vocabularies:
            # The case includes texts whose length has changed: their words keep their vectors.
            yield from _value_changes(feature, was[feature.name])
        elif (feature.kind, feature.shape) != (was[feature.name].kind, was[feature.name].shape):
            yield f"column `{feature.name}` has another type or shape and is initialised anew"
    for name in was:
        if new.feature(name) is None:
            yield f"column `{name}` has been removed"


def _class_changes(new: Description, old: Description) -> Iterator[str]:
    if new.task != old.task:
        yield f"the task was {old.task} and is {new.task}; the output is initialised anew"
    elif new.classes != old.classes and not set(new.outputs) & set(old.outputs):
        was, now = (" and ".join(f"`{name}`" for name in d.classes) for d in (old, new))
        yield f"the classes were {was} and are {now}; the output is initialised anew"
    else:
        kind = "class " if new.classes else ""
        for name in new.outputs:
            if name not in old.outputs:
                yield f"the output: {kind}`{name}` is new and is initialised anew"
        for name in old.outputs:
            if name not in new.outputs:
                yield f"the output: {kind}`{name}` has been removed"


def _value_changes(feature: Feature, was: Feature) -> Iterator[str]:
    now, before = feature.vocabulary or (), set(was.vocabulary or ())
    new = sum(value not in before for value in now)
    if new:
        kept = len(now) - new
        yield (
            f"embedding of `{feature.name}`: {kept:,} of {len(now):,} values keep their vectors, "
            f"{new} {'is' if new == 1 else 'are'} initialised anew"
        )
    buckets, then = feature.indices - len(now), was.indices - len(before)
    if buckets != then:
        yield (
            f"embedding of `{feature.name}`: {buckets} out-of-vocabulary buckets instead of "
            "{then}; they are initialised anew"
        )
