"""What is predicted: a task by its name, or a mapping with its options."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from trainer_module.sections import Registered, named_or_mapping
from trainer_module.tasks import TASKS
from trainer_module.tasks.base import BaseTask


def _any_of(tasks: dict[str, str]) -> Any:
    return named_or_mapping("Task", "What the model predicts.", tasks)


TaskSettings: TypeAlias = Annotated[BaseTask, Registered(TASKS, _any_of)]
