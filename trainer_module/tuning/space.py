"""The search space: the keys that a search changes, and the kinds of models that read the keys."""

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
"""The values of a trial, by the paths of the config keys that the values replace."""


@dataclass(frozen=True)
class Dimension:
    """A key of a search space, and its range of values."""

    path: str
    """The path of the key: `train.learning_rate`."""
    range: Range
    kinds: tuple[str, ...] = ()
    """The kinds of models to which the dimension applies, or an empty tuple for all kinds that read
    the key.
    """

    @property
    def name(self) -> str:
        """The name of the dimension in the study, which is unique if a key has several ranges."""
        return f"{self.path} of {', '.join(self.kinds)}" if self.kinds else self.path

    def is_of(self, kind: str, optimizer: str | None) -> bool:
        """Returns whether a trial reads the key.

        Args:
          kind: the kind of the trial's model.
          optimizer: the kind of the trial's optimizer, or None if the config names no optimizer.
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

    The function creates missing sections. If a name, such as the name of an optimizer, stands for a
    section, the name becomes the `kind` of the section.
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


def _drop_unread_keys(settings: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Returns a copy of settings without the keys that a kind of model does not read."""
    result = dict(settings)
    for section in ("model", "train"):
        values = settings.get(section, {})
        result[section] = {key: v for key, v in values.items() if reads(kind, f"{section}.{key}")}
    return result


def candidate(settings: Mapping[str, Any], values: Values) -> dict[str, Any]:
    """Returns the settings of a config with the values of a trial.

    Args:
      settings: the sections `model` and `train` without defaults, and other sections, which the
        function copies unchanged.
      values: the values of the trial.
    """
    configured = settings.get("model", {}).get("kind", AUTO)
    kind = values.get(KIND, configured)
    return with_values(
        settings if kind == configured else _drop_unread_keys(settings, kind), values
    )
