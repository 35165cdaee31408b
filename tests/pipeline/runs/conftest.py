"""What these tests share: data that was checked once, and models that were evaluated once."""

from __future__ import annotations

import pytest

from tests.support.evaluation_artifacts import (
    HALF,
    ROWS,
    SURE,
    Evaluations,
    config_of,
    measure,
    write_examples,
    write_model,
)
from tests.support.tiny_data import Checked, TinyPipeline

TIMID = [0.3 + 0.01 * (row * 7 % HALF) for row in range(ROWS)]
"""No row is called positive."""


@pytest.fixture(scope="session")
def evaluations(tmp_path_factory: pytest.TempPathFactory) -> Evaluations:
    folder = tmp_path_factory.mktemp("evaluations")
    examples = write_examples(folder, sure=SURE, timid=TIMID)
    sure, timid = write_model(folder, "sure"), write_model(folder, "timid")
    missed = config_of(
        {
            "metrics": ["auc_precision_recall", "accuracy"],
            "thresholds": {
                "accuracy": {"min": 0.5, "tolerance": 0.6},
                "auc": {"min": 0.8},
                "log_loss": {"max": 0.5},
                "recall": {},
                "precision": {"min": 0.1},
            },
            "slices": ["plan", ["plan", "zone"]],
        }
    )
    kept = config_of(
        {
            "metrics": ["accuracy"],
            "thresholds": {"accuracy": {"min": 0.9}, "log_loss": {"max": 0.1}},
        }
    )
    first = config_of({"metrics": ["accuracy"]})
    return Evaluations(
        measure(folder / "missed", missed, examples, timid, sure),
        measure(folder / "kept", kept, examples, sure, timid),
        measure(folder / "first", first, examples, sure),
        measure(folder / "useless", first, examples, timid),
    )


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> TinyPipeline:
    """A pipeline that is checked once; tests may do so again, and leave its data as it was."""
    pipeline = TinyPipeline(tmp_path_factory.mktemp("tiny"))
    pipeline.write()
    return pipeline


@pytest.fixture(scope="session")
def checked(tiny: TinyPipeline) -> Checked:
    """Its first run."""
    return tiny.check()
