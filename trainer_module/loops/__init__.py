"""Who runs the steps: Keras's `fit`, or a loop written out here. Both train the same model."""

from __future__ import annotations

from trainer_module.loops.custom import train_by_custom_loop
from trainer_module.loops.fit import train_by_fit
from trainer_module.loops.job import Job, TrainingJob
from trainer_module.settings import Loop

__all__ = ["LOOPS", "Job", "TrainingJob"]

LOOPS = {Loop.FIT: train_by_fit, Loop.CUSTOM: train_by_custom_loop}
"""What each loop is run by; takes a TrainingJob, and leaves the trained model in it."""
