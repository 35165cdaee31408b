"""Ludwig, run in an environment of its own: `python -m benchmarks.models.ludwig_peer`.

The arguments are the files of a job and of its outcome.
"""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pandas as pd
from ludwig.api import LudwigModel

from benchmarks.models.job import Job, megabytes
from benchmarks.models.measuring import Trained, main, read_frame


def train(job: Job) -> Trained:
    """Trains Ludwig's default network; it stops early on a tenth of the rows."""
    folder = job.scratch("ludwig")
    output = "number" if job.is_regression else "category"
    model = LudwigModel(
        {
            "input_features": [{"name": n, "type": _type(job, n)} for n in job.columns],
            "output_features": [{"name": job.label, "type": output}],
            "preprocessing": {"split": {"type": "random", "probabilities": [0.9, 0.1, 0.0]}},
        },
        logging_level=logging.ERROR,
    )
    model.train(
        dataset=read_frame(job, job.peers),
        output_directory=str(folder / "run"),
        random_seed=job.seed,
        skip_save_processed_input=True,
    )
    model.save(str(folder / "saved"))
    classes = [] if job.is_regression else model.training_set_metadata[job.label]["idx2str"]

    def predict(rows: pd.DataFrame) -> Any:
        found, _ = model.predict(dataset=rows, skip_save_predictions=True)
        if job.is_regression:
            return found[f"{job.label}_predictions"].to_numpy()
        return np.stack([found[f"{job.label}_probabilities_{name}"] for name in classes], axis=1)

    return Trained(
        rows=read_frame(job, job.test).drop(columns=job.label),
        take=lambda rows, indices: rows.iloc[indices].reset_index(drop=True),
        predict=predict,
        megabytes=megabytes(folder / "saved"),
        classes=classes,
    )


def _type(job: Job, name: str) -> str:
    if name in job.dates:
        return "date"
    if name in job.texts:
        return "text"
    return "number" if name in job.numbers else "category"


if __name__ == "__main__":
    main(train)
