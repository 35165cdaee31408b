"""What a search may change, and which of it counts for which kind of model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainer_module.settings.model import AUTO, ZOO, is_grown
from trainer_module.settings.train import READ_WITHOUT_STEPS, READERS
from trainer_module.settings.tune import Range

KIND = "model.kind"
OPTIMIZER = "train.optimizer"

Values = Mapping[str, Any]
"""What a candidate has in place of what the config says, by the paths of the keys."""


@dataclass(frozen=True)
class Dimension:
    """One key of a search, and the values that it may take."""

    path: str
    """Of the key: `train.learning_rate`."""
    range: Range
    kinds: tuple[str, ...] = ()
    """The models that it is for, in a space that follows from them; empty: all that read it."""

    @property
    def name(self) -> str:
        """What a study knows it by: the same key may have other values for another model."""
        return f"{self.path} of {', '.join(self.kinds)}" if self.kinds else self.path

    def is_of(self, kind: str, optimizer: str | None) -> bool:
        """Returns whether it means something to a candidate.

        Args:
          kind: of its model.
          optimizer: of its training; None if nobody has named one.
        """
        if self.kinds and kind not in self.kinds:
            return False
        return reads(kind, self.path) and _optimizer_reads(optimizer, self.path)


def dimensions_of(space: Mapping[str, Range]) -> tuple[Dimension, ...]:
    """Returns the keys of a config's `tune.space`, in the order in which values are chosen.

    First those that decide which others count.
    """

    def order(path: str) -> int:
        return (KIND, OPTIMIZER, f"{OPTIMIZER}.kind", path).index(path)

    paths = sorted(space, key=order)
    return tuple(Dimension(path, space[path]) for path in paths)


def reads(kind: str, path: str) -> bool:
    """Returns whether a kind of model, or its training, reads a key of `model` or `train`."""
    section, key = path.split(".")[:2]
    if section == "train":
        return not is_grown(kind) or key in READ_WITHOUT_STEPS
    if key == "kind" or kind == AUTO:
        return True
    if key == "options":
        return kind not in ZOO
    if any(key in spec.reads for spec in ZOO.values()):
        return kind in ZOO and key in ZOO[kind].reads
    return not is_grown(kind)


def _optimizer_reads(optimizer: str | None, path: str) -> bool:
    readers = READERS.get(path.removeprefix(f"{OPTIMIZER}."))
    return readers is None or optimizer in readers


def with_values(settings: Mapping[str, Any], values: Values) -> dict[str, Any]:
    """Returns a copy of nested settings with other values at some paths; sections that are absent
    are made.

    A value that stands where a section is wanted, such as the name of an optimizer, becomes one.
    """
    changed = dict(settings)
    for path, value in values.items():
        *sections, last = path.split(".")
        inner = changed
        for section in sections:
            found = inner.get(section)
            if isinstance(found, str):
                found = {"kind": found}
            inner[section] = dict(found) if isinstance(found, Mapping) else {}
            inner = inner[section]
        inner[last] = value
    return changed


def as_sections(values: Values) -> dict[str, Any]:
    """Values as the sections of a config that they belong to."""
    return with_values({}, values)


def without_unread(settings: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Returns a copy of given settings without what another kind of model than theirs does not
    read.
    """
    kept = dict(settings)
    for section in ("model", "train"):
        given = settings.get(section, {})
        kept[section] = {key: v for key, v in given.items() if reads(kind, f"{section}.{key}")}
    return kept


def candidate(settings: Mapping[str, Any], values: Values) -> dict[str, Any]:
    """Given settings with the values of a trial: what a config with them would say.

    Args:
      settings: sections `model` and `train`, and others that stay, without what is left out.
      values: of the trial.
    """
    given = settings.get("model", {}).get("kind", AUTO)
    kind = values.get(KIND, given)
    return with_values(settings if kind == given else without_unread(settings, kind), values)
