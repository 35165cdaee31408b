"""The registry of tasks: what may be predicted.

A task is a module with its settings, its label in Transform, its output and its loss in training,
what it is measured by, and how it is served. Importing this package, or a task's module, does not
import TensorFlow: a config is checked before that is paid for.
"""

from __future__ import annotations

from trainer_module.sections import import_registered
from trainer_module.tasks.base import BaseTask

_TASKS = "trainer_module.tasks"
TASKS = {
    "binary": f"{_TASKS}.binary.BinaryTask",
    "multiclass": f"{_TASKS}.multiclass.MulticlassTask",
    "ordinal": f"{_TASKS}.ordinal.OrdinalTask",
    "regression": f"{_TASKS}.regression.RegressionTask",
    "count": f"{_TASKS}.count.CountTask",
}
"""Import paths of the tasks by the name in `task`."""


def task_class(kind: str) -> type[BaseTask]:
    """A task, by its name in the config."""
    found: type[BaseTask] = import_registered(TASKS[kind])
    return found


def as_task(task: BaseTask | str) -> BaseTask:
    """A task; a name stands for the task without options, as it does in a config."""
    return task_class(task)(kind=str(task)) if isinstance(task, str) else task
