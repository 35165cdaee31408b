"""Members of an ensemble that fail: only memory and numbers that are not finite excuse one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from trainer_module.errors import DivergedError, MemberLimitError, TrainingError
from trainer_module.settings import ModelSettings, Task, TrainerSettings


@pytest.fixture
def trainings() -> Any:
    from trainer_module.ensemble_trainer import MemberTrainings

    settings = TrainerSettings(label="y", task=Task.BINARY, model=ModelSettings(kind="ensemble"))
    inputs: Any = SimpleNamespace(settings=settings, prefix="")
    examples: Any = SimpleNamespace(columns=("x",), bags={})
    return MemberTrainings(inputs, examples)


def failing(error: Exception) -> Any:
    def fit() -> Any:
        raise error

    return fit


@pytest.mark.parametrize(
    "error", [DivergedError("loss is nan"), MemoryError("no memory"), MemberLimitError("classes")]
)
def test_a_member_without_memory_or_finite_numbers_is_left_out(trainings: Any, error) -> None:
    trainings.try_member("tabular", failing(error))
    assert trainings.failures == {"tabular": error}


@pytest.mark.parametrize("error", [ValueError("not unique"), TrainingError("no layer")])
def test_any_other_failure_of_a_member_ends_the_training(trainings: Any, error) -> None:
    with pytest.raises(type(error), match=str(error)):
        trainings.try_member("tabular", failing(error))
