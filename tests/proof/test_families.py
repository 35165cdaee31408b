"""A generator and a policy learn for some steps, and answer."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.support import control_run, generation_runs
from trainer_module import control_trainer, generation_trainer
from trainer_module.runtime import RECORD_FILE

pytestmark = pytest.mark.proof


def test_generator_is_trained_and_draws_pictures(tmp_path: Path) -> None:
    data, run = generation_runs.write_splits(tmp_path), tmp_path / "run"
    settings = generation_runs.settings_of(task={"conditional": True}, train={"epochs": 1})
    generation_trainer.run_fn(generation_runs.arguments(data, run, settings))
    losses = generation_runs.history_of(run)
    assert losses.keys() == {"generator_loss", "discriminator_loss"}
    assert np.isfinite([*losses.values()]).all()
    answer = tf.saved_model.load(str(run / "model")).signatures["serving_default"]
    drawn = answer(
        n=tf.constant(3, tf.int64), seed=tf.constant(7, tf.int64), label=tf.constant("b")
    )
    assert drawn["pictures"].shape == (3, 8, 8, 1)
    pngs = [tf.io.decode_png(png).numpy() for png in drawn["png"].numpy()]
    np.testing.assert_allclose(pngs, 255 * drawn["pictures"].numpy(), atol=0.51)


def test_policy_is_trained_by_acting_and_answers_the_best_action(tmp_path: Path) -> None:
    config = control_run.control_config(steps=160, early_stopping=False)
    control_trainer.run_fn(control_run.arguments(tmp_path / "run", config, None))
    record = json.loads((tmp_path / "run" / RECORD_FILE).read_text())
    assert 0 < record["steps"] <= 160
    assert np.isfinite(record["history"]["loss"][-1])
    answer = tf.saved_model.load(str(tmp_path / "run" / "model")).signatures["serving_default"]
    observations = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    found = answer(observation=tf.constant(observations))
    np.testing.assert_array_equal(found["action"], np.argmax(found["q_values"], axis=1))
