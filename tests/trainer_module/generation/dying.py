"""A callback that kills its process in mid-epoch, as a lost machine ends it."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import tf_keras


class DieInSecondEpoch(tf_keras.callbacks.Callback):
    """Sends SIGKILL after the fourth step of the second epoch, the first time alone."""

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        marker = Path(os.environ["DIED_BEFORE"])
        if self._epoch == 1 and batch == 3 and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
