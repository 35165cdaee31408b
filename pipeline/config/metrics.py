"""The metrics a config may name: those of its task, and others by import path or TFMA's config."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, Field

from trainer_module.sections import Settings
from trainer_module.settings.tasks import BaseTask, Metric

if TYPE_CHECKING:
    from pipeline.config.sections.evaluate import EvaluateSettings

COUNT = "example_count"
"""The metric that is always measured."""
NAME = "name"
"""The key of a metric's arguments that says what it is called."""


def _check_arguments(arguments: dict[str, Any]) -> dict[str, Any]:
    name = arguments.get(NAME, "a_name")
    if not isinstance(name, str) or not name or "." in name:
        raise ValueError(f"name: found {name!r}; right is a text without dots, such as cost")
    return arguments


class MetricSettings(Settings):
    """A metric as `tfma.MetricConfig` has it: a class of TFMA's, of Keras's or of yours."""

    class_name: str = Field(min_length=1)
    """The class, such as `Specificity`."""
    module: str = ""
    """Where it is, such as `my_metrics`; may be left out for a class of TFMA's or of Keras's."""
    config: Annotated[dict[str, Any], AfterValidator(_check_arguments)] = {}
    """Its arguments; `name` is what it is called, by default its class in small letters."""

    @property
    def name(self) -> str:
        """What results and thresholds call it."""
        words = re.sub("([a-z0-9])([A-Z])", r"\1_\2", self.class_name)
        words = re.sub("([A-Z]+)([A-Z][a-z])", r"\1_\2", words)
        return str(self.config.get(NAME, words.lower()))


def is_own(name: str) -> bool:
    """Whether a metric is named by the import path of a class of the user's."""
    return "." in name


def find_metric(task: BaseTask, evaluate: EvaluateSettings, name: str) -> Metric:
    """A metric of the task's, or the user's: of those less is better where they have a maximum.

    Nobody knows what the size of the user's means.

    Args:
      task: what is predicted.
      evaluate: what the config says of metrics.
      name: that of one of the task's, an import path, or what TFMA's config is to call it.
    """
    threshold = evaluate.thresholds.get(name)
    is_better = threshold is None or threshold.max is None
    if (given := evaluate.configured.get(name)) is not None:
        options = {key: value for key, value in given.config.items() if key != NAME}
        return Metric(given.class_name, is_better, given.module, options, has_unit=True)
    if not is_own(name):
        return task.metrics()[name]
    module, _, class_name = name.rpartition(".")
    return Metric(class_name, is_better, module, has_unit=True)
