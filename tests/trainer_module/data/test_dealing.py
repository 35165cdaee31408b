"""How the train split is divided: whole groups, or what is older from what is later."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.support.trainer_data import read_record, run_transform, to_example, write_examples
from tests.support.trainings import run_fn
from trainer_module.data.dealing import divide_examples, exempt_rare_classes
from trainer_module.data.examples import Content, Reader
from trainer_module.data.loading import load_data
from trainer_module.features.base import SPLIT_KEYS, TIME
from trainer_module.features.raw_columns import NO_FINGERPRINT, dense_keys, fingerprints
from trainer_module.problem import Problem
from trainer_module.settings import TrainerSettings

PATIENTS, VISITS = 60, 10


def content_of(**parts: np.ndarray) -> Content:
    rows = len(next(iter(parts.values())))
    return Content(np.ones(rows, bool), **parts)


def test_groups_are_dealt_whole_and_evenly() -> None:
    groups = np.repeat(np.random.default_rng(1).permutation(PATIENTS), VISITS)
    classes = (groups % 3 == 0).astype(np.int64)
    parts = divide_examples(content_of(groups=groups, classes=classes), 10, seed=1)
    for group in range(PATIENTS):
        assert len(set(parts.part_of[groups == group])) == 1
    for part in range(10):
        held_out = parts.held_out(part)
        assert held_out.sum() == PATIENTS * VISITS / 10
        assert classes[held_out].mean() == pytest.approx(1 / 3, abs=0.01 + 1 / 6)
        assert (parts.train_rows(part) == ~held_out).all()


@pytest.mark.parametrize("times", [np.arange(100), np.repeat([3, 1, 4, 2], 25)])
def test_held_out_rows_are_later_than_learnt_ones(times: np.ndarray) -> None:
    times = np.random.default_rng(2).permutation(times)
    parts = divide_examples(content_of(times=times), 4, seed=1)
    assert parts.held_out(0).sum() == 25
    for part in range(3):
        held_out, learnt = times[parts.held_out(part)], times[parts.train_rows(part)]
        assert len(held_out) == 25
        assert len(learnt) == 75 - 25 * part
        assert learnt.max() < held_out.min()


def test_class_of_one_part_alone_is_never_held_out() -> None:
    classes = np.array([0, 1] * 20 + [2, 2, 3])
    groups = np.array([*range(40), 40, 40, 41])
    content = content_of(classes=classes, groups=groups)
    parts = exempt_rare_classes(divide_examples(content, 4, seed=1), content)
    for part in range(4):
        assert set(classes[parts.held_out(part)]) == {0, 1}
        assert set(classes[parts.train_rows(part)]) == {0, 1, 2, 3}


def test_fingerprint_covers_all_values_of_a_row() -> None:
    rows = tf.ragged.constant([["a", "b"], ["b", "a"], ["a", "b"], ["ab"], []], dtype=tf.string)
    first, swapped, again, joined, none = fingerprints(rows.to_sparse()).numpy().ravel()
    assert first == again
    assert len({first, swapped, joined, none}) == 4
    assert none == NO_FINGERPRINT
    numbers = fingerprints(tf.constant([[7], [8], [tf.int64.min]], tf.int64)).numpy().ravel()
    assert numbers[0] != numbers[1]
    assert numbers[2] == NO_FINGERPRINT


def test_times_are_read_as_they_are_split_by(tmp_path: Path) -> None:
    texts = tf.ragged.constant([["2024-03-01T00:30:00+02:00"], [], ["2024-02-29"]])
    keys = dense_keys(texts.to_sparse()).numpy().ravel()
    assert keys.tolist() == [b"2024-03-01T00:30:00+02:00", b"", b"2024-02-29"]
    rows = [to_example({"x": 1.0, "y": 1.0, TIME: key}) for key in keys]
    write_examples(tmp_path / "rows.gz", rows)
    number, text = (tf.io.FixedLenFeature([1], dtype) for dtype in (tf.float32, tf.string))
    problem = Problem("regression", "y", (), ())
    reader = Reader(
        [str(tmp_path / "rows.gz")], {"x": number, "y": number}, problem, None, {TIME: text}
    )
    content = reader.read("train")
    assert np.argsort(content.times).tolist() == [1, 2, 0]
    assert set(content.tensors) == {"x", "y"}


@pytest.mark.slow
def test_rows_of_a_patient_stay_on_one_side_of_every_division(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    bodies, labels = random.normal(size=(PATIENTS, 4)), random.integers(0, 2, PATIENTS)
    rows = [
        {
            "patient": f"p{patient}",
            **{f"x{i}": float(v + 0.01 * random.normal()) for i, v in enumerate(bodies[patient])},
            "ill": int(labels[patient]),
        }
        for patient in random.permutation(np.repeat(np.arange(PATIENTS), VISITS))
    ]
    settings = TrainerSettings.model_validate(
        {
            "label": "ill",
            "task": "binary",
            "split_by": "patient",
            "features": {"patient": {"type": "ignore"}},
            "model": {"kind": "trees"},
        }
    )
    data = run_transform(tmp_path / "data", rows, rows[:50], settings)
    fn_args = data.fn_args(tmp_path)
    assert len(set(SPLIT_KEYS) & set(data.tft_output.transformed_feature_spec())) == 1

    loaded = load_data(fn_args, data.tft_output, settings, tf.distribute.get_strategy(), 1)
    assert [feature.name for feature in loaded.problem.features] == ["x0", "x1", "x2", "x3"]
    assert len(np.unique(loaded.train.content.groups)) == PATIENTS

    run_fn(fn_args)
    losses = read_record(fn_args.serving_model_dir)["history"]["val_loss"]
    assert min(losses) > 0.4, "trees are stopped by other patients"
    served = tf.saved_model.load(fn_args.serving_model_dir).signatures["serving_raw"]
    assert sorted(served.structured_input_signature[1]) == ["x0", "x1", "x2", "x3"]
