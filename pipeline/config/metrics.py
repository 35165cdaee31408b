"""The metrics a config may name: those of its task, and those of the user's by import path."""

from __future__ import annotations

from trainer_module.tasks.base import BaseTask, Metric


def is_own(name: str) -> bool:
    """Whether a metric is named by the import path of a class of the user's."""
    return "." in name


def find_metric(task: BaseTask, name: str, has_maximum: bool) -> Metric:
    """A metric of the task's, or the user's.

    Args:
      task: what is predicted.
      name: that of one of the task's, or an import path.
      has_maximum: whether a threshold is its largest value: of the user's, less is better then.
    """
    if not is_own(name):
        return task.metrics()[name]
    module, _, class_name = name.rpartition(".")
    return Metric(class_name, higher_is_better=not has_maximum, module=module)
