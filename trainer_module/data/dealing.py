"""Divides the train split into parts, and holds out one part.

The rows of a group (`data.split_by`) are in the same part. If rows have an order (`data.order_by`),
parts are periods of time, and the held-out part is later than all rows from which the model learns.
So metrics on the held-out part estimate the metrics on new groups, or on later rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from trainer_module.data.examples import Content
from trainer_module.data.input_pipeline import Split
from trainer_module.data.order import ends_between_values
from trainer_module.errors import TrainingError

LARGE_SPLIT = 10_000
"""The size of the train split above which a tenth is held out, otherwise a fifth.

The model never learns from the tenth, which is large enough for a measurement. From the fifth of a
smaller split the model learns in a final training, because a small table needs all of its rows."""


@dataclass(frozen=True)
class Parts:
    """The part of each row."""

    part_of: np.ndarray
    """The index of each row's part, [rows], or -1 for rows in no part. If the rows are ordered by
    time, part 0 is the latest."""
    is_ordered: bool = False
    """Whether the model learns only from rows that are older than the held-out part."""

    def held_out(self, part: int) -> np.ndarray:
        """Returns whether each row belongs to the held-out part, [rows] bool."""
        return self.part_of == part

    def train_rows(self, part: int) -> np.ndarray:
        """Returns whether the model learns from each row when a part is held out, [rows] bool."""
        others = self.part_of > part if self.is_ordered else self.part_of != part
        return (self.part_of >= 0) & others


@dataclass(frozen=True)
class Folds:
    """The parts of the train split that are held out in turn."""

    parts: Parts
    count: int
    """The number of parts that are held out, each from another model."""

    def held_out(self, fold: int) -> np.ndarray:
        """Returns the indices of the examples that a fold holds out; none if nothing can be."""
        return np.flatnonzero(self.parts.held_out(0 if self.parts.is_ordered else fold))

    def train_rows(self, fold: int) -> np.ndarray:
        """Returns the indices of the examples that a fold trains on."""
        held_out = self.held_out(fold)
        if self.parts.is_ordered and len(held_out):
            return np.flatnonzero(self.parts.train_rows(0))
        return np.setdiff1d(np.arange(len(self.parts.part_of)), held_out)


def divide_records(train: Split, parts: int, purpose: str) -> Parts:
    """Divides the records of the train split into parts that are held out in turn.

    The result depends only on the examples and the seed, so all processes, and a resumed training,
    compute equal parts.

    Args:
      train: the examples.
      parts: the number of parts that are held out in turn. If rows are ordered by time, there is an
        additional oldest part, from which the model learns when the next part is held out.
      purpose: the purpose of the parts, as the plural subject of the error message.

    Raises:
      TrainingError: there are fewer examples, groups or times than parts.
    """
    content = train.content
    count = parts + (content.times is not None)
    if (units := count_units(content)) < count:
        raise TrainingError(
            f"{purpose} need at least {count} {_unit_name(content)}, but the train split has "
            f"{units}."
        )
    return of_records(divide_examples(content, count, train.shuffle_seed), content)


def of_records(parts: Parts, content: Content) -> Parts:
    """Returns the parts of all records of a split, from the parts of its usable examples."""
    part_of = np.full(len(content.usable), -1)
    part_of[content.usable] = parts.part_of
    return replace(parts, part_of=part_of)


def divide_examples(content: Content, parts: int, seed: int | None) -> Parts:
    """Divides the usable examples into parts: by time, by group, or at random.

    The division is stratified by class, so that each part has its share of a rare class.

    Args:
      content: the content of the train split.
      parts: the number of parts. If there are fewer groups or times, there are fewer parts.
      seed: the seed of the order of groups or examples.
    """
    if content.times is not None:
        return Parts(_by_time(content.times, parts), is_ordered=True)
    random = np.random.default_rng(seed)
    if content.groups is not None:
        return Parts(_by_group(content.groups, content.classes, parts, random))
    order = random.permutation(content.examples)
    if content.classes is not None:
        order = order[np.argsort(content.classes[order], kind="stable")]
    divided = np.empty(content.examples, int)
    divided[order] = np.arange(content.examples) % parts
    return Parts(divided)


def count_units(content: Content) -> int:
    """Returns the number of units to divide: the examples, the groups, or the distinct times."""
    keys = content.groups if content.times is None else content.times
    return content.examples if keys is None else len(np.unique(keys))


def _unit_name(content: Content) -> str:
    """Returns the name of the units of `count_units`, for messages."""
    if content.times is not None:
        return "distinct times (data.order_by)"
    return "examples" if content.groups is None else "groups (data.split_by)"


def exempt_rare_classes(parts: Parts, content: Content) -> Parts:
    """Returns parts without the examples of classes that occur in only one part.

    The model always learns from these examples. Otherwise it would predict a probability near 0 for
    their class.

    Args:
      parts: the parts of the usable examples.
      content: the content of the train split.
    """
    classes, part_of = content.classes, parts.part_of
    if classes is None:
        return parts
    found = np.unique(np.stack([classes, part_of]), axis=1)
    exempt = (np.bincount(found[0]) == 1)[classes]
    if content.groups is not None:
        exempt = np.isin(content.groups, content.groups[exempt])
    return replace(parts, part_of=np.where(exempt, part_of.max() + 1, part_of))


def renumber(part_of: np.ndarray, parts: int, size: float) -> tuple[np.ndarray, int]:
    """Returns the parts in the order in which they are held out, and the number of those that can
    be held out.

    The first part, which a network holds out, is the one with the nearest size, as groups may be of
    very different sizes. A part with most of the examples is not held out, as too few would remain.
    The examples in no part, whose number is `parts`, keep it.
    """
    sizes = np.bincount(part_of, minlength=parts)[:parts]
    used = np.flatnonzero(sizes)
    is_large = sizes[used] > len(part_of) / 2
    order = used[np.lexsort((np.abs(sizes[used] - size), is_large))]
    numbers = np.full(parts + 1, parts)
    numbers[order] = np.arange(len(order))
    return numbers[part_of], int(np.count_nonzero(~is_large))


def _by_time(times: np.ndarray, parts: int) -> np.ndarray:
    """Returns the part of each example; part 0 is the latest, and equal times are in one part."""
    ordered = np.sort(times)
    ends = ends_between_values(ordered, np.arange(1, parts) / parts)
    firsts = ordered[ends[ends < len(ordered)]]
    return len(firsts) - np.searchsorted(firsts, times, side="right")


def _by_group(
    groups: np.ndarray, classes: np.ndarray | None, parts: int, random: np.random.Generator
) -> np.ndarray:
    """Returns the part of each example; all examples of a group are in one part.

    The groups are sorted by their mean class, or by size if there are no classes, and are dealt to
    the parts in serpentine order. So similar groups go to different parts.
    """
    _, unit_of, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    order = random.permutation(len(sizes))
    order = order[np.argsort(-sizes[order], kind="stable")]
    if classes is not None:
        means = np.bincount(unit_of, classes) / sizes
        order = order[np.argsort(means[order], kind="stable")]
    turns = np.arange(len(sizes)) % (2 * parts)
    part_of_unit = np.empty(len(sizes), int)
    part_of_unit[order] = np.minimum(turns, 2 * parts - 1 - turns)
    return part_of_unit[unit_of]


def make_fold(train: Split, evaluation: Split, parts: Parts, part: int) -> tuple[Split, Split]:
    """Returns the examples to train on, and the held-out examples.

    Args:
      train: the divided examples.
      evaluation: the split whose evaluation settings the held-out examples take.
      parts: the parts of the records of train.
      part: the index of the held-out part.
    """
    held_out = _select(train, parts.held_out(part), like=evaluation)
    return _select(train, parts.train_rows(part)).fitted(), held_out


def hold_out(train: Split, evaluation: Split) -> tuple[Split, Split] | None:
    """Returns the examples to train on, and the held-out examples for early stopping.

    Args:
      train: the examples.
      evaluation: the split whose evaluation settings the held-out examples take.

    Returns:
      Both splits, or None if no part can be held out: if all examples have the same group or time,
      or if each class occurs in only one part.
    """
    content = train.content
    count = 10 if content.examples > LARGE_SPLIT else 5
    divided = divide_examples(content, min(count, count_units(content)), train.shuffle_seed)
    sizes = np.bincount(divided.part_of)
    nearest = int(np.abs(sizes - content.examples / count).argmin())
    part = 0 if divided.is_ordered else nearest
    remaining = exempt_rare_classes(divided, content)
    if not remaining.held_out(part).any() or not remaining.train_rows(part).any():
        return None
    return make_fold(train, evaluation, of_records(remaining, content), part)


def first_examples(split: Split, count: int) -> Split:
    """Returns a split with at most the first `count` usable examples."""
    usable = split.content.usable
    return _select(split, usable & (np.cumsum(usable) <= count))


def _select(train: Split, chosen: np.ndarray, like: Split | None = None) -> Split:
    """Returns the chosen records of `train`, with the settings of `like`, or of `train` if None."""
    reader, content = train.reader.select(chosen), train.content.select(chosen)
    return replace(like or train, reader=reader, content=content)
