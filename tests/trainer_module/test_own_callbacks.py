"""Callbacks of the user's: which hooks each loop calls, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tf_keras

from tests.support.trainer_data import Transformed
from tests.support.trainings import open_training, train_whole
from trainer_module.errors import TrainingError
from trainer_module.settings import Loop, TrainerSettings
from trainer_module.training.callbacks import make_own_callbacks

calls: list[str] = []


class Listener(tf_keras.callbacks.Callback):
    """Notes the hooks that are called, and what training knows then."""

    def __init__(self, last_epoch: int = 2) -> None:
        super().__init__()
        self.last_epoch = last_epoch

    def on_train_begin(self, logs: Any = None) -> None:
        calls.append("train begins")

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        calls.append(f"epoch {epoch} begins")

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        calls.append(f"step {batch} with a loss: {'loss' in logs}")

    def on_test_end(self, logs: Any = None) -> None:
        calls.append("evaluated")

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        calls.append(f"epoch {epoch} ends with val_loss: {'val_loss' in logs}")
        self.model.stop_training = epoch + 1 == self.last_epoch

    def on_train_end(self, logs: Any = None) -> None:
        calls.append("train ends")


def listen_for_one_epoch(settings: TrainerSettings) -> Listener:
    """Takes what it stops after from the settings."""
    return Listener(last_epoch=settings.train.epochs - 2)


def no_callback() -> str:
    return "none"


@pytest.mark.slow
@pytest.mark.parametrize("loop", Loop)
def test_both_loops_call_the_same_hooks(trips: Transformed, tmp_path: Path, loop: Loop) -> None:
    calls.clear()
    callbacks = [f"{__name__}.listen_for_one_epoch"]
    options = {"loop": loop, "callbacks": callbacks, "batch_size": 225, "epochs": 3}
    fn_args = trips.fn_args(tmp_path, train=options)
    train_whole(open_training(fn_args))
    steps = ["step 0 with a loss: True", "step 1 with a loss: True"]
    assert calls == [
        "train begins",
        "epoch 0 begins",
        *steps,
        "evaluated",
        "epoch 0 ends with val_loss: True",
        "train ends",
    ], "it ended after one of three epochs, as the callback wanted"


def test_object_that_is_no_callback_is_refused() -> None:
    def made(path: str) -> Any:
        train = {"callbacks": [f"{__name__}.{path}"]}
        settings = TrainerSettings.model_validate({"label": "y", "task": "binary", "train": train})
        return make_own_callbacks(settings)

    (listener,) = made("Listener")
    assert listener.last_epoch == 2
    with pytest.raises(TrainingError, match=r"builtins\.str"):
        made("no_callback")
    with pytest.raises(TrainingError, match=r"train\.callbacks '.*' has no function 'nothing'"):
        made("nothing")
