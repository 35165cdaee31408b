"""Who runs the steps: Keras's `fit`, or a loop written out here. Both train the same model."""

from __future__ import annotations

from trainer_module.settings import Loop
from trainer_module.training.custom import train_by_custom_loop
from trainer_module.training.fit import train_by_fit
from trainer_module.training.job import Job, TrainingJob

__all__ = ["LOOPS", "Job", "TrainingJob"]

LOOPS = {Loop.FIT: train_by_fit, Loop.CUSTOM: train_by_custom_loop}
"""What each loop is run by; takes a TrainingJob, and leaves the trained model in it."""
