"""Each strategy trains scikit-learn's digits for an epoch, to the losses of the default strategy.

The losses are equal only if replicas and workers share each batch instead of reading all of it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.support.trainer_data import Transformed, read_record, to_example
from tests.support.training_data import digits, digits_model  # noqa: F401 - fixtures
from tests.support.trainings import run_fn, train_in_cluster

pytestmark = pytest.mark.proof

EXAMPLES, STEPS = 320, 10


def scores_of(data: Transformed, model: str) -> np.ndarray:
    """What an exported model answers to the raw rows of the eval split."""
    answer = tf.saved_model.load(model).signatures["serving_default"]
    return answer(tf.constant([to_example(row) for row in data.evaluation]))["scores"].numpy()


def check_same_training(data: Transformed, model: str, base: str) -> dict[str, Any]:
    """Compares losses and answers with those of the default strategy; returns the record."""
    record, expected = read_record(model), read_record(base)
    assert record["steps"] == expected["steps"] == STEPS
    for name in ("loss", "val_loss", "val_accuracy"):
        assert record["history"][name] == pytest.approx(expected["history"][name], rel=1e-4), name
    np.testing.assert_allclose(scores_of(data, model), scores_of(data, base), atol=1e-3)
    return record


@pytest.mark.parametrize(
    ("strategy", "loop", "replicas"),
    [("one_device", "custom", 1), ("mirrored", "fit", 2), ("central_storage", "custom", 2)],
)
def test_strategy_of_one_process_trains_as_the_default_strategy(
    digits: Transformed,  # noqa: F811
    digits_model: str,  # noqa: F811
    tmp_path: Path,
    strategy: str,
    loop: str,
    replicas: int,
) -> None:
    fn_args = digits.fn_args(tmp_path, train={"strategy": strategy, "loop": loop})
    run_fn(fn_args)
    record = check_same_training(digits, fn_args.serving_model_dir, digits_model)
    assert (record["strategy"], record["replicas"]) == (strategy, replicas)
    assert record["examples_per_worker"] == [EXAMPLES]


def test_workers_in_step_train_as_the_default_strategy(
    digits: Transformed,  # noqa: F811
    digits_model: str,  # noqa: F811
    tmp_path: Path,
) -> None:
    train_in_cluster(digits, tmp_path, train={"strategy": "multi_worker_mirrored"})
    record = check_same_training(digits, str(tmp_path / "Format-Serving"), digits_model)
    assert (record["workers"], record["replicas"]) == (2, 2)
    assert record["examples_per_worker"] == [EXAMPLES / 2] * 2


def test_parameter_servers_train_a_model_that_answers_as_it_was_measured(
    digits: Transformed,  # noqa: F811
    tmp_path: Path,
) -> None:
    train = {"strategy": "parameter_server", "cluster": {"workers": 2, "parameter_servers": 1}}
    record = train_in_cluster(digits, tmp_path, train=train)
    assert (record["workers"], record["steps"]) == (2, STEPS)
    counts = record["examples_per_worker"]
    assert len(counts) == 2
    assert sum(counts) >= EXAMPLES
    right = [row["digit"] for row in digits.evaluation]
    found = scores_of(digits, str(tmp_path / "Format-Serving")).argmax(1)
    (measured,) = record["history"]["val_accuracy"]
    assert np.mean(found == right) == pytest.approx(measured, abs=1e-6)
