"""Training by Keras's `Model.fit`."""

from __future__ import annotations

import tf_keras

from trainer_module.compat.insides import Known, require_known
from trainer_module.training.job import TrainingJob
from trainer_module.training.several_steps import use_several_steps

_KNOWN: Known = {
    "tf_keras.src.engine.training": {
        "Model.fit": "f6cc972c81a0",
        "Model._maybe_load_initial_counters_from_ckpt": "fa3b05cb1c73",
    }
}
"""Where `fit` asks the backup for the step that it begins with."""


def train_by_fit(job: TrainingJob) -> None:
    """Trains the model of a job, evaluating it after every epoch.

    Raises:
      InternalError: the steps of an interrupted epoch that are done would be done again.
    """
    if job.start.step:
        require_known(_KNOWN, "going on within an epoch")
    # A list of its own, as `fit` would tell them of the epochs up to `last_epoch` alone.
    callbacks = tf_keras.callbacks.CallbackList(
        list(job.callbacks),
        add_history=True,
        model=job.model,
        epochs=job.epochs,
        steps=job.train.steps,
        verbose=0,
    )
    if job.steps_per_execution > 1:
        use_several_steps(job.model)
    evaluation = None if job.is_asynchronous else job.evaluation.distribute(job.strategy)
    job.model.fit(
        job.train.distribute(job.strategy, job.start_step),
        initial_epoch=job.start.epoch,
        epochs=job.last_epoch,
        steps_per_epoch=job.train.steps,
        validation_data=evaluation,
        validation_steps=job.evaluation.steps,
        callbacks=callbacks,
        verbose=0,
    )
