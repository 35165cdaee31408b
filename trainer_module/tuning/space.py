"""The search space: the keys that a search changes, and the kinds of models that read them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainer_module.settings.model import AUTO, ZOO, is_forest
from trainer_module.settings.train import READ_WITHOUT_STEPS, READERS
from trainer_module.settings.tune import Range

KIND = "model.kind"
OPTIMIZER = "train.optimizer"

Values = Mapping[str, Any]
"""The values of a candidate, by the paths of the config keys that they replace."""


@dataclass(frozen=True)
class Dimension:
    """A key of a search space, and its range of values."""

    path: str
    """The path of the key: `train.learning_rate`."""
    range: Range
    kinds: tuple[str, ...] = ()
    """The kinds of models that an automatic space has the key for; empty for all kinds that read
    it.
    """

    @property
    def name(self) -> str:
        """The name of the dimension in the study; a key may have several ranges."""
        return f"{self.path} of {', '.join(self.kinds)}" if self.kinds else self.path

    def is_of(self, kind: str, optimizer: str | None) -> bool:
        """Returns whether a candidate reads the key.

        Args:
          kind: the kind of the candidate's model.
          optimizer: the kind of its optimizer; None if the config names none.
        """
        if self.kinds and kind not in self.kinds:
            return False
        return reads(kind, self.path) and _optimizer_reads(optimizer, self.path)


def dimensions_of(space: Mapping[str, Range]) -> tuple[Dimension, ...]:
    """Returns the dimensions of a config's `tune.space`, in the order in which values are sampled.

    Keys that decide whether other keys apply come first.
    """

    def order(path: str) -> int:
        return (KIND, OPTIMIZER, f"{OPTIMIZER}.kind", path).index(path)

    paths = sorted(space, key=order)
    return tuple(Dimension(path, space[path]) for path in paths)


def reads(kind: str, path: str) -> bool:
    """Returns whether a kind of model, or its training, reads a key of `model` or `train`."""
    section, key = path.split(".")[:2]
    if section == "train":
        return not is_forest(kind) or key in READ_WITHOUT_STEPS
    if key == "kind" or kind == AUTO:
        return True
    if key == "options":
        return kind not in ZOO
    if any(key in spec.reads for spec in ZOO.values()):
        return kind in ZOO and key in ZOO[kind].reads
    return not is_forest(kind)


def _optimizer_reads(optimizer: str | None, path: str) -> bool:
    readers = READERS.get(path.removeprefix(f"{OPTIMIZER}."))
    return readers is None or optimizer in readers


def with_values(settings: Mapping[str, Any], values: Values) -> dict[str, Any]:
    """Returns a copy of nested settings with other values at some paths.

    Missing sections are created. A value in place of a section, such as the name of an optimizer,
    becomes the section's `kind`.
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
    """Returns the values as nested sections of a config."""
    return with_values({}, values)


def without_unread(settings: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Returns a copy of settings without the keys that another kind of model does not read."""
    kept = dict(settings)
    for section in ("model", "train"):
        given = settings.get(section, {})
        kept[section] = {key: v for key, v in given.items() if reads(kind, f"{section}.{key}")}
    return kept


def candidate(settings: Mapping[str, Any], values: Values) -> dict[str, Any]:
    """Returns the settings of a config with the values of a trial.

    Args:
      settings: the sections `model` and `train`, and others that stay, without defaults.
      values: the values of the trial.
    """
    given = settings.get("model", {}).get("kind", AUTO)
    kind = values.get(KIND, given)
    return with_values(settings if kind == given else without_unread(settings, kind), values)
