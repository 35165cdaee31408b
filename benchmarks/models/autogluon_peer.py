"""AutoGluon, run in an environment of its own: `python -m benchmarks.models.autogluon_peer`.

The arguments are the files of a job and of its outcome.
"""

from __future__ import annotations

import numpy as np
from autogluon.tabular import TabularPredictor

from benchmarks.models.job import CORES, Job, megabytes
from benchmarks.models.measuring import Trained, main, read_frame

PRESET = "medium_quality"
METRICS = {
    "binary": "roc_auc",
    "multiclass": "accuracy",
    "regression": "root_mean_squared_error",
}


def train(job: Job) -> Trained:
    """Trains AutoGluon within the job's limit of time, and keeps what prediction needs."""
    folder = job.scratch("autogluon")
    fitted = TabularPredictor(
        label=job.label,
        problem_type=job.task,
        eval_metric=METRICS[job.task],
        path=str(folder / "all"),
        verbosity=0,
    ).fit(
        read_frame(job, job.peers),
        presets=PRESET,
        time_limit=job.seconds,
        num_cpus=CORES,
        num_gpus=0,
    )
    saved = folder / "saved"
    model = fitted.clone_for_deployment(str(saved), return_clone=True)
    model.persist()
    predict = model.predict if job.is_regression else model.predict_proba
    best = model.model_best
    return Trained(
        rows=read_frame(job, job.test).drop(columns=job.label),
        take=lambda rows, indices: rows.iloc[indices],
        predict=lambda rows: np.asarray(predict(rows)),
        megabytes=megabytes(saved),
        classes=[] if job.is_regression else list(map(str, model.class_labels)),
        notes=[f"{best} of {', '.join(fitted.model_names())}"],
    )


if __name__ == "__main__":
    main(train)
